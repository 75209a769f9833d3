package predictor

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// flat sets the isolated latencies of a service as newSerial does.
func flat(t testing.TB, p *Predictor, service models.ServiceID) {
	t.Helper()
	if err := p.solo.Reset(service, 10); err != nil {
		t.Fatal(err)
	}
	nanos := make([]int64, 10)
	for i := range nanos {
		nanos[i] = 100_000
	}
	if err := p.solo.SetOperators(service, 1, 0, nanos); err != nil {
		t.Fatal(err)
	}
}

func TestSoloGrowsAndForgets(t *testing.T) {
	solo := newSolo(t, 2)
	if err := solo.Reset(1, 3); err != nil {
		t.Fatal(err)
	}
	set(t, solo, 1, 1, 0, ms, ms, ms)
	near(t, solo, span(1, 0, 3, 1, 0), 3*ms)
	if err := solo.Drop(1); err != nil {
		t.Fatal(err)
	}
	if d, ok := solo.Span(span(1, 0, 3, 1, 0)); ok {
		t.Errorf("a service that was dropped takes %v", d)
	}
	_, snapshotErr := solo.Snapshot(1)
	for what, err := range map[string]error{
		"set": solo.SetOperators(1, 1, 0, []int64{1, 1, 1}), "observe": solo.Observe(1, 0, 1, 1, 0, ms),
		"drop": solo.Drop(1), "snapshot": snapshotErr, "beyond": solo.Drop(2), "gap": solo.Reset(3, 1),
	} {
		if !errors.Is(err, errRange) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := solo.Reset(1, 2); err != nil {
		t.Fatal(err)
	}
	set(t, solo, 1, 1, 0, ms, ms)
	near(t, solo, span(1, 0, 2, 1, 0), 2*ms)
}

func TestSoloIsBounded(t *testing.T) {
	solo := newSolo(t, 1)
	for i := models.ServiceID(1); i < MaxServices; i++ {
		if err := solo.Reset(i, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := solo.Reset(MaxServices, 1); !errors.Is(err, errRange) {
		t.Errorf("one service too many: %v", err)
	}
}

// What was bound to the network stays so while services come and go. What came
// later, or in the place of another, is answered by the sum until Use.
func TestBindingsOutliveChanges(t *testing.T) {
	p, f := newSerial(t, 3), constant(testFile(3), 0.9)
	use(t, p, f, 0, 1, 2)
	pair := func(a, b models.ServiceID) models.Estimate {
		return ask(p, span(a, 0, 10, 1, 0), span(b, 0, 10, 1, 64*(int(b)%2)))
	}
	byNetwork := pair(0, 1)
	if byNetwork.Latency >= 2*ms {
		t.Fatalf("the network says %v", byNetwork)
	}
	flat(t, p, 3)
	within(t, "with the old one", pair(0, 1), byNetwork.Latency, byNetwork.Bound)
	within(t, "with the new one", ask(p, span(0, 0, 10, 1, 0), span(3, 0, 10, 1, 0)), 2*ms, 2*ms)
	if err := p.Drop(2); err != nil {
		t.Fatal(err)
	}
	within(t, "after the other was dropped", pair(0, 1), byNetwork.Latency, byNetwork.Bound)
	if e := ask(p, span(0, 0, 10, 1, 0), span(2, 0, 10, 1, 0)); e != (models.Estimate{}) {
		t.Errorf("with the dropped one: %v", e)
	}
	flat(t, p, 2)
	within(t, "with its successor", ask(p, span(0, 0, 10, 1, 0), span(2, 0, 10, 1, 0)), 2*ms, 2*ms)
	use(t, p, f, 0, 1, -1, 2)
	within(t, "bound again", pair(0, 1), byNetwork.Latency, byNetwork.Bound)
	if e := ask(p, span(0, 0, 10, 1, 0), span(3, 0, 10, 1, 0)); e.Latency >= 2*ms {
		t.Errorf("the new one, bound: %v", e)
	}
	if err := p.Use(f, []int{0, 1}); !errors.Is(err, errRange) {
		t.Errorf("models of two services for four: %v", err)
	}
	if err := p.Drop(9); !errors.Is(err, errRange) {
		t.Errorf("drop of an unknown service: %v", err)
	}
}

// What was learned of a service is not believed of its successor, and what was
// learned of the others stays, even when the network is bound again.
func TestDropForgetsWhatWasLearned(t *testing.T) {
	p, f := newSerial(t, 3), constant(testFile(3), 0.9)
	use(t, p, f, 0, 1, 2)
	kept := []models.Span{span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 64)}
	gone := []models.Span{span(0, 0, 10, 1, 0), span(2, 0, 10, 1, 0)}
	was := ask(p, kept...)
	teach(t, p, 200, was.Latency*5/4, kept...)
	teach(t, p, 200, was.Latency*5/4, gone...)
	learned := ask(p, kept...)
	if learned.Latency <= was.Latency*11/10 {
		t.Fatalf("%v became %v", was, learned)
	}
	if err := p.Drop(2); err != nil {
		t.Fatal(err)
	}
	flat(t, p, 2)
	use(t, p, f, 0, 1, 2)
	within(t, "the others", ask(p, kept...), learned.Latency, learned.Bound)
	shapes := p.Report(true).Shapes
	if len(shapes) != 1 || shapes[0].Services[1] != 1 {
		t.Errorf("what is known: %+v", shapes)
	}
}

// However services come and go, and whatever order is asked in, an estimate
// depends on the group alone, and what is not there is unknown.
func TestChangesKeepOrderIndependence(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		p, f := newSerial(outer, 4), testFile(4, 16)
		use(outer, p, f, 0, 1, 2, 3)
		there := map[models.ServiceID]bool{0: true, 1: true, 2: true, 3: true}
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			id := models.ServiceID(rapid.IntRange(0, len(p.solo.services)-1).Draw(t, "service"))
			switch {
			case rapid.Bool().Draw(t, "add") && len(p.solo.services) < 6:
				id = models.ServiceID(len(p.solo.services))
				flat(outer, p, id)
				there[id] = true
			case there[id]:
				if err := p.Drop(id); err != nil {
					t.Fatal(err)
				}
				there[id] = false
			default:
				flat(outer, p, id)
				there[id] = true
			}
			if g := drawGroup(t, len(p.solo.services)); rapid.Bool().Draw(t, "observe") && len(g.Spans) > 1 {
				if err := p.Observe(0, g, time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
		}
		g := drawGroup(t, len(p.solo.services))
		known := true
		for _, s := range g.Spans {
			known = known && there[s.Service]
		}
		before := ask(p, g.Spans...)
		g.Spans = rapid.Permutation(g.Spans).Draw(t, "order")
		if again := ask(p, g.Spans...); again != before || known != (before.Latency > 0) {
			t.Fatalf("%v: %v, in another order %v; all are there: %v", g, before, again, known)
		}
	})
}

// Nor is it believed of the next model that the same service has.
func TestResetForgetsWhatWasLearned(t *testing.T) {
	p, f := newSerial(t, 3), constant(testFile(3), 0.9)
	use(t, p, f, 0, 1, 2)
	alone := []models.Span{span(2, 0, 10, 1, 0)}
	teach(t, p, 200, ask(p, alone...).Latency*5/4, alone...)
	kept := []models.Span{span(0, 0, 10, 1, 0)}
	teach(t, p, 200, ask(p, kept...).Latency*5/4, kept...)
	if err := p.Reset(2, 10); err != nil {
		t.Fatal(err)
	}
	if shapes := p.Report(true).Shapes; slices.ContainsFunc(shapes, func(s shapeReport) bool { return slices.Contains(s.Services, 2) }) || len(shapes) == 0 {
		t.Errorf("what is known: %+v", shapes)
	}
	if err := p.Reset(9, 10); !errors.Is(err, errRange) {
		t.Errorf("an ID that is not the next: %v", err)
	}
}

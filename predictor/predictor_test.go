package predictor

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// newSerial returns a predictor without a network for services of ten
// operators, each of which takes 100 µs whatever the batch.
func newSerial(t testing.TB, services int) *Predictor {
	t.Helper()
	operators := make([]int, services)
	for i := range operators {
		operators[i] = 10
	}
	solo := newSolo(t, operators...)
	for i := range operators {
		nanos := make([]int64, 10)
		for k := range nanos {
			nanos[k] = 100_000
		}
		for _, size := range []int{1, 8, 64} {
			if err := solo.SetOperators(models.ServiceID(i), size, i%2*64, nanos); err != nil {
				t.Fatal(err)
			}
		}
	}
	return New(solo)
}

func use(t testing.TB, p *Predictor, f *File, bind ...int) {
	t.Helper()
	if err := p.Use(f, bind); err != nil {
		t.Fatal(err)
	}
}

func ask(p *Predictor, spans ...models.Span) models.Estimate {
	estimates := []models.Estimate{{}}
	p.Predict([]models.Group{groupOf(spans...)}, estimates)
	return estimates[0]
}

func teach(t testing.TB, p *Predictor, times int, took time.Duration, spans ...models.Span) {
	t.Helper()
	for range times {
		if err := p.Observe(0, groupOf(spans...), took); err != nil {
			t.Fatal(err)
		}
	}
}

// within fails the test unless both are equal but for rounding.
func within(t testing.TB, what string, got models.Estimate, latency, bound time.Duration) {
	t.Helper()
	if math.Abs(float64(got.Latency-latency)) > float64(latency)/1e3 || math.Abs(float64(got.Bound-bound)) > float64(bound)/1e3 {
		t.Errorf("%s: %v, want %v and %v", what, got, latency, bound)
	}
}

func TestPredictWithoutNetwork(t *testing.T) {
	p := newSerial(t, 3)
	within(t, "one span", ask(p, span(0, 0, 10, 1, 0)), ms, ms)
	within(t, "two spans", ask(p, span(0, 0, 10, 1, 0), span(2, 5, 10, 4, 0)), 1500*time.Microsecond, 1500*time.Microsecond)
	for name, e := range map[string]models.Estimate{
		"no span":         ask(p),
		"unknown service": ask(p, span(0, 0, 10, 1, 0), span(3, 0, 10, 1, 0)),
		"no operators":    ask(p, span(0, 0, 11, 1, 0)),
	} {
		if e != (models.Estimate{}) {
			t.Errorf("%s: %v, want zero", name, e)
		}
	}
	p = New(newSolo(t, 10, 10))
	if e := ask(p, span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 0)); e != (models.Estimate{}) {
		t.Errorf("unknown solo times: %v", e)
	}
}

func TestPredictByNetwork(t *testing.T) {
	p, f := newSerial(t, 3), constant(testFile(2), 0.9)
	use(t, p, f, 1, -1, 0) // service 0 has model b, service 2 model a
	base := []float64{0}
	mustModel(t, f).predict([]models.Group{groupOf(part(0, 0, 10, 2, 0), part(1, 0, 10, 1, 0))}, base)
	want := time.Duration(base[0] * 1e3)
	got := ask(p, span(0, 0, 10, 1, 0), span(2, 0, 10, 2, 0))
	within(t, "bound services", got, want, want*11/10)
	if want >= 2*ms {
		t.Fatalf("the network gives %v, as the sum does", want)
	}
	p.Forget()
	within(t, "without the network", ask(p, span(0, 0, 10, 1, 0), span(2, 0, 10, 2, 0)), 2*ms, 2*ms)
}

// What the network does not cover is answered by the sum, and the reason is
// counted.
func TestPredictFallsBack(t *testing.T) {
	p := newSerial(t, 5)
	a, b := span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 64)
	within(t, "no network", ask(p, a, b), 2*ms, 2*ms)
	use(t, p, constant(testFile(3), 0.9), 0, 1, -1, 0, 2)
	p.file.Features.Spans = 2
	for name, spans := range map[string][]models.Span{
		"model":    {a, span(2, 0, 10, 1, 0)},
		"size":     {a, span(1, 0, 10, 9, 64)},
		"seq len":  {b, span(4, 0, 10, 1, 1)},
		"two of a": {a, span(3, 0, 10, 1, 0)},
	} {
		within(t, name, ask(p, spans...), 2*ms, 2*ms)
	}
	within(t, "three spans", ask(p, a, b, span(4, 0, 10, 1, 0)), 3*ms, 3*ms)
	if e := ask(p, a, b); e.Latency >= 2*ms {
		t.Errorf("a group that is covered takes the sum, %v", e)
	}
	ask(p)
	r := p.Report(true)
	want := Report{
		Unknown: 1, Answers: map[string]uint64{"beside": 0, "solo": 0, "sum": 6, "network": 1},
		Fallbacks: map[string]uint64{"no predictor": 1, "model unknown": 1, "size beyond training": 2, "group beyond training": 2},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
}

// However small the network's answer, a group takes nearly as long as its
// longest span.
func TestPredictIsPlausible(t *testing.T) {
	p := newSerial(t, 2)
	use(t, p, constant(testFile(2), 1e-6), 0, 1)
	least := time.Duration(plausible * float64(ms))
	within(t, "a tiny answer", ask(p, span(0, 0, 10, 1, 0), span(1, 0, 1, 1, 64)), least, least*11/10)
	teach(t, p, 500, time.Microsecond, span(0, 0, 10, 1, 0), span(1, 0, 1, 1, 64))
	if e := ask(p, span(0, 0, 10, 1, 0), span(1, 0, 1, 1, 64)); e.Latency < least || e.Bound < e.Latency {
		t.Errorf("%v after tiny measurements, want at least %v", e, least)
	}
}

func TestObserveCorrects(t *testing.T) {
	p := newSerial(t, 2)
	use(t, p, constant(testFile(2), 0.9), 0, 1)
	spans := []models.Span{span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 64)}
	was := ask(p, spans...)
	teach(t, p, 300, was.Latency*5/4, spans...)
	if e := ask(p, spans...); math.Abs(float64(e.Latency)/float64(was.Latency)-1.25) > 0.02 || e.Bound > e.Latency*105/100 {
		t.Errorf("%v became %v; every run took 5/4", was, e)
	}
	within(t, "one span", ask(p, spans[0]), ms, ms)
	r := p.Report(true).Shapes
	if len(r) != 1 || r[0].Source != sourceNetwork || fmt.Sprint(r[0].Services) != "[0 1]" || r[0].Runs != 300 || r[0].Window != windowRuns+recentRuns {
		t.Fatalf("report: %+v", r)
	}
	near1(t, "the error of the network", r[0].RawMAPE, 20, 0.02)
	near1(t, "the middle", r[0].Quantiles.P50, 1.25, 0.02)
	if r[0].MAPE > 2 {
		t.Errorf("the error of what was answered is %v", r[0].MAPE)
	}
	p.Forget()
	if len(p.Report(true).Shapes) != 0 {
		t.Errorf("what was learned of a network outlived it")
	}
}

func TestObserveRefusesGroups(t *testing.T) {
	p := newSerial(t, 2)
	for name, err := range map[string]error{
		"no time":  p.Observe(0, groupOf(span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 0)), 0),
		"too long": p.Observe(0, groupOf(span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 0)), MaxTime+1),
		"unknown":  p.Observe(0, groupOf(span(2, 0, 10, 1, 0)), ms),
	} {
		if !errors.Is(err, errRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.Observe(0, groupOf(span(0, 0, 10, 1, 0), span(7, 0, 10, 1, 0)), ms); err != nil {
		t.Errorf("a group with an unknown service: %v", err)
	}
	if n := len(p.Report(true).Shapes); n != 0 {
		t.Errorf("%d shapes", n)
	}
}

func TestUseRefuses(t *testing.T) {
	p, f := newSerial(t, 2), testFile(2, 4)
	use(t, p, f, 0, 1)
	was := ask(p, span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 64))
	damaged := testFile(2, 4)
	damaged.Layers[0].Bias[0] = float32(math.NaN())
	for name, c := range map[string]struct {
		f    *File
		bind []int
		want error
	}{
		"too few":  {f, []int{0}, errRange},
		"below":    {f, []int{0, -2}, errRange},
		"above":    {f, []int{0, 2}, errRange},
		"damaged":  {damaged, []int{0, 1}, errDamaged},
		"no file":  {new(File), []int{-1, -1}, errDamaged},
		"too many": {f, []int{0, 1, 1}, errRange},
	} {
		if err := p.Use(c.f, c.bind); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if e := ask(p, span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 64)); e != was {
		t.Errorf("%v became %v", was, e)
	}
}

// Whatever is asked and measured, in whatever order and number, estimates are
// the same for the same spans, positive, and no bound is below its latency.
func TestPredictorProperties(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		p := newSerial(outer, 7)
		use(outer, p, testFile(7, 16, 16), 6, 5, 4, 3, 2, 1, -1)
		groups := make([]models.Group, rapid.IntRange(1, 2*MaxRows+1).Draw(t, "groups"))
		for i := range groups {
			groups[i] = drawGroup(t, 7)
			if rapid.Bool().Draw(t, "observe") {
				took := rapid.Int64Range(1, int64(MaxTime)).Draw(t, "took")
				if err := p.Observe(0, groups[i], time.Duration(took)); err != nil {
					t.Fatal(err)
				}
			}
		}
		estimates, again := make([]models.Estimate, len(groups)), make([]models.Estimate, len(groups))
		p.Predict(groups, estimates)
		for i := range groups {
			groups[i].Spans = rapid.Permutation(groups[i].Spans).Draw(t, "order")
		}
		p.Predict(groups, again)
		for i, e := range estimates {
			if e.Latency <= 0 || e.Bound < e.Latency || e.Bound > 2*MaxTime*time.Duration(len(groups[i].Spans)) {
				t.Fatalf("%v: %v", groups[i], e)
			}
			// Sums of isolated latencies are rounded span by span, in any order.
			if e != again[i] {
				t.Fatalf("%v: %v, in another order %v", groups[i], e, again[i])
			}
		}
	})
}

func TestPredictorDoesNotAllocate(t *testing.T) {
	p := newSerial(t, 7)
	use(t, p, testFile(7, 32, 32), 0, 1, 2, 3, 4, 5, 6)
	groups, estimates := manyGroups(MaxRows+3), make([]models.Estimate, MaxRows+3)
	if n := testing.AllocsPerRun(20, func() { p.Predict(groups, estimates) }); n != 0 {
		t.Errorf("Predict allocates %v times", n)
	}
	if n := testing.AllocsPerRun(500, func() { teach(t, p, 1, ms, groups[0].Spans...) }); n != 0 {
		t.Errorf("Observe allocates %v times", n)
	}
}

func TestCalibrationSnapshot(t *testing.T) {
	p, f := newSerial(t, 3), testFile(3, 4)
	use(t, p, f, 0, 1, 2)
	groups := []models.Group{
		groupOf(span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 64)), groupOf(span(0, 0, 10, 9, 0), span(2, 0, 10, 1, 0)),
		groupOf(span(1, 0, 10, 1, 64)),
	}
	for i := range 500 {
		teach(t, p, 1, ms+time.Duration(i%10)*ms/100, groups[i%3].Spans...)
	}
	text, err := json.Marshal(p.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var kept CalibrationSnapshot
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	q := New(p.solo)
	use(t, q, f, 0, 1, 2)
	if err := q.Restore(kept); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Snapshot(), q.Snapshot()); diff != "" {
		t.Error(diff)
	}
	want, got := make([]models.Estimate, 3), make([]models.Estimate, 3)
	p.Predict(groups, want)
	q.Predict(groups, got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	// Another network keeps what is not about the first.
	use(t, q, constant(testFile(3), 0.9), 0, 1, 2)
	if err := q.Restore(kept); err != nil {
		t.Fatal(err)
	}
	for _, s := range q.Report(true).Shapes {
		if s.Source == sourceNetwork {
			t.Errorf("restored what was learned of another network: %+v", s)
		}
	}
	if n := len(q.Report(true).Shapes); n != 2 {
		t.Errorf("%d shapes, want the solo and the sum", n)
	}
}

func TestCalibrationRestoreRefuses(t *testing.T) {
	for name, damage := range map[string]func(s *CalibrationSnapshot){
		"source":        func(s *CalibrationSnapshot) { s.Sources[0].Source = "oracle" },
		"source twice":  func(s *CalibrationSnapshot) { s.Sources[1] = s.Sources[0] },
		"level":         func(s *CalibrationSnapshot) { s.Sources[0].Level = 0 },
		"level NaN":     func(s *CalibrationSnapshot) { s.Sources[0].Level = math.NaN() },
		"ratio":         func(s *CalibrationSnapshot) { s.Sources[0].Ratios[0] = math.Inf(1) },
		"negative":      func(s *CalibrationSnapshot) { s.Shapes[0].Ratios[0] = -1 },
		"too many":      func(s *CalibrationSnapshot) { s.Shapes[0].Ratios = make([]float64, windowRuns+1) },
		"shape source":  func(s *CalibrationSnapshot) { s.Shapes[0].Source = "" },
		"shape twice":   func(s *CalibrationSnapshot) { s.Shapes[1] = s.Shapes[0] },
		"no services":   func(s *CalibrationSnapshot) { s.Shapes[0].Services = nil },
		"out of order":  func(s *CalibrationSnapshot) { s.Shapes[1].Services = []models.ServiceID{1, 0} },
		"service":       func(s *CalibrationSnapshot) { s.Shapes[0].Services = []models.ServiceID{MaxServices} },
		"solo of two":   func(s *CalibrationSnapshot) { s.Shapes[0].Services = []models.ServiceID{0, 1} },
		"sum of one":    func(s *CalibrationSnapshot) { s.Shapes[1].Services = []models.ServiceID{0} },
		"absurd shapes": func(s *CalibrationSnapshot) { s.Shapes = make([]windowSnapshot, maxShapes+1) },
	} {
		p := newSerial(t, 2)
		for range 50 {
			teach(t, p, 1, ms, span(0, 0, 10, 1, 0))
			teach(t, p, 1, ms, span(0, 0, 10, 1, 0), span(1, 0, 10, 1, 64))
		}
		kept := p.Snapshot()
		damage(&kept)
		if err := p.Restore(kept); !errors.Is(err, errSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
		if n := p.Report(true).Shapes[0].Runs; n != 50 {
			t.Errorf("%s: %d runs are left", name, n)
		}
	}
}

// BenchmarkPredictorPredict is what the scheduler pays for candidates, all
// checks, isolated latencies and margins included.
func BenchmarkPredictorPredict(b *testing.B) {
	for _, width := range []int{32, 64} {
		b.Run(fmt.Sprintf("3x%d/candidates=16", width), func(b *testing.B) {
			p := newSerial(b, 7)
			use(b, p, testFile(7, width, width, width), 0, 1, 2, 3, 4, 5, 6)
			groups, estimates := manyGroups(16), make([]models.Estimate, 16)
			b.ReportAllocs()
			for b.Loop() {
				p.Predict(groups, estimates)
			}
		})
	}
}

// TestExactStaysExact: on a device that takes the time that was predicted, whatever the
// batch, predictions keep no distance, and batch sizes that were never measured leave
// the table as it is.
func TestExactStaysExact(t *testing.T) {
	const operators, alpha, beta = 7, 54_000, 10_546_000
	solo, err := NewSolo(operators)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 4096} {
		nanos := slices.Repeat([]int64{(alpha*int64(size) + beta) / operators}, operators)
		nanos[0] += (alpha*int64(size) + beta) % operators
		if err := solo.SetOperators(0, size, 0, nanos); err != nil {
			t.Fatal(err)
		}
	}
	p, estimates := New(solo), make([]models.Estimate, 1)
	for size := 1; size <= 4096; size++ {
		g := models.Group{Spans: []models.Span{{End: operators, Size: size}}}
		took := time.Duration(alpha*size + beta)
		if p.Predict([]models.Group{g}, estimates); estimates[0].Latency != took || estimates[0].Bound != took {
			t.Fatalf("a batch of %d takes %v, predicted %+v", size, took, estimates[0])
		}
		if err := p.Observe(time.Duration(size)*time.Second, g, took); err != nil {
			t.Fatal(err)
		}
	}
}

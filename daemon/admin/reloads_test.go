package admin

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/daemon/config"
)

func TestReloadsAreOneAtATime(t *testing.T) {
	g := newGate()
	f := newFakeDaemon(g.reload)
	defer f.Wait()
	defer f.end()
	first, err := f.Begin()
	if err != nil {
		t.Fatal(err)
	}
	await(t, g.begun, "the first")
	if _, err := f.Begin(); !errors.Is(err, ErrBusy) {
		t.Errorf("a second one: %v", err)
	}
	next := make(chan *running, 1)
	go func() {
		r, err := f.Next()
		if err != nil {
			t.Error(err)
		}
		next <- r
	}()
	select {
	case <-g.begun:
		t.Fatal("two at a time")
	case <-next:
		t.Fatal("the next one did not wait")
	default:
	}
	g.open <- struct{}{}
	await(t, first.Done(), "the end of the first")
	second := await(t, next, "the next")
	await(t, g.begun, "the second")
	if f.Last() != second {
		t.Error("the last one is not the last")
	}
	f.end()
	await(t, second.Done(), "the end with the daemon")
	if r, _ := second.Report(); r.Error != ErrStopping {
		t.Errorf("a reload that the end of the daemon met: %v", r.Error)
	}
	if _, err := f.Next(); !errors.Is(err, ErrStopping) {
		t.Errorf("a reload after the end: %v", err)
	}
}

// An occasional reader sees the latest step of each service, and the memory for steps is
// limited.
func TestStepsOfAReload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newReload()
		latest, seen := map[string]int64{}, map[string]int64{}
		look := func() {
			now, _ := r.Report()
			for _, s := range now.Steps {
				if s.Done < seen[s.Service] {
					t.Fatalf("%s goes back from %d to %d", s.Service, seen[s.Service], s.Done)
				}
				seen[s.Service] = s.Done
			}
		}
		for n := range rapid.IntRange(1, 50).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "service")
			_, grown := r.Report()
			r.step(config.Step{Service: name, State: config.StepLoading, Done: int64(n + 1)})
			latest[name] = int64(n + 1)
			select {
			case <-grown:
			default:
				t.Fatal("nobody is told")
			}
			if rapid.Bool().Draw(t, "look") {
				look()
			}
		}
		look()
		for name, want := range latest {
			if seen[name] != want {
				t.Fatalf("%s: saw %d of %d", name, seen[name], want)
			}
		}
	})
	r := newReload()
	for i := range 100 {
		r.step(config.Step{Service: "a", Done: int64(i)})
	}
	if now, _ := r.Report(); len(now.Steps) != 1 {
		t.Errorf("%d steps of one service are kept", len(now.Steps))
	}
}

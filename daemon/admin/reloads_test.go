package admin

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/daemon"
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
	next := make(chan *Reload, 1)
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
	if _, err := second.Result(); !errors.Is(err, ErrStopping) {
		t.Errorf("a reload that the end of the daemon met: %v", err)
	}
	if _, err := f.Next(); !errors.Is(err, ErrStopping) {
		t.Errorf("a reload after the end: %v", err)
	}
}

func TestReloadTellsWrongConfigurations(t *testing.T) {
	f := newFakeDaemon(func(context.Context, func(daemon.ReloadStep)) (*daemon.Reloaded, error) {
		return nil, fmt.Errorf("reading: %w", config.Faults{{Key: "ways", Message: "must be less"}})
	})
	defer f.end()
	r, err := f.Begin()
	if err != nil {
		t.Fatal(err)
	}
	await(t, r.Done(), "the end")
	if _, err := r.Result(); told(err).Kind != KindConfig || told(err).Message != "ways: must be less" {
		t.Errorf("got %v", err)
	}
}

// Whoever looks now and then sees the latest of each service, in the order in
// which it came, and the memory of it is bounded.
func TestStepsOfAReload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newReload(fixedTime)
		latest, seen, version := map[string]int64{}, map[string]int64{}, 0
		look := func() {
			var steps []daemon.ReloadStep
			steps, version, _ = r.since(version)
			for _, s := range steps {
				if s.Done <= seen[s.Service] {
					t.Fatalf("%s goes back from %d to %d", s.Service, seen[s.Service], s.Done)
				}
				seen[s.Service] = s.Done
			}
		}
		for n := range rapid.IntRange(1, 50).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "service")
			_, _, grown := r.since(version)
			r.step(daemon.ReloadStep{Service: name, State: daemon.StepLoading, Done: int64(n + 1)})
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
	r := newReload(fixedTime)
	for i := range 2 * maxSteps {
		r.step(daemon.ReloadStep{Service: fmt.Sprint(i)})
	}
	if steps, _, _ := r.since(0); len(steps) != maxSteps {
		t.Errorf("%d steps are kept", len(steps))
	}
}

package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// A reload that is cut short at the moment at which a service has joined says so:
// the service serves, and the configuration that holds has it. Which of the two
// is seen first is chance, so it is tried a few times.
func TestReloadIsCutShortTooLate(t *testing.T) {
	r := newReloadRig(t, 1)
	next := r.Daemon.Config()
	next.Services = append(slices.Clone(next.Services), added("new"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	j := &joining{news: make(chan ReloadStep, newsLimit), ready: make(chan error, 1)}
	s, err := r.join(next.service("new"), j)
	if err != nil {
		t.Fatal(err)
	}
	r.workers.revive(r.joins(), fakeOperators)
	r.until("it serves", func(l *loop) bool { return l.serving("new") != nil })
	for range 32 {
		run := &reload{Daemon: r.Daemon, ctx: ctx, next: next, progress: func(ReloadStep) {}, done: Reloaded{Failed: map[string]string{}}}
		if err := run.await("new", r.unit, s, j); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if c := r.Daemon.Config(); len(run.done.Failed) > 0 || !c.has("new") {
			t.Fatalf("it serves, and is told to have failed: %+v", run.done.Failed)
		}
		select {
		case j.ready <- nil:
		default:
		}
	}
	if err := r.calls("new"); err != nil {
		t.Error(err)
	}
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
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
	run := func(ctx context.Context) *reload {
		return &reload{backend: r.backend, devices: r.devices, config: &r.Daemon.config, ctx: ctx, next: next, progress: func(config.Step) {},
			done: config.Reloaded{Failed: map[string]string{}}}
	}
	j, err := run(t.Context()).join(next.Service("new"), false)
	if err != nil {
		t.Fatal(err)
	}
	id := r.joins()
	r.workers.Revive(id, fakeworkers.Operators)
	r.until("it serves", func() bool { return r.backend.Service([]byte("new")) != nil })
	for range 32 {
		late := run(ctx)
		fault, err := late.await(j)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		late.ended("new", fault)
		if c := r.Daemon.Config(); len(late.done.Failed) > 0 || c.Service("new") == nil {
			t.Fatalf("it serves, and is told to have failed: %+v", late.done.Failed)
		}
		select {
		case j.Ready <- nil:
		default:
		}
	}
	r.answers("new")
}

// What a joining worker is lost by that is not its own fault does not count
// against it.
func TestReloadOutlivesTheLossesOfOthers(t *testing.T) {
	r := newReloadRig(t, 1)
	r.begin(func(c *config.Config) { c.Services = append(c.Services, added("new")) })
	id := models.ServiceID(r.joins())
	full := fmt.Errorf("%w: %w", executor.ErrLoad, wire.ErrDeviceMemory) // a neighbour may just go
	for range 3 {
		r.workers.Tell(executor.Event{Kind: executor.WorkerLost, Service: id, Err: executor.ErrHeld})
	}
	r.workers.Tell(executor.Event{Kind: executor.WorkerLost, Service: id, Err: full})
	r.sync()
	r.workers.Revive(int(id), fakeworkers.Operators)
	if done := r.end(); len(done.Failed) > 0 {
		t.Errorf("%+v", done)
	}
}

// A service of which somebody still reads an input leaves nothing else: its share of a
// GPU's memory is free, and groups of the others are measured again.
func TestWhatALeakLeaves(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	rr := &reloadRig{rig: r, result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	r.workers.Await() // a group is measured
	leaks, free := added("leaks"), make(chan struct{})
	place, err := r.devices[0].worker(0, &leaks)
	if err != nil {
		t.Fatal(err)
	}
	place.GiveBack = func() { close(free) }
	j, err := r.backend.Admit(&leaks, []loop.Place{place}, false)
	if err != nil || rr.joins() != 2 {
		t.Fatal(err)
	}
	r.workers.Revive(2, fakeworkers.Operators)
	if err := <-j.Ready; err != nil {
		t.Fatal(err)
	}
	r.Daemon.config.update(func(c *config.Config) { c.Services = append(c.Services, leaks) })
	arena := r.workers.Arena(2)
	offset, _, err := arena.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	rr.reload(func(c *config.Config) { c.Services = c.Services[:2] })
	eventually(t, "groups of the others are measured", func() bool { return r.predictor().Measuring != nil })
	select {
	case <-free:
	default:
		t.Error("the memory of the GPU is not given back")
	}
	if err := arena.Free(offset); err != nil {
		t.Error(err)
	}
}

// A daemon that stops reads no further model files to see whether they changed:
// they may be large, and closing waits for the reload.
func TestNoFilesAreReadWhenStopping(t *testing.T) {
	r := newReloadRig(t, 1)
	path := filepath.Join(t.TempDir(), "other.onnx")
	r.Daemon.config.update(func(c *config.Config) {
		c.Services = slices.Clone(c.Services)
		c.Services[0].Model = path // which is not there: that counts as another model
	})
	c := r.Config()
	reads := func(ctx context.Context) (replaced []string, err error) {
		run := &reload{backend: r.backend, devices: r.devices, ctx: ctx}
		err = run.compare(c, c)
		return run.done.Replaced, err
	}
	if replaced, err := reads(t.Context()); err != nil || len(replaced) == 0 {
		t.Error("a file that is not there is taken for the one that was loaded")
	}
	stopping, stop := context.WithCancel(t.Context())
	stop()
	if replaced, err := reads(stopping); err == nil || len(replaced) > 0 {
		t.Error("a file is read while the daemon stops")
	}
}

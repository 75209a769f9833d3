package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

// measure runs Measure and returns its last report.
func (r *rig) measure(ctx context.Context, limit time.Duration, report func(loop.Report)) loop.Report {
	r.t.Helper()
	r.stopped = true
	last, err := r.Measure(ctx, limit, report)
	if err != nil {
		r.t.Errorf("measuring: %v", err)
	}
	r.workers.Check()
	return last
}

func ignore(loop.Report) {}

// Measure measures even where there is a predictor, and what is wanted of it
// only.
func TestMeasure(t *testing.T) {
	dir := put(t, fakeworkers.Predictor(2))
	r := newRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, dir: dir, change: func(c *config.Config) { c.Profile.OnStart = false }})
	reports := 0
	last := r.measure(context.Background(), 0, func(loop.Report) { reports++ })
	if !last.Over || last.Ready != 2 || last.Services != 2 || last.Progress.Done != 20 || last.Progress.Total != 20 || reports == 0 {
		t.Errorf("%+v after %d reports", last, reports)
	}
	if d, _ := stored(t, dir); len(d.Rows) != 4+12 {
		t.Errorf("%d rows", len(d.Rows))
	}
}

// A measurement that hangs holds up the end for as long as answers may.
func TestMeasureIsInterruptedWhileAWorkerHangs(t *testing.T) {
	r := newRig(t, rigOptions{services: 2, change: func(c *config.Config) { c.DrainTimeout = 50 * time.Millisecond }})
	r.workers.Be(fakeworkers.Deaf, true)
	ctx, cancel := context.WithCancel(context.Background())
	last := r.measure(ctx, 0, func(m loop.Report) {
		if m.Progress.Total > 0 {
			cancel()
		}
	})
	if last.Over {
		t.Errorf("%+v", last)
	}
}

func TestMeasureWithinATime(t *testing.T) {
	r := newRig(t, rigOptions{services: 2, device: &fakeworkers.Calm})
	last := r.measure(context.Background(), time.Nanosecond, ignore)
	says(t, last.Reason, "1ns, has passed")
	if !last.Over || last.Progress.Done == last.Progress.Total {
		t.Errorf("%+v", last)
	}
}

// What does not load is reported, and does not hold the rest up.
func TestMeasureWithoutAService(t *testing.T) {
	r := newRig(t, rigOptions{services: 3, device: &fakeworkers.Calm, prepare: func(f *fakeworkers.Workers) { f.Lose(1) }})
	last := r.measure(context.Background(), 0, ignore)
	if !last.Over || last.Ready != 2 || len(last.GivenUp) != 1 || last.GivenUp[0] != "s1" || last.Progress.Done != 20 {
		t.Errorf("%+v", last)
	}
	r = newRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, prepare: func(f *fakeworkers.Workers) { f.Lose(1) }})
	last = r.measure(context.Background(), 0, ignore)
	says(t, last.Reason, "two services")
	r = newRig(t, rigOptions{services: 1, prepare: func(f *fakeworkers.Workers) { f.Lose(0) }})
	last = r.measure(context.Background(), 0, ignore)
	says(t, last.Reason, "two services")
}

// Of a pool each kind of device is measured, with the services on it.
func TestMeasurePool(t *testing.T) {
	alone := func(services int) int {
		return newRig(t, rigOptions{services: services, device: &fakeworkers.Calm}).measure(context.Background(), 0, ignore).Progress.Total
	}
	want := alone(2) + alone(3)
	r := newRig(t, rigOptions{services: 3, devices: 2, device: &fakeworkers.Calm, change: func(c *config.Config) {
		c.Devices[1].Cores = "1-2"
		c.Services[2].On = []string{"d1"}
	}})
	last := r.measure(context.Background(), 0, ignore)
	if !last.Over || last.Ready != 3 || len(last.Devices) != 2 || last.Progress.Total != want || last.Progress.Done != want {
		t.Errorf("%+v, want %d measurements", last, want)
	}
	says(t, last.Reason, "d0: ")
	says(t, last.Reason, "d1: ")
}

// A device with one service is no reason not to measure the others.
func TestMeasurePoolWithTooFewServices(t *testing.T) {
	r := newRig(t, rigOptions{services: 2, devices: 2, device: &fakeworkers.Calm, change: func(c *config.Config) {
		c.Devices[1].Cores = "1-2"
		c.Services[1].On = []string{"d0"}
	}})
	last := r.measure(context.Background(), 0, ignore)
	says(t, last.Reason, "two services")
	if !last.Over || len(last.Devices) != 1 || last.Progress.Done != last.Progress.Total {
		t.Errorf("%+v", last)
	}
}

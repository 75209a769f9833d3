package daemon

import (
	"context"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/segments/wire"
)

// backend is a loop of one device, with as much of a daemon as asks for its status.
type backend struct {
	*loop.Backend
	daemon *Daemon
}

// newBackend returns a loop that does not run yet.
func newBackend(t testing.TB, c config.Config, w loop.Workers, log *journal.Writer) *backend {
	t.Helper()
	d := &Daemon{config: effective{config: c}, log: zerolog.Nop(), devices: pool{{}}}
	o := loop.Options{
		Log: d.log, Learning: learningOptions(&c), Journal: log,
		Goroutines: new(sync.WaitGroup), Life: context.Background(),
	}
	o.Devices = []loop.Device{{Workers: func(inputs, _ []*wire.InputArena, outcomes chan executor.Outcome, events func(executor.Event)) (loop.Workers, error) {
		if f, ok := w.(interface {
			Delivers([]*wire.InputArena, chan executor.Outcome, func(executor.Event))
		}); ok {
			f.Delivers(inputs, outcomes, events)
		}
		return w, nil
	}}}
	for range c.Services {
		o.Places = append(o.Places, []loop.Place{{GiveBack: func() {}}})
	}
	if c.Metrics {
		d.recorder = metrics.NewRecorder(c.Names())
		o.Listeners = append(o.Listeners, d.recorder)
	}
	var err error
	if d.backend, err = loop.New(c, o); err != nil {
		t.Fatal(err)
	}
	return &backend{d.backend, d}
}

// These helpers submit calls to services that run on fake workers, and check the answers.
var (
	submit, mustSubmit  = fakeworkers.Submit, fakeworkers.MustSubmit
	answerOf, wantError = fakeworkers.AnswerOf, fakeworkers.WantError
	isServed            = fakeworkers.Served
)

// startLoop starts a backend with so many services and fake workers, all of
// them ready. It ends with the test.
func startLoop(t *testing.T, services int, change func(*config.Config)) (*backend, *fakeworkers.Workers) {
	t.Helper()
	c := fakeworkers.Config(services, change)
	f := fakeworkers.New(t, 0, services)
	b := newBackend(t, c, f, nil)
	b.Begin()
	for i := range services {
		f.Revive(i, fakeworkers.Operators)
	}
	b.Ask(func() {})
	t.Cleanup(func() {
		b.Close()
		f.Check()
	})
	return b, f
}

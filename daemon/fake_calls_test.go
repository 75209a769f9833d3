package daemon

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
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
	d := &Daemon{config: c, pool: pool{config: c, log: zerolog.Nop(), devices: []*poolDevice{{}}}}
	o := loop.Options{
		Log: d.log, Learning: learningOptions(&c), Journal: log,
		Goroutines: new(sync.WaitGroup), Life: context.Background(),
	}
	o.Devices = []loop.Device{{Workers: func(inputs, _ []*wire.InputArena, outcomes chan executor.Outcome, events func(executor.Event)) (loop.Workers, error) {
		if f, ok := w.(interface {
			delivers([]*wire.InputArena, chan executor.Outcome, func(executor.Event))
		}); ok {
			f.delivers(inputs, outcomes, events)
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

// submit hands a call to the backend, or frees its memory if it is refused.
func submit(t *testing.T, b query.Host, service int, timeout time.Duration) (*query.Call, error) {
	t.Helper()
	c := query.NewCall(b.Services()[service])
	c.Size, c.Arrival, c.Timeout = 1, time.Now(), timeout
	if !c.Service.Hold() {
		return nil, query.ErrUnavailable
	}
	m, err := c.Service.Backend.Alloc(c.Service, 64)
	if err != nil {
		c.Service.LetGo()
		return nil, err
	}
	c.Memory = m
	c.Inputs = []models.Tensor{{Type: models.Int32, Shape: []int64{1, 16}, Data: m.Bytes, Offset: m.Offset, Bytes: int64(len(m.Bytes))}}
	if err := c.Service.Backend.Submit(c); err != nil {
		c.Service.Backend.Free(c.Service, m)
		c.Service.LetGo()
		return nil, err
	}
	return c, nil
}

// mustSubmit hands in a call that is not refused.
func mustSubmit(t *testing.T, b query.Host, service int) *query.Call {
	t.Helper()
	c, err := submit(t, b, service, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answerOf waits for the one answer of a call, checks whose it is and takes
// the call's memory back.
func answerOf(t *testing.T, b query.Host, c *query.Call) *query.Error {
	t.Helper()
	select {
	case <-c.Answered():
	case <-time.After(10 * time.Second):
		t.Fatal("a call is not answered")
	}
	err := c.Reply.Err
	if want := fmt.Sprint(c.QueryID); err == nil && (len(c.Reply.Outputs) != 1 || string(c.Reply.Outputs[0].Data) != want) {
		t.Errorf("call %s got the outputs %v", want, c.Reply.Outputs)
	}
	c.Service.Backend.Release(c)
	c.Service.LetGo()
	return err
}

// isServed fails the test unless calls are answered, each with its outputs.
func isServed(t *testing.T, b query.Host, calls ...*query.Call) {
	t.Helper()
	for _, c := range calls {
		if err := answerOf(t, b, c); err != nil {
			t.Error(err)
		}
	}
}

// wantError fails unless a call was answered with that reason.
func wantError(t *testing.T, err *query.Error, status int, reason string) {
	t.Helper()
	if err == nil || err.Status != status || err.Reason != reason {
		t.Errorf("got %+v, want status %d, reason %s", err, status, reason)
	}
}

package daemon

import (
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
)

// settable lets rounds be ended without the spans that still run.
func (f *fakeWorkers) settable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.eternal = true
}

// awaitApart returns when so many spans are set apart.
func (f *fakeWorkers) awaitApart(n int) {
	f.t.Helper()
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		apart := len(f.mu.apart)
		f.mu.Unlock()
		if apart == n {
			return
		}
	}
	f.t.Fatalf("there are not %d overruns", n)
}

// abandoned reports whether a batch was.
func (f *fakeWorkers) abandoned(b models.BatchID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.mu.ended, b)
}

// A span that does not end keeps no other service waiting. Its query is answered
// at its deadline, and the memory of the query stays until the worker is done
// with it.
func TestOverrunLeavesTheDeviceToOthers(t *testing.T) {
	b, f := startLoop(t, 2, func(c *config.Config) { c.Services[0].Target = 2 * time.Second })
	f.settable()
	slow := mustSubmit(t, b, 0)
	f.awaitApart(1)
	batch := f.sent()[0][0].Batch
	for range 3 {
		quick := mustSubmit(t, b, 1)
		for f.await().Service != 1 {
			time.Sleep(time.Millisecond)
		}
		f.end(models.SpanDone)
		isServed(t, b, quick)
	}
	wantError(t, answerOf(t, b, slow), 503, "deadline_passed")
	b.Ask(func() {})
	if f.Arena(0).Used() == 0 || !f.abandoned(batch) {
		t.Errorf("memory in use: %d bytes; its batch was abandoned: %v", f.Arena(0).Used(), f.abandoned(batch))
	}
	f.endApart(models.SpanStopped)
	b.Ask(func() {})
	again := mustSubmit(t, b, 0)
	f.await()
	f.end(models.SpanDone)
	isServed(t, b, again)
}

// A span that was set apart and ends before the deadline of its query is answered
// with its outputs.
func TestOverrunInTime(t *testing.T) {
	b, f := startLoop(t, 2, func(c *config.Config) { c.Services[1].Target = 2 * time.Second })
	f.settable()
	slow := mustSubmit(t, b, 0)
	f.awaitApart(1)
	f.endApart(models.SpanDone)
	isServed(t, b, slow)
}

// Who is set apart with a worker that dies is run again.
func TestOverrunIsLost(t *testing.T) {
	b, f := startLoop(t, 2, func(c *config.Config) { c.Services[1].Target = 2 * time.Second })
	f.settable()
	slow := mustSubmit(t, b, 0)
	f.awaitApart(1)
	f.endApart(models.SpanLost)
	f.kill(0)
	f.revive(0, fakeOperators)
	f.await()
	f.end(models.SpanDone)
	isServed(t, b, slow)
}

// A client that leaves while its span does not end is answered at once.
func TestOverrunIsCancelled(t *testing.T) {
	b, f := startLoop(t, 2, func(c *config.Config) { c.Services[1].Target = 2 * time.Second })
	f.settable()
	slow := mustSubmit(t, b, 0)
	f.awaitApart(1)
	batch := f.sent()[0][0].Batch
	slow.Service.Backend.Cancel(slow)
	if err := answerOf(t, b, slow); err == nil || !f.abandoned(batch) {
		t.Errorf("%v; its batch was abandoned: %v", err, f.abandoned(batch))
	}
	f.endApart(models.SpanStopped)
	b.Ask(func() {})
}

// A measurement that does not end when a query comes does not keep it waiting.
func TestMeasurementIsSetApart(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	b := &backend{Backend: r.backend}
	r.workers.deafen()
	r.workers.settable()
	_, spans := r.workers.awaitRound()
	busy := spans[0].Service
	c := mustSubmit(t, b, int(1-busy))
	r.workers.awaitApart(len(spans))
	if len(spans) == 1 {
		for r.workers.await().Service == busy {
			time.Sleep(time.Millisecond)
		}
		r.workers.end(models.SpanDone)
		isServed(t, b, c)
	}
	for range spans {
		r.workers.endApart(models.SpanStopped)
	}
	r.sync()
	c = mustSubmit(t, b, int(busy))
	for r.workers.await().Service != busy {
		time.Sleep(time.Millisecond)
	}
	r.workers.end(models.SpanDone)
	isServed(t, b, c)
}

// A service goes when no worker runs any more what was measured of it.
func TestMeasuredOverrunKeepsItsService(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	rr := &reloadRig{rig: r, result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	r.workers.settable()
	r.workers.deafen()
	_, spans := r.workers.awaitRound()
	id := spans[0].Service
	call := mustSubmit(t, r.backend, 1-int(id)) // for which the round has no time
	r.workers.awaitApart(len(spans))
	name := r.config.Services[id].Name
	rr.begin(func(c *config.Config) {
		c.Services = slices.DeleteFunc(c.Services, func(s config.Service) bool { return s.Name == name })
	})
	rr.until("it takes no requests", func() bool { return r.backend.Service([]byte(name)) == nil })
	r.sync()
	if r.workers.Arena(id) == nil {
		t.Error("it is removed while its worker reads inputs that were measured with")
	}
	for range spans {
		r.workers.endApart(models.SpanStopped)
	}
	r.workers.await()
	r.workers.end(models.SpanDone)
	isServed(t, r.backend, call)
	rr.end()
	rr.until("it is gone", func() bool { return r.workers.Arena(id) == nil })
}

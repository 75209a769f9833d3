package executor

import (
	"fmt"
	"sync"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments"
)

// Grant lets the worker of a service that loads do its next step. It does
// nothing for a worker that does not ask: it may have been lost meanwhile. It
// does not wait, and may be called while an event is told.
func (e *Executor) Grant(id models.ServiceID) error {
	s := e.service(id)
	if s == nil {
		return fmt.Errorf("%w: %d", ErrUnknownService, id)
	}
	s.mu.Lock()
	w := s.mu.living
	s.mu.Unlock()
	if w != nil {
		w.grant()
	}
	return nil
}

func (w *worker) grant() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.asks || w.mu.cause != nil {
		return
	}
	w.mu.asks = false
	w.clock.goOn()
	_ = w.sendLocked(&segments.Grant{}) // never too large to send
}

// asks takes in that the worker waits for leave.
func (w *worker) asks(payload []byte) error {
	var ask segments.Ask
	if err := ask.Decode(payload); err != nil {
		return protocol(err)
	}
	if !w.service.executor.opts.Gated {
		return fmt.Errorf("%w: it asks for leave that it need not have", ErrProtocol)
	}
	if !w.asked.allow(time.Now()) {
		return fmt.Errorf("%w: it asks for leave again and again without working", ErrProtocol)
	}
	w.mu.Lock()
	twice := w.mu.asks
	w.mu.asks = true
	w.clock.pause()
	w.mu.Unlock()
	if twice {
		return fmt.Errorf("%w: it asks for leave while it waits for it", ErrProtocol)
	}
	w.service.emit(WorkerAsks{w.service.spec.ID, w.process.pid(), ask.Phase, ask.Done, ask.Total})
	return nil
}

// loadClock ends a load that takes too long. Time in which the worker waits for
// leave is not its own: it counts for the limit of the whole only.
type loadClock struct {
	mu struct {
		sync.Mutex
		left   time.Duration // of the worker's own time
		work   *time.Timer   // rings when that is used up
		whole  *time.Timer
		since  time.Time // when it began to work, or to wait
		waits  bool
		waited time.Duration
	}
}

func (c *loadClock) start(o *Options, lose func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := func(d time.Duration, what string) *time.Timer {
		return time.AfterFunc(d, func() { lose(fmt.Errorf("%w: over %v%s", ErrLoadTimeout, d, what)) })
	}
	c.mu.left, c.mu.since = o.LoadTimeout, time.Now()
	c.mu.work = late(o.LoadTimeout, "")
	c.mu.whole = late(o.LoadLimit, ", most of it waiting for leave")
}

// pause stops the worker's time.
func (c *loadClock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.mu.work.Stop() {
		c.mu.left -= now.Sub(c.mu.since)
		c.mu.since, c.mu.waits = now, true
	}
}

// goOn lets it run again.
func (c *loadClock) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.waits {
		now := time.Now()
		c.mu.waited += now.Sub(c.mu.since)
		c.mu.since, c.mu.waits = now, false
		c.mu.work.Reset(max(c.mu.left, 0))
	}
}

// stop ends the clock.
func (c *loadClock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.work.Stop()
	c.mu.whole.Stop()
	c.mu.waits = false
}

// waited returns how long the worker waited for leave.
func (c *loadClock) waited() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.waited
}

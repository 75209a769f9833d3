package daemon

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// Loading a model is work on the device and its cores like a round: what loads
// takes from what serves. A worker that loads asks before each step, and the
// loop lets one work at a time, when nothing waits to be served. On a device that
// always has something to do it waits for a while instead, so that its model is
// there in bounded time.
const (
	// patienceLimit is how long a worker waits at most where others are served.
	// A model has some hundred steps, so it is there within a minute or two,
	// whatever the load; a step of which nothing is known waits as long.
	patienceLimit = 500 * time.Millisecond

	// patienceLeast is how long it waits at least: some rounds of a device that
	// has gaps, in which the step costs nobody anything.
	patienceLeast = 20 * time.Millisecond

	// patienceShare is how many times longer than its last step it waits, so
	// that a device which is never idle gives a tenth of its time to loading.
	// From about 55 ms on patienceLimit gives it more.
	patienceShare = 9
)

// loading decides who may load. Time is an argument.
type loading struct {
	asks  []loadStep // that wait for leave, the oldest first
	works []loadStep // that have it
}

// loadStep is a step of loading that a worker asked for.
type loadStep struct {
	service  models.ServiceID
	phase    string
	since    time.Duration // when it was asked for, then when it began
	patience time.Duration

	began       time.Duration // when the worker asked for the first time
	waited      time.Duration // for leave to do the steps before this one, and for this one once it has begun
	done, total int64         // steps, total is 0 if it is not known
}

// ask takes in that a worker waits to do a step. The one before it is over.
func (g *loading) ask(now time.Duration, id models.ServiceID, phase string) {
	next := loadStep{service: id, phase: phase, since: now, patience: patienceLimit, began: now}
	if i := indexOfStep(g.works, id); i >= 0 {
		last := &g.works[i]
		next.began, next.waited = last.began, last.waited
		if last.phase == phase {
			next.patience = min(max(patienceShare*(now-last.since), patienceLeast), patienceLimit)
		}
	}
	g.end(id)
	g.asks = append(g.asks, next)
}

// count takes in how far a worker that asks has come.
func (g *loading) count(id models.ServiceID, done, total int64) {
	if i := indexOfStep(g.asks, id); i >= 0 {
		g.asks[i].done, g.asks[i].total = done, total
	}
}

// end forgets a worker that is loaded, or lost.
func (g *loading) end(id models.ServiceID) {
	mine := func(s loadStep) bool { return s.service == id }
	g.asks, g.works = slices.DeleteFunc(g.asks, mine), slices.DeleteFunc(g.works, mine)
}

// deviceUse says what a step of loading would disturb.
type deviceUse int

const (
	useServes   deviceUse = iota // a query runs or waits
	useIdle                      // none does, but one may come
	useNone                      // nobody is served
	useMeasures                  // a group is being measured, which a step would spoil
)

// grant returns the worker that may do a step now, whose step then runs.
func (g *loading) grant(now time.Duration, use deviceUse) (loadStep, bool) {
	if len(g.asks) == 0 || use == useMeasures || len(g.works) > 0 && use != useNone {
		return loadStep{}, false
	}
	if use == useServes && !g.impatient(now) {
		return loadStep{}, false
	}
	granted := g.asks[0]
	g.asks = slices.Delete(g.asks, 0, 1)
	began := granted
	began.since, began.waited = now, granted.waited+now-granted.since
	g.works = append(g.works, began)
	return granted, true
}

// wake returns when the patience of the oldest ends.
func (g *loading) wake() (time.Duration, bool) {
	if len(g.asks) == 0 || len(g.works) > 0 {
		return 0, false
	}
	return g.asks[0].since + g.asks[0].patience, true
}

// impatient reports whether the oldest has waited for long enough.
func (g *loading) impatient(now time.Duration) bool {
	at, ok := g.wake()
	return ok && now >= at
}

// active reports whether a worker loads or wants to.
func (g *loading) active() bool { return len(g.asks)+len(g.works) > 0 }

func indexOfStep(list []loadStep, id models.ServiceID) int {
	return slices.IndexFunc(list, func(s loadStep) bool { return s.service == id })
}

// loadEvent takes in what concerns loading of what happened to a worker.
func (l *loop) loadEvent(e executor.Event) {
	switch e := e.(type) {
	case executor.WorkerAsks:
		l.loading.ask(l.now(), e.Service, e.Phase)
		l.loading.count(e.Service, e.Done, e.Total)
	case executor.WorkerReady:
		l.loading.end(e.Service)
	case executor.WorkerLost:
		l.loading.end(e.Service)
	case executor.WorkerStopped:
		l.loading.end(e.Service)
	}
}

// giveLeave lets those load who may.
func (l *loop) giveLeave(idle bool) {
	for l.loading.active() {
		now := l.now()
		step, ok := l.loading.grant(now, l.deviceUse(idle))
		if !ok {
			return
		}
		if waited := now - step.since; waited >= patienceLimit {
			l.log.Debug().Str("service", l.name(step.service)).Str("phase", step.phase).Dur("waited", waited).Msg("worker loads on beside what is served")
		}
		if err := l.exec.Grant(step.service); err != nil {
			l.loading.end(step.service)
			l.log.Debug().Err(err).Int("service", int(step.service)).Msg("a worker that asked for leave to load is gone")
		}
	}
}

// deviceUse returns what a step of loading would disturb. Before the first query
// that is nobody, and workers that start together load together.
func (l *loop) deviceUse(idle bool) deviceUse {
	serves := slices.ContainsFunc(l.slots, func(s *slot) bool { return s != nil && s.service.Ready() })
	switch {
	case !serves:
		return useNone
	case l.profiling.machine.active():
		return useMeasures
	case !idle:
		return useServes
	case l.arrived.IsZero():
		return useNone
	}
	return useIdle
}

// sooner returns the earlier of what the loop wakes up for and the end of
// loading's patience. A measurement is told to end then.
func (l *loop) sooner(next time.Duration, wake bool) (time.Duration, bool) {
	at, ok := l.loading.wake()
	switch {
	case !ok:
		return next, wake
	case l.profiling.machine.active() && l.loading.impatient(l.now()):
		l.profiling.machine.stop()
		return next, wake
	case !wake || at < next:
		return at, true
	}
	return next, true
}

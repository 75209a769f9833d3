package loop

import (
	"runtime"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// inboxBurst is how many messages are read before the next round is
// chosen: events are queued, decisions are made in rounds.
const inboxBurst = 256

// loop is the scheduler goroutine. It alone knows all the parts, which know only those below them:
// what they want done by those above, it finds in them after each event.
type loop struct {
	env      *env
	services *services
	workers  *workers
	policies *policies
	calls    *calls
	moves    *moves
	learners []*learner // of each kind of device

	timer    *time.Timer
	outcomes chan executor.Outcome // of all devices

	// overruns are the rounds of which the predictor learns once their detached spans have ended.
	overruns map[uint64]*predictor.Overrun

	// Memory that is used again for each round.
	why      overlap.Explanation
	requests []executor.SpanRequest
	ran      executor.Outcome
	outcome  models.Outcome
	group    models.Group
}

func newLoop(e *env, all *services) *loop {
	l := &loop{
		env: e, services: all, workers: &workers{env: e, services: all, loading: loading{}}, policies: &policies{env: e, services: all},
		calls: &calls{env: e, services: all, pending: map[models.QueryID]*pending{}, lent: map[models.BatchID][]lentMemory{}},
		timer: time.NewTimer(time.Hour), outcomes: make(chan executor.Outcome, len(e.devices)*executor.MaxOutcomes), overruns: map[uint64]*predictor.Overrun{},
	}
	l.moves = &moves{env: e, workers: l.workers, calls: l.calls, open: map[uint64]overlap.Move{}}
	for _, k := range e.kinds {
		of := e.options.Learning
		of.Emulated, of.Alone = k.devices[0].Emulated, k.devices[0].aloneFor()
		k.learning = learning.New(of, k.predictor, k.solo)
		l.learners = append(l.learners, &learner{
			env: e, workers: l.workers, services: all, kind: k, learning: k.learning,
			measurement: measurement{env: e, workers: l.workers}, listed: map[models.ServiceID]string{},
		})
	}
	return l
}

// run takes events in and gives rounds out until all executors are closed.
func (l *loop) run() {
	defer close(l.env.mail.done)
	defer l.calls.abandon()
	defer l.timer.Stop()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		var first message
		var ended executor.Outcome
		open := true
		select {
		case first = <-l.env.mail.inbox:
		case ended, open = <-l.outcomes:
		case <-l.timer.C:
		case <-beat.C:
			l.services.turnedAway()
			l.policies.heed()
		}
		if !open {
			return
		}
		l.env.emit(observe.Event{Kind: observe.Woke, At: l.env.now()})
		l.take(first)
		if ended.Round != 0 {
			l.ended(&ended)
		}
		runtime.Gosched() // who is about to hand in a call does, so that one decision has all of them
		for range inboxBurst {
			select {
			case m := <-l.env.mail.inbox:
				l.take(m)
				continue
			default:
			}
			break
		}
		l.decide()
		l.env.mail.board.Publish(l.status)
		l.rest()
	}
}

// take handles one message.
func (l *loop) take(m message) {
	switch {
	case m.call != nil:
		l.calls.arrive(m.call)
	case m.cancel != 0:
		l.calls.cancel(m.cancel)
	case m.ask != nil:
		m.ask()
		l.answer()
		l.follow()
	}
}

// ended handles the outcome of a round, of a detached span or of a move, each of which came from
// the workers of a device.
func (l *loop) ended(o *executor.Outcome) {
	d := l.env.devices[o.Device]
	learner := l.learners[d.kind.index]
	if o.Round >= measuringIDs && !o.Moved {
		learner.finished(d, o)
		l.answer()
		return
	}
	switch {
	case o.Moved:
		l.moves.land(o.Round, o.Spans[0].Status, o.Took, o.Spans[0].Err)
		l.answer()
	case o.Overrun:
		l.landed(d, o)
	default:
		l.finish(d, o)
	}
	l.workers.catchUp()
	l.follow()
	if !d.serves() && !o.Moved && learner.pending() {
		learner.measure() // between two rounds, if it has not been quiet for long
	}
}

// decide answers what is over, starts the next round of each device that is free, and sets the
// timer for what happens by the passing of time alone.
func (l *loop) decide() {
	l.workers.shrink()
	if l.services.leaving > 0 && !slices.ContainsFunc(l.learners, func(r *learner) bool { return r.measurement.reads() }) {
		l.services.reap() // nobody reads inputs that were measured with
	}
	l.follow()
	next := l.ready()
	l.env.door.Advance(l.env.now())
	idle, waits := l.env.scheduler.Idle(), next < overlap.Never
	sooner := func(at time.Duration, ok bool) {
		if ok {
			next = min(next, at)
		}
	}
	for _, r := range l.learners {
		sooner(r.turn(idle, waits))
	}
	for _, d := range l.env.devices {
		sooner(l.watch(d))
	}
	if next < overlap.Never {
		l.timer.Reset(max(next-l.env.now(), 0))
	}
}

// ready does what the scheduler has ready, until it has nothing more. It returns when to ask
// again though nothing happens. While the only device measures, all but answers wait for it.
func (l *loop) ready() (wake time.Duration) {
	for len(l.env.devices) > 1 || !l.env.devices[0].taken || l.env.scheduler.Ended() {
		now := l.env.now()
		r := l.env.door.Ready(now)
		l.end(&r)
		if r.Round != nil {
			l.dispatch(r.Round)
		}
		if r.Wake > now || r.Round == nil && !r.Ended() {
			return r.Wake
		}
	}
	return overlap.Never
}

// answer handles everything that the scheduler reports as ended. It makes no decision.
func (l *loop) answer() {
	for l.env.scheduler.Ended() {
		r := l.env.door.Ready(l.env.now())
		l.end(&r)
	}
}

// end frees what the queries that are over have held, stops what is preempted at the next operator,
// answers, and sends batches on their way to another device.
func (l *loop) end(r *overlap.Ready) {
	for _, b := range r.Released {
		l.env.devices[b.Device].exec.Release(b.Service, b.Batch)
	}
	for _, b := range r.Stops {
		l.env.devices[b.Device].exec.Stop(b.Service, b.Batch)
	}
	l.calls.end(r.Answers)
	l.moves.begin(r.Moves)
}

// follow has the learners do what has become due for them with what happened to services.
func (l *loop) follow() {
	stop, rebind := l.services.stop, l.services.rebind
	if !stop && !rebind {
		return
	}
	l.services.stop, l.services.rebind = false, false
	for _, r := range l.learners {
		if stop {
			r.stop()
		}
		if rebind {
			r.bind()
		}
	}
}

// rest shows that the loop is alive and has nothing more to do.
func (l *loop) rest() {
	now := l.env.now()
	l.env.mail.beat.Store(int64(now))
	l.env.breadth.look(now, l.env.mail.lastID.Load())
	l.env.emit(observe.Event{Kind: observe.Rested, At: now})
}

// status returns how the loop stands, and has the listeners copy what they have
// counted so far, so that both are of one moment.
func (l *loop) status(shapes bool) *status.Status {
	l.env.emit(observe.Event{Kind: observe.Published})
	return statusOf(l.services, l.workers.loading, shapes)
}

package overlap

import "time"

// view is what a decision sees of a service: the work that there will be
// when its group starts, in rank order. What is past its deadline by then is
// not seen, what the decision drops is passed. The service itself stays as it
// is.
type view struct {
	queue    walk[*query]
	at       time.Duration
	triage   uint64 // the last one, 0 for none
	first    *query // that a triage has not looked at
	looked   int    // so many of the queue that triage has looked at
	second   bool   // queue and paused show what is postponed, and nothing else
	late     int    // so many of the queue were passed as they will be past their deadline
	paused   *walk[*batch]
	replica  *replica // on the device of the decision
	runnable bool     // its worker there can run a span
	reserves bool     // what waits waits for a reservation
	others   int      // devices besides that, or units, on which what waits can run
	runs     bool     // a batch of the service is in the round that runs
	goesOn   bool     // it does not end with the round
	going    candidate
	open     int // further batches that may be paused
}

// maxLate is how many queries of a service a plan passes that will be past their
// deadline. With more it sees the queue as empty and is not made: to look at them again
// after every event would cost more than it saves.
const maxLate = 128

// query returns the most urgent waiting query of those that are not postponed,
// or of those that are.
func (o *view) query() (*query, bool) {
	for !o.reserves && o.late <= maxLate && (!o.second || o.queue.at < o.looked) {
		q, ok := o.queue.top()
		if !ok || q.Deadline > o.at && o.second == o.postpones(q.postponed) {
			return q, ok
		}
		if q.Deadline <= o.at {
			o.late++
		}
		o.queue.pass()
	}
	return nil, false
}

// advance sets first to the most urgent waiting query. It is false if there is none.
func (o *view) advance() (some bool) {
	o.first, some = o.query()
	return some
}

// anyQuery returns the most urgent waiting query. Those that are postponed come
// after all others.
func (o *view) anyQuery() (*query, bool) {
	q, ok := o.query()
	if !ok && !o.second {
		o.showPostponed()
		return o.query()
	}
	return q, ok
}

// showPostponed goes on to what is postponed.
func (o *view) showPostponed() {
	o.second = true
	o.queue.start()
	o.paused.start()
}

func (o *view) postpones(triage uint64) bool { return o.triage != 0 && triage == o.triage }

// started returns the most urgent batch that has started.
func (o *view) started() (c candidate, ok bool) {
	for {
		b, more := o.paused.top()
		if more && (b.Deadline <= o.at || o.second != o.postpones(b.postponed)) {
			o.paused.pass()
			continue
		}
		if more {
			c, ok = b.candidate(), true
		}
		if o.goesOn && o.second == o.postpones(o.going.batch.postponed) && (!ok || o.going.rank.before(&c.rank)) {
			return o.going, true
		}
		return c, ok
	}
}

// pass leaves out the head c of the view, to see what comes after it.
func (o *view) pass(c *candidate) {
	switch {
	case c.batch == nil:
		o.queue.pass()
	case o.goesOn && o.going.batch == c.batch:
		o.goesOn = false
		o.open++
	default:
		o.paused.pass()
		o.open++
	}
}

// look starts the view on the work at a time.
func (sv *service) look(v *device, at time.Duration) {
	o := &sv.view
	o.replica = &sv.replicas[v.index]
	o.paused = &o.replica.walk
	o.at, o.runnable, o.runs, o.goesOn = at, sv.runnable(v.index) && !v.exclusive(sv), false, false
	o.reserves = len(sv.Pipelines) > 0
	o.triage, o.looked, o.second, o.late = 0, 0, false, 0
	o.queue.start()
	o.paused.forget() // they are few
	o.paused.start()
	o.open = MaxPaused
	for _, b := range o.replica.paused.items {
		if b.Deadline > at {
			o.open--
		}
	}
}

// head returns the most urgent work of the service. It is false if there is
// none that can run.
func (sv *service) head() (candidate, bool) {
	if !sv.view.runnable {
		return candidate{}, false
	}
	o := &sv.view
	for {
		c, ok := o.started()
		if q, waits := o.query(); waits && o.open > 0 && (!ok || !o.second && q.Rank.before(&c.rank)) {
			return q.candidate(sv), true
		}
		if ok || o.second {
			c.postponed = o.second
			return c, ok
		}
		o.showPostponed()
	}
}

package reserve

import (
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
)

// action is what becomes of the most urgent query of a queue.
type action uint8

// The actions.
const (
	Wait  action = iota // until Queue.Wake
	Form                // form a batch
	Drop                // drop the query
	Doubt               // drop the query, unless it is to show that its estimate is too high
)

const (
	// leastWait is the shortest time for which a batch waits for more queries.
	leastWait = 10 * time.Microsecond

	// lookShare is the inverse share of its slack that a batch waits before its way is looked for, if
	// it is not full. If it is looked for immediately, two services with pipelines over the same
	// devices, one with half the target of the other, sustain 26 % less.
	lookShare = 2

	// fullShare is the smallest share of the planned size of a batch from which a query is not
	// dropped for making it smaller. With 1, the two services above sustain 8 % less under overlap.
	fullShare = 0.95
)

// Next decides what becomes of a queue that is not empty, and returns the size of the batch that is
// to be formed (algorithm 1). It sets when the queue is considered again.
func (t *Tables) Next(now time.Duration, q *Queue) (what action, size int) {
	fresh := q.Stale
	q.Stale, q.Until, q.Queued = false, never, math.MaxInt
	idle, waits := !t.reactive && t.idles(q), q.Due < never && !q.Draining && !q.Suspect
	if wait := (q.Due - now - q.Lead) / lookShare; !idle && fresh && q.Lead > 0 && waits && wait >= leastWait {
		if missing := q.smallest() - q.Size; missing > 0 { // there is time to look closer later
			q.Until, q.Queued = now+wait, q.Waiting+missing
			return Wait, 0
		}
	}
	p, found := t.choose(now, q)
	if !found {
		return Wait, 0 // until a device comes
	}
	most := q.most(p)
	if t.best.ends > q.Due {
		if most = t.shrink(now, q, p, most); most == 0 {
			return Doubt, q.Head.Size
		}
		if t.spoils(now, q, p, most) {
			return Drop, 0
		}
	}
	if more := q.Size + 1; more <= most && waits {
		t.try(now, &t.trial, q, p, more)
		ends := t.trial.ends
		t.try(now, &t.trial, q, p, q.Size) // which may take longer
		wait := q.Due - max(ends, t.trial.ends) - t.others(q)
		if idle { // until the rest of the way is free
			wait = min(wait, t.trial.waits)
		}
		if wait >= leastWait {
			q.Until, q.Queued = now+wait, q.Waiting+most-q.Size
			return Wait, 0
		}
	}
	return Form, min(most, q.Size)
}

// Took returns how long the batch that Next has considered last would take, without waiting.
func (t *Tables) Took(now time.Duration) time.Duration { return t.best.ends - t.best.waits - now }

// Book gives a batch that has just been formed, of the queries of a queue and of a size, the way that
// Next has found. The way is to be reserved when its other fields are set.
func (t *Tables) Book(now time.Duration, q *Queue, size int, w *Way) {
	if t.best.size != size {
		t.try(now, &t.best, q, t.best.pipeline, size)
	}
	w.Legs, w.Leg = append(w.Legs[:0], t.best.legs...), 0
	q.Stale, q.Lead = true, t.best.ends-now
}

// try probes a pipeline with a batch of a size. It is false if no device can begin it.
func (t *Tables) try(now time.Duration, to *route, q *Queue, p, size int) bool {
	to.legs, to.pipeline, to.size = to.legs[:0], p, size
	for _, stage := range q.Service.Pipelines[p].Stages {
		to.legs = append(to.legs, leg{Stage: stage})
	}
	return t.probe(to, q, start{at: now, device: -1, size: size, seqLen: q.Head.SeqLen, target: q.Head.Deadline - q.Head.Arrival})
}

// choose finds the pipeline whose largest batch waits least (lines 4 to 8), and its route, preferably
// one on which that batch is in time: otherwise the load factor of figure 10 (reproduce ppipe) is 3 %
// lower. It is false if no device can begin any.
func (t *Tables) choose(now time.Duration, q *Queue) (p int, found bool) {
	for i := range q.Service.Pipelines {
		if !t.try(now, &t.trial, q, i, q.most(i)) {
			continue
		}
		late, least := t.trial.ends > q.Due, t.best.ends > q.Due
		if !found || late != least && !late || late == least && t.trial.waits < t.best.waits {
			p, found = i, true
			t.best, t.trial = t.trial, t.best
			if !late && t.best.waits == 0 && !t.reactive {
				break
			}
		}
	}
	return p, found
}

// shrink returns the size of the largest batch of a pipeline that is in time (lines 9 to 14), 0 if
// not even the most urgent query is.
func (t *Tables) shrink(now time.Duration, q *Queue, p, high int) int {
	low := q.Head.Size
	if !t.try(now, &t.best, q, p, low) || t.best.ends > q.Due {
		return 0
	}
	if t.try(now, &t.trial, q, p, high) && t.trial.ends <= q.Due {
		return high
	}
	for low+1 < high {
		mid := (low + high) / 2
		if t.try(now, &t.trial, q, p, mid); t.trial.ends <= q.Due {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// others returns how long a batch of each other service takes, on its longest pipeline, on devices
// that it shares with a service: these may be reserved while that waits. Without it, two services
// with pipelines over the same devices sustain 55 % less if one has half the target of the other,
// but 7 % more if both have the same.
func (t *Tables) others(q *Queue) (sum time.Duration) {
	most, took := time.Duration(0), time.Duration(0)
	for i, o := range q.rivals {
		if i > 0 && o.queue != q.rivals[i-1].queue {
			sum, most, took = sum+most, 0, 0
		} else if i > 0 && o.pipeline != q.rivals[i-1].pipeline {
			took = 0
		}
		s := o.queue.Service
		took += t.estimate(o.device, models.Span{Service: s.ID, Start: o.start, End: o.end, Size: o.queue.largest(o.pipeline), SeqLen: o.queue.SeqLen}).Bound
		most = max(most, took)
	}
	return sum + most
}

// idles reports whether a device on which batches of a service start is idle. A batch that is not full
// then starts if its way is free: if it waited all the same, two services with pipelines over the same
// devices would sustain 10 % less under edf and 34 % less under overlap.
func (t *Tables) idles(q *Queue) bool {
	for _, p := range q.Service.Pipelines {
		for _, d := range p.Stages[0].Devices {
			if _, runs := t.pool.Ends(d); !runs && t.pool.Runs(q.Service.ID, d) {
				return true
			}
		}
	}
	return false
}

// spoils reports whether the most urgent query has come to wait so long for others that the batches
// of a pipeline with which it is in time are smaller than planned. Then there is not time for all:
// with smaller batches still less is answered, those who come next wait longer, and theirs are
// smaller still. A query whose own target is too short for a whole batch spoils nothing, nor does one
// for which nothing is in the way. This rule of the authors' program is worth 2 % of the load factor
// of figure 10 (reproduce ppipe).
func (t *Tables) spoils(now time.Duration, q *Queue, p, size int) bool {
	full := q.most(p)
	if q.Suspect || size >= int(math.Round(fullShare*float64(full))) {
		return false
	}
	t.try(now, &t.trial, q, p, full)
	return t.trial.waits > 0 && t.trial.ends-t.trial.waits-now <= q.Head.Deadline-q.Head.Arrival
}

package overlap

import (
	"cmp"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Selector says which variant of a service answers.
type Selector interface {
	// Select returns the name of the variant that is to answer what waits for a service: so
	// many queries for each of the devices that it is up on, where the group that starts must end
	// within some time for the sake of the most urgent of them and of other services. It must depend on nothing else but what it
	// was told before. A name that no variant has stands for the fastest.
	Select(of string, waiting int, slack time.Duration) (variant string)
}

// family is the services that are variants of one service (RAMSIS). What waits for one
// waits for all of them: before a group is decided it moves to the queue of the variant
// that is to answer it, where it is seen, merged and overlapped as any other. A batch that
// has started stays what it is. A service without variants is a family of its own.
type family struct {
	of      string
	members []*service // in the order of their IDs
	share   int        // of what waits, queries for each device that it is up on; 0 without a choice
	moving  []*query   // scratch of assign
}

// relapse is how a variant fares whose workers are lost with its batches, as one that hangs.
// Another answers in its place while it rests, if that is in time. One such batch is an accident,
// for which a query may be to blame; from the second in a row on, it rests.
type relapse struct {
	Losses int           `json:",omitempty"` // batches that its workers were lost with since one has finished
	Until  time.Duration `json:",omitempty"` // it rests
}

// ended records how a span of a variant has ended. The rest doubles with each loss. It is at
// least as long as that of a shape that was late, by what the batch took: a variant that is lost
// whenever it is tried takes at most 1/64 of the time of its service.
func (x *relapse) ended(now time.Duration, b *batch, so models.SpanOutcome) {
	switch {
	case len(b.service.family.members) == 1:
	case so.Status == models.SpanLost, so.Status == models.SpanCrashed:
		if x.Losses++; x.Losses > 1 {
			least := shapeRests * (now - b.Started)
			x.Until = now + max(least, min(least<<min(x.Losses-2, 10), mostRest))
		}
	case so.Reached == b.service.Operators && so.Status <= models.SpanStopped:
		*x = relapse{}
	}
}

// families are those that have a choice.
type families []*family

// regroup gives services their families, and returns those that have a choice.
func regroup(services []*service) (choices families) {
	known := map[string]*family{}
	for _, sv := range services {
		f := known[sv.Of]
		if f == nil || sv.Of == "" {
			f = &family{of: sv.Of}
			known[sv.Of] = f
		}
		f.members = append(f.members, sv)
		if sv.family = f; len(f.members) == 2 {
			choices = append(choices, f)
		}
	}
	return choices
}

// vary has what waits for variants wait where it is to be answered, if a group of a device
// starts at a time.
func (fs families) vary(l *backlog, v *device, at time.Duration) {
	for _, f := range fs {
		if first, waiting := f.waiting(at); first != nil {
			f.assign(l, v, first, waiting, at)
		}
	}
}

// queued returns how many queries wait, in whichever variant's queue.
func (f *family) queued() (n int) {
	for _, sv := range f.members {
		n += sv.queue.len()
	}
	return n
}

// waiting returns the most urgent query that waits and will not be past its deadline at a
// time, nil if there is none, and how many there are.
func (f *family) waiting(at time.Duration) (first *query, n int) {
	for _, sv := range f.members {
		for _, q := range sv.queue.items {
			if q.Deadline <= at {
				continue
			}
			if n++; first == nil || q.Rank.before(&first.Rank) {
				first = q
			}
		}
	}
	return first, n
}

// assign moves what waits to the variant that the selector says, if that can run and have
// the most urgent query in time; else to the fastest, or, where even that would be late, to
// one whose estimate may be explored. A query that asks for more accuracy than that variant
// has goes to the fastest that has it.
func (f *family) assign(l *backlog, v *device, first *query, waiting int, at time.Duration) {
	places := 1
	for _, sv := range f.members {
		places = max(places, sv.places())
	}
	f.share = (waiting + places - 1) / places
	to := f.selected(l, v, first, at)
	if to == nil {
		if to = f.fastest(l, v, first, 0); to == nil {
			return // nobody can run
		}
		if at+l.host.aloneOn(v, to, first).Latency > first.Deadline {
			to = cmp.Or(f.doubted(l, v, first, at), to)
		}
	}
	f.moving = f.moving[:0]
	for _, sv := range f.members {
		for _, q := range sv.queue.items {
			if sv != to && !q.Fixed {
				f.moving = append(f.moving, q)
			}
		}
	}
	for _, q := range f.moving {
		if q.Accuracy <= to.Accuracy {
			f.move(l, q, to)
		} else if other := f.fastest(l, v, q, q.Accuracy); other != nil && other.ID != q.Service {
			f.move(l, q, other)
		}
	}
}

// move has a query wait for another variant.
func (*family) move(l *backlog, q *query, to *service) {
	l.dequeue(q)
	l.services[q.Service].metrics.Moved--
	to.metrics.Moved++
	q.Service = to.ID
	l.enqueue(q)
}

// selected returns the variant that the selector says, nil if it is not to be.
func (f *family) selected(l *backlog, v *device, first *query, at time.Duration) *service {
	if l.selector == nil {
		return nil
	}
	limit := f.limit(l, v, first, at)
	name := l.selector.Select(f.of, f.share, limit-at)
	i := slices.IndexFunc(f.members, func(sv *service) bool { return sv.Name == name })
	if i < 0 || !f.members[i].runs(v) || at < f.members[i].Relapse.Until {
		return nil
	}
	sv := f.members[i]
	switch alone := l.host.aloneOn(v, sv, first); {
	case alone.Latency == 0:
		return nil
	case at+alone.Bound > limit:
		x := sv.exploration(v)
		if x.remember(at, first); !x.allows(at, alone.Latency, first) {
			return nil
		}
	}
	return sv
}

// doubted returns a variant that may explore a query at a time, nil if there is none.
func (f *family) doubted(l *backlog, v *device, q *query, at time.Duration) *service {
	for _, sv := range f.members {
		if q.fits(sv) && sv.runs(v) && sv.exploration(v).allows(at, l.host.aloneOn(v, sv, q).Latency, q) {
			return sv
		}
	}
	return nil
}

// limit returns when a group should have ended that starts at a time, for the most urgent
// query of the family: by its deadline, and so early that of each other service the most
// urgent query that waits can run after it, where it has a worker that is free. What is
// accurate for one service would else be paid for by another, whose queries are dropped.
func (f *family) limit(l *backlog, v *device, first *query, at time.Duration) time.Duration {
	limit := first.Deadline
	for _, sv := range l.services {
		if sv.family == f || sv != sv.family.members[0] {
			continue
		}
		q, took := sv.family.next(l, v, at)
		if q == nil || q.Rank.Filler || q.Rank.Priority > first.Rank.Priority {
			continue
		}
		if latest := q.Deadline - took; latest > at {
			limit = min(limit, latest)
		}
	}
	return limit
}

// next returns the most urgent query that waits for what runs on a device and will not be
// past its deadline at a time, nil if there is none, and what it takes alone, as the fastest
// variant if there is a choice: whichever it waits for now.
func (f *family) next(l *backlog, v *device, at time.Duration) (q *query, took time.Duration) {
	sv, single := f.members[0], len(f.members) == 1
	if single && !sv.runs(v) {
		return nil, 0
	}
	if single && sv.queue.len() > 0 && sv.queue.top().Deadline > at {
		q = sv.queue.top()
	} else if q, _ = f.waiting(at); q == nil {
		return nil, 0
	}
	if single {
		return q, q.Takes.Alone
	}
	if sv = f.fastest(l, v, q, q.Accuracy); sv == nil {
		return nil, 0
	}
	return q, l.host.aloneOn(v, sv, q).Latency
}

// fastest returns the variant with an accuracy at least that has a query in the least time
// by the middle of its runs, of several the most accurate, and nil if none can run. What is
// not known to be fast is not. One that rests is only meant if no other would be in time.
func (f *family) fastest(l *backlog, v *device, q *query, accuracy float64) (found *service) {
	if slices.ContainsFunc(f.members, func(sv *service) bool { return l.now < sv.Relapse.Until }) {
		if other, took := f.quickest(l, v, q, accuracy, l.now); other != nil && took <= q.Deadline-l.now {
			return other
		}
	}
	found, _ = f.quickest(l, v, q, accuracy, forever)
	return found
}

// quickest is fastest of those that do not rest at a time, with what it takes.
func (f *family) quickest(l *backlog, v *device, q *query, accuracy float64, at time.Duration) (found *service, least time.Duration) {
	least = forever
	for _, sv := range f.members {
		if sv.Accuracy < accuracy || !sv.runs(v) || at < sv.Relapse.Until {
			continue
		}
		took := l.host.aloneOn(v, sv, q).Latency
		if took == 0 {
			took = forever
		}
		if found == nil || took < least || took == least && sv.Accuracy > found.Accuracy {
			found, least = sv, took
		}
	}
	return found, least
}

// fits reports whether a query may be answered by a variant.
func (q *query) fits(sv *service) bool {
	return q.Service == sv.ID || !q.Fixed && q.Accuracy <= sv.Accuracy
}

// aloneOn returns the estimate of a query as one of a variant, alone on a device.
func (h *host) aloneOn(v *device, sv *service, q *query) models.Estimate {
	predict := h.predict(sv)
	if v != nil {
		predict = &v.predict
	}
	whole := q.span(sv.Operators)
	whole.Service = sv.ID
	return predict.alone(whole)
}

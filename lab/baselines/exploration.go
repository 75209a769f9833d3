package baselines

import (
	"slices"
	"time"
)

// How long exploration rests, as in package overlap.
const (
	shapeRests   = 64 // times the predicted latency of the shape
	serviceRests = 16 // times the duration of the exploration
	mostRest     = 30 * time.Second
)

// exploration decides which queries of a service run although they are predicted to be
// late, by the same rule as in package overlap: an estimate that only prevents work must
// expire.
type exploration struct {
	until  time.Duration // when the next one may begin
	shapes map[shape]*explored
}

type shape struct{ size, seqLen int }

// explored is a shape of which a batch has ended, or a query was dropped.
type explored struct {
	end  time.Duration
	late bool // was the last exploration
}

// remember returns the record of a query's shape.
func (x *exploration) remember(now time.Duration, q *query) *explored {
	at := shape{q.Size, q.SeqLen}
	if x.shapes[at] == nil {
		if x.shapes == nil {
			x.shapes = map[shape]*explored{}
		}
		x.shapes[at] = &explored{end: now}
	}
	return x.shapes[at]
}

// allows reports whether a query is to run that would be late by its predicted latency.
func (x *exploration) allows(now, predicted time.Duration, q *query) bool {
	e, doubted := x.shapes[shape{q.Size, q.SeqLen}], predicted > q.Deadline-q.Arrival
	switch {
	case now < x.until:
		return false
	case e == nil || doubted && !e.late:
		return doubted
	}
	return now-e.end >= min(shapeRests*min(predicted, mostRest), mostRest)
}

// ended records that a batch has ended, by running to its end or not.
func (x *exploration) ended(now time.Duration, b *batch, finished bool) {
	e := x.remember(now, b.members[0])
	if e.end = now; !b.explores {
		return
	}
	b.explores = false
	e.late = !finished || !slices.ContainsFunc(b.members, func(q *query) bool { return !q.cancelled && now <= q.Deadline })
	if e.late {
		x.until = now + min(serviceRests*min(b.run, mostRest), mostRest)
	}
}

package baselines

import (
	"slices"
	"time"
)

// How much is remembered, and how long exploration rests, as in package overlap.
const (
	maxExplored  = 16 // shapes of a service
	shapeRests   = 64 // times the predicted latency of the shape
	serviceRests = 16 // times the duration of the exploration
	mostRest     = 30 * time.Second
)

// exploration decides which queries of a service run although they are predicted to be
// late, by the same rule as in package overlap: an estimate that only prevents work must
// expire.
type exploration struct {
	until  time.Duration // when the next one may begin
	shapes []explored
}

// explored is a shape of which a batch has ended, or a query was dropped.
type explored struct {
	size, seqLen int
	end          time.Duration
	late         bool // was the last exploration
}

// shape returns the position of a query's shape, -1 if it is not remembered.
func (x *exploration) shape(q *query) int {
	return slices.IndexFunc(x.shapes, func(e explored) bool { return e.size == q.Size && e.seqLen == q.SeqLen })
}

// remember returns the record of a query's shape. If there are too many, a new one replaces
// the one that ended first.
func (x *exploration) remember(now time.Duration, q *query) *explored {
	at := x.shape(q)
	if at >= 0 {
		return &x.shapes[at]
	}
	if at = len(x.shapes); at < maxExplored {
		x.shapes = append(x.shapes, explored{})
	} else {
		at = 0
		for i := range x.shapes {
			if x.shapes[i].end < x.shapes[at].end {
				at = i
			}
		}
	}
	x.shapes[at] = explored{size: q.Size, seqLen: q.SeqLen, end: now}
	return &x.shapes[at]
}

// allows reports whether a query is to run that would be late by its predicted latency.
func (x *exploration) allows(now, predicted time.Duration, q *query) bool {
	at, doubted := x.shape(q), predicted > q.Deadline-q.Arrival
	switch {
	case now < x.until:
		return false
	case at < 0 || doubted && !x.shapes[at].late:
		return doubted
	}
	return now-x.shapes[at].end >= min(shapeRests*min(predicted, mostRest), mostRest)
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

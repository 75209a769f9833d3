package overlap

import (
	"fmt"
	"slices"
	"time"
)

// Limits of exploration.
const (
	// maxExplored is how many shapes of a service are remembered for each kind of device:
	// those that ended last.
	maxExplored = 16

	// shapeRests is how many times its predicted latency a shape rests after an exploration
	// that was late: what is late for good costs at most 1/64 of a device.
	shapeRests = 64

	// serviceRests is how many times its duration a service rests with all its shapes after
	// an exploration that was late: a client that sends a new shape each time gets at most
	// 1/16 of a device.
	serviceRests = 16

	// mostRest is the longest rest. An estimate that is wrong is refuted within this time
	// once the device is well again, however long it says that a query takes.
	mostRest = 30 * time.Second
)

// exploration decides which queries of a service run although they are predicted to be
// late: an estimate that only prevents work must expire. Without that an estimate that
// became too high, in a slow moment or by extrapolation from another shape, would drop
// every query, nothing would run, and nothing be measured that could correct it.
//
// Each shape, which is a batch size and a sequence length, is explored by itself, since
// each has an estimate of its own, and only while nothing else of it runs. After an
// exploration that was late the shape rests. One in time shows that the estimate is wrong,
// and the next may follow at once. There is an exploration for each kind of device, as for
// estimates.
type exploration struct {
	Until  time.Duration `json:",omitempty"` // when the next one may begin
	Shapes []explored    `json:",omitempty"`
}

// explored is a shape of which a batch has ended, or a query was dropped.
type explored struct {
	Size, SeqLen int
	End          time.Duration // of the last batch, before the first of the first query that was dropped
	Late         bool          `json:",omitempty"` // was the last exploration
}

// shape returns the position of a query's shape, -1 if it is not remembered.
func (x *exploration) shape(q *query) int {
	return slices.IndexFunc(x.Shapes, func(s explored) bool { return s.Size == q.Size && s.SeqLen == q.SeqLen })
}

// remember returns a query's shape. A new one takes the place of the one that ended first,
// if there are too many.
func (x *exploration) remember(now time.Duration, q *query) *explored {
	at := x.shape(q)
	if at >= 0 {
		return &x.Shapes[at]
	}
	if at = len(x.Shapes); at < maxExplored {
		x.Shapes = append(x.Shapes, explored{})
	} else {
		at = 0
		for i := range x.Shapes {
			if x.Shapes[i].End < x.Shapes[at].End {
				at = i
			}
		}
	}
	x.Shapes[at] = explored{Size: q.Size, SeqLen: q.SeqLen, End: now}
	return &x.Shapes[at]
}

// allows reports whether a query is to run that would be late by its predicted latency.
// If it would be so only because it has waited, its estimate is doubted only where nothing
// of its shape has run for a whole rest.
func (x *exploration) allows(now, predicted time.Duration, q *query) bool {
	at, doubted := x.shape(q), predicted > q.Deadline-q.Arrival
	switch {
	case now < x.Until:
		return false
	case at < 0 || doubted && !x.Shapes[at].Late:
		return doubted
	}
	return now-x.Shapes[at].End >= min(shapeRests*min(predicted, mostRest), mostRest)
}

// ended records that a batch has ended, by running to its end or not. If it explored, it was
// in time if one of its queries was.
func (x *exploration) ended(now time.Duration, b *batch, finished bool) {
	s := x.remember(now, b.members[0])
	if s.End = now; !b.Explores {
		return
	}
	b.Explores = false
	s.Late = !finished || !slices.ContainsFunc(b.members, func(q *query) bool {
		return !q.Cancelled && !q.Answered && now <= q.Deadline
	})
	if s.Late {
		x.Until = now + min(serviceRests*min(b.Run, mostRest), mostRest)
	}
}

func (x *exploration) clone() exploration {
	return exploration{x.Until, slices.Clone(x.Shapes)}
}

func (x *exploration) check() error {
	if len(x.Shapes) > maxExplored {
		return fmt.Errorf("%d shapes were explored: at most %d are remembered", len(x.Shapes), maxExplored)
	}
	return nil
}

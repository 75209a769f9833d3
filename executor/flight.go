package executor

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// flight is a run that was sent and not yet answered.
type flight struct {
	round   *round
	index   int // of the span in the round
	span    models.Span
	queries []models.QueryID // of the batch
	since   time.Time        // when nothing was before it any more
	stopped bool
}

// flights are the runs in flight, oldest first. The place of a flight is its
// stop word, so no two share one.
type flights struct {
	ring  [wire.StopWords]flight
	first uint32
	count int
}

func (f *flights) at(i int) (*flight, uint32) {
	word := (f.first + uint32(i)) % wire.StopWords
	return &f.ring[word], word
}

func (f *flights) pop() {
	head, _ := f.at(0)
	*head = flight{}
	f.first = (f.first + 1) % wire.StopWords
	if f.count--; f.count > 0 {
		next, _ := f.at(0)
		next.since = time.Now()
	}
}

// check compares an answer with the span that was sent.
func (f *flight) check(d *wire.Done, operators int) error {
	switch {
	case d.Reached < f.span.Start || d.Reached > f.span.End:
		return fmt.Errorf("span [%d, %d) reached operator %d", f.span.Start, f.span.End, d.Reached)
	case d.Reached < f.span.End && !f.stopped:
		return fmt.Errorf("span [%d, %d) ended at operator %d without being stopped", f.span.Start, f.span.End, d.Reached)
	case d.Finished != (d.Reached == operators):
		return fmt.Errorf("at operator %d of %d, finished is %t", d.Reached, operators, d.Finished)
	}
	return nil
}

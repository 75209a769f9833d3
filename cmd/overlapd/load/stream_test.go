package load

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func TestTimetableHandsOutEachTimeOnce(t *testing.T) {
	due := make([]time.Duration, 1000)
	for i := range due {
		due[i] = time.Duration(i)
	}
	table := &stream{timed: true, due: due}
	var got [4][]time.Duration
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			for {
				at, ok := table.next()
				if !ok {
					return
				}
				got[i] = append(got[i], at)
			}
		})
	}
	wg.Wait()
	var all []time.Duration
	for _, times := range got {
		if !slices.IsSorted(times) {
			t.Error("a connection was given an earlier time after a later one")
		}
		all = append(all, times...)
	}
	slices.Sort(all)
	if !slices.Equal(all, due) {
		t.Errorf("%d times handed out, want each of %d once", len(all), len(due))
	}
}

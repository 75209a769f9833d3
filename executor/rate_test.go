package executor

import (
	"testing"
	"time"
)

// A worker that tells progress without end does not keep those busy who are
// told.
func TestProgressFlood(t *testing.T) {
	f := start(t, func(o *Options) { o.RestartLimit = 1; o.BackoffMin, o.BackoffMax = time.Hour, time.Hour }, "progress")
	begin := time.Now()
	awaitEvent(f, WorkerLost, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	told := 0
	for _, e := range f.events {
		if e.Kind == WorkerProgress {
			told++
		}
	}
	if most := 2*progressBurst + int(time.Since(begin)/progressEvery); told > most {
		t.Errorf("told %d times", told)
	}
}

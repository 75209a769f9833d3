package executor

import (
	"testing"
	"time"
)

func TestProgressLimit(t *testing.T) {
	now := time.Now()
	var l progressLimit
	for i := range progressBurst {
		if !l.allow(now) {
			t.Fatalf("number %d is too much", i)
		}
	}
	if l.allow(now) || l.allow(now.Add(progressEvery/2)) {
		t.Error("more than a burst")
	}
	if now = now.Add(2 * progressEvery); !l.allow(now) || !l.allow(now) || l.allow(now) {
		t.Error("time gives others")
	}
	if now = now.Add(time.Hour); !l.allow(now) || l.left > progressBurst {
		t.Errorf("%d are saved up", l.left)
	}
}

// A worker that tells progress without end does not keep those busy who are
// told.
func TestProgressFlood(t *testing.T) {
	f := start(t, func(o *Options) { o.RestartLimit = 1; o.BackoffMin, o.BackoffMax = time.Hour, time.Hour }, "progress")
	begin := time.Now()
	awaitEvent[WorkerLost](f, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	told := 0
	for _, e := range f.events {
		if _, ok := e.(WorkerProgress); ok {
			told++
		}
	}
	if most := 2*progressBurst + int(time.Since(begin)/progressEvery); told > most {
		t.Errorf("told %d times", told)
	}
}

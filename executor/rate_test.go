package executor

import (
	"strings"
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

// A worker that writes without end fills neither the log nor the time of those
// who are told, and how much was left out is said.
func TestOutputFlood(t *testing.T) {
	f := start(t, func(o *Options) { o.RestartLimit = 1; o.BackoffMin, o.BackoffMax = time.Hour, time.Hour }, "torrent")
	begin := time.Now()
	lost := awaitEvent(f, WorkerLost, nil)
	if !strings.Contains(lost.Err.Error(), "drop") {
		t.Errorf("the end of it is not kept: %v", lost.Err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	told, out := 0, 0
	for _, e := range f.events {
		if e.Kind == WorkerOutput {
			told++
			if strings.Contains(e.Line, "left out") {
				out++
			}
		}
	}
	if most := 2*1024 + 2*int(time.Since(begin)/(10*time.Millisecond)); told > most || out == 0 {
		t.Errorf("told %d lines, %d times that some were left out", told, out)
	}
}

package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/segments/wire"
)

// memoryTries is how often a worker is started again, one time after the
// other, that could not load its model because a GPU had no memory left. A
// neighbour may just be giving its memory back; after that it is not.
const memoryTries = 3

// restarts decides when a lost worker is started again. Time is an argument.
type restarts struct {
	child.Restarts
	retryMin, retryMax time.Duration
	pause              time.Duration // the last for which the service was given up, 0 before
	full               int           // losses in a row for want of a device's memory
	loadTimeout        time.Duration
	loading            time.Duration // of all workers since one was ready
}

// next returns how long to wait before the next start, and why the service is given
// up until then, nil if it is not: the worker was lost more often than the limit
// allows, or the next is unlikely to do better, as with a model that is no good.
// lived is how long there was the lost worker, and readyFor how long it was ready, 0 if it
// never was.
//
// All workers together may load for loadTimeout: else a model that never ends loading would
// be tried for ever, and who waits for it to be loaded or given up would wait as long.
func (r *restarts) next(now time.Time, lived, readyFor time.Duration, cause error) (time.Duration, error) {
	if r.loading += lived; readyFor > 0 {
		r.loading = 0
	}
	r.full++
	if readyFor > 0 || !errors.Is(cause, wire.ErrDeviceMemory) {
		r.full = 0
	}
	if readyFor >= r.HealthyAfter {
		r.pause = 0
	}
	switch {
	case errors.Is(cause, wire.ErrModel):
		return r.longer(), cause
	case errors.Is(cause, wire.ErrDeviceFull):
		return r.longer(), fmt.Errorf("%w: %w", ErrNoRoom, cause)
	case r.full > memoryTries:
		return r.longer(), fmt.Errorf("%w, %d times in a row: %w", ErrNoRoom, r.full, cause)
	case errors.Is(cause, ErrLoadTimeout):
		return r.longer(), cause
	case r.loadTimeout > 0 && r.loading > r.loadTimeout:
		return r.longer(), fmt.Errorf("%w: over %v, in several attempts; last: %w", ErrLoadTimeout, r.loadTimeout, cause)
	}
	delay, again := r.Next(now, readyFor)
	if !again {
		return r.longer(), fmt.Errorf("%w: more than %d times in %v; last: %w", ErrRestartLimit, r.RestartLimit, r.RestartWindow, cause)
	}
	return delay, nil
}

// longer returns the pause after which a service that is given up is tried again.
func (r *restarts) longer() time.Duration {
	r.pause = min(max(2*r.pause, r.retryMin), r.retryMax)
	return r.pause
}

// forgive forgets the past, because a person asked for another start.
func (r *restarts) forgive() {
	r.Forgive()
	r.full, r.pause, r.loading = 0, 0, 0
}

package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/segments/wire"
)

// memoryTries is how often in a row a worker is restarted after it could not load
// its model because the GPU was out of memory. Another process may just be freeing
// its memory; after that many attempts this is unlikely.
const memoryTries = 3

// restarts decides when a lost worker is restarted. Time is an argument, for tests.
type restarts struct {
	child.Restarts
	retryMin, retryMax time.Duration

	// pause is the last back-off after a permanent failure, 0 before the first.
	pause time.Duration

	// full counts losses in a row because the device was out of memory.
	full        int
	loadTimeout time.Duration

	// loading is the total lifetime of all workers since one was ready.
	loading time.Duration
}

// next returns how long to wait before the next start. The error says why the
// service fails permanently until then; it is nil if the service does not. A
// service fails permanently if its worker was lost more often than the limit
// allows, or if another start is unlikely to help, as with an invalid model. lived
// is the lifetime of the lost worker, and readyFor how long it was ready, 0 if it
// never was.
//
// All attempts together may load for loadTimeout. Otherwise a worker that crashes
// while loading could be retried for very long, and callers that wait for the
// service to become ready or fail would wait as long.
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

// longer returns the next back-off after a permanent failure.
func (r *restarts) longer() time.Duration {
	r.pause = min(max(2*r.pause, r.retryMin), r.retryMax)
	return r.pause
}

// forgive resets the history, because an operator asked for a restart.
func (r *restarts) forgive() {
	r.Forgive()
	r.full, r.pause, r.loading = 0, 0, 0
}

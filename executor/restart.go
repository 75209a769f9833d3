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
	full int // losses in a row for want of a device's memory
}

// next returns how long to wait before the next start, or why there is none:
// the worker was lost more often than the limit allows, or it cannot do better
// next time, as with a model that is no good. readyFor is how long the lost worker was ready, 0 if it never was.
func (r *restarts) next(now time.Time, readyFor time.Duration, cause error) (time.Duration, error) {
	r.full++
	if readyFor > 0 || !errors.Is(cause, wire.ErrDeviceMemory) {
		r.full = 0
	}
	switch {
	case errors.Is(cause, wire.ErrModel):
		return 0, cause
	case errors.Is(cause, wire.ErrDeviceFull):
		return 0, fmt.Errorf("%w: %w", ErrNoRoom, cause)
	case r.full > memoryTries:
		return 0, fmt.Errorf("%w, %d times in a row: %w", ErrNoRoom, r.full, cause)
	}
	delay, again := r.Next(now, readyFor)
	if !again {
		return 0, fmt.Errorf("%w: more than %d times in %v, given up until it is restarted by hand; last: %w",
			ErrRestartLimit, r.RestartLimit, r.RestartWindow, cause)
	}
	return delay, nil
}

// forgive forgets the past, because a person asked for another start.
func (r *restarts) forgive() {
	r.Forgive()
	r.full = 0
}

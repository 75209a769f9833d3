package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/segments"
)

// memoryTries is how often a worker is started again, one time after the
// other, that could not load its model because a GPU had no memory left. A
// neighbour may just be giving its memory back; after that it is not.
const memoryTries = 3

// restarts decides when a lost worker is started again. Time is an argument.
type restarts struct {
	opts  *Options
	tries int         // since the worker was last healthy
	full  int         // losses in a row for want of a device's memory
	lost  []time.Time // within the window
}

// next returns how long to wait before the next start, or why there is none:
// the worker was lost more often than the limit allows, or it cannot do better
// next time. readyFor is how long the lost worker was ready, 0 if it never was.
func (r *restarts) next(now time.Time, readyFor time.Duration, cause error) (time.Duration, error) {
	if readyFor >= r.opts.HealthyAfter {
		r.tries = 0
	}
	r.tries++
	if err := r.hopeless(readyFor, cause); err != nil {
		return 0, err
	}
	for len(r.lost) > 0 && now.Sub(r.lost[0]) > r.opts.RestartWindow {
		r.lost = r.lost[1:]
	}
	r.lost = append(r.lost, now)
	if len(r.lost) > r.opts.RestartLimit {
		return 0, fmt.Errorf("%w: more than %d times in %v, given up until it is restarted by hand; last: %w",
			ErrRestartLimit, r.opts.RestartLimit, r.opts.RestartWindow, cause)
	}
	delay := r.opts.BackoffMin
	for i := 1; i < r.tries && delay < r.opts.BackoffMax; i++ {
		delay *= 2
	}
	return min(delay, r.opts.BackoffMax), nil
}

// hopeless returns why another start would end as the last one.
func (r *restarts) hopeless(readyFor time.Duration, cause error) error {
	if readyFor > 0 || !errors.Is(cause, segments.ErrDeviceMemory) {
		r.full = 0
	} else {
		r.full++
	}
	switch {
	case errors.Is(cause, segments.ErrDeviceFull):
		return fmt.Errorf("%w: %w", ErrNoRoom, cause)
	case r.full > memoryTries:
		return fmt.Errorf("%w, %d times in a row: %w", ErrNoRoom, r.full, cause)
	}
	return nil
}

// forgive makes the past forgotten, because a person asked for it.
func (r *restarts) forgive() { r.tries, r.full, r.lost = 0, 0, nil }

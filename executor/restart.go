package executor

import "time"

// restarts decides when a lost worker is started again. Time is an argument.
type restarts struct {
	opts  *Options
	tries int         // since the worker was last healthy
	lost  []time.Time // within the window
}

// next returns how long to wait before the next start, or false if the worker
// was lost more often than the limit allows. readyFor is how long the lost
// worker was ready, 0 if it never was.
func (r *restarts) next(now time.Time, readyFor time.Duration) (time.Duration, bool) {
	if readyFor >= r.opts.HealthyAfter {
		r.tries = 0
	}
	r.tries++
	for len(r.lost) > 0 && now.Sub(r.lost[0]) > r.opts.RestartWindow {
		r.lost = r.lost[1:]
	}
	r.lost = append(r.lost, now)
	if len(r.lost) > r.opts.RestartLimit {
		return 0, false
	}
	delay := r.opts.BackoffMin
	for i := 1; i < r.tries && delay < r.opts.BackoffMax; i++ {
		delay *= 2
	}
	return min(delay, r.opts.BackoffMax), true
}

// forgive makes the past forgotten, because a person asked for it.
func (r *restarts) forgive() { r.tries, r.lost = 0, nil }

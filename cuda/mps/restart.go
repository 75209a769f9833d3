package mps

import "time"

// restarts decides when a dead daemon is started again. Time is an argument.
type restarts struct {
	opts  *Options
	tries int         // since the daemon last ran for HealthyAfter
	dead  []time.Time // within the window
}

// next returns how long to wait before the next start, or false if the daemon
// died more often than the limit allows. ranFor is how long it was ready, 0 if
// it never was.
func (r *restarts) next(now time.Time, ranFor time.Duration) (time.Duration, bool) {
	if ranFor >= r.opts.HealthyAfter {
		r.tries = 0
	}
	r.tries++
	for len(r.dead) > 0 && now.Sub(r.dead[0]) > r.opts.RestartWindow {
		r.dead = r.dead[1:]
	}
	r.dead = append(r.dead, now)
	if len(r.dead) > r.opts.RestartLimit {
		return 0, false
	}
	delay := r.opts.BackoffMin
	for i := 1; i < r.tries && delay < r.opts.BackoffMax; i++ {
		delay *= 2
	}
	return min(delay, r.opts.BackoffMax), true
}

// forgive makes the past forgotten, because somebody asked for a restart.
func (r *restarts) forgive() { r.tries, r.dead = 0, nil }

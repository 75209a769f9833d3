package child

import (
	"cmp"
	"time"
)

// Policy is the rule by which a child that ended is started again.
type Policy struct {
	BackoffMin    time.Duration // before the first restart; it doubles with each further one
	BackoffMax    time.Duration
	HealthyAfter  time.Duration // a child that served for this long makes the next backoff the first
	RestartLimit  int           // ends within RestartWindow after which it is given up
	RestartWindow time.Duration
}

// WithDefaults fills in what is zero from d.
func (p Policy) WithDefaults(d Policy) Policy {
	return Policy{
		cmp.Or(p.BackoffMin, d.BackoffMin), cmp.Or(p.BackoffMax, d.BackoffMax), cmp.Or(p.HealthyAfter, d.HealthyAfter),
		cmp.Or(p.RestartLimit, d.RestartLimit), cmp.Or(p.RestartWindow, d.RestartWindow),
	}
}

// Restarts applies a policy to one child. Time is an argument.
type Restarts struct {
	Policy
	tries int         // since it was last healthy
	ended []time.Time // within the window
}

// Next returns how long to wait before the next start, or false if the child
// ended more often than the limit allows. served is how long it was ready, 0 if
// it never was.
func (r *Restarts) Next(now time.Time, served time.Duration) (time.Duration, bool) {
	if served >= r.HealthyAfter {
		r.tries = 0
	}
	r.tries++
	for len(r.ended) > 0 && now.Sub(r.ended[0]) > r.RestartWindow {
		r.ended = r.ended[1:]
	}
	r.ended = append(r.ended, now)
	if len(r.ended) > r.RestartLimit {
		return 0, false
	}
	delay := r.BackoffMin
	for i := 1; i < r.tries && delay < r.BackoffMax; i++ {
		delay *= 2
	}
	return min(delay, r.BackoffMax), true
}

// Forgive forgets the past, because a person asked for another start.
func (r *Restarts) Forgive() { r.tries, r.ended = 0, nil }

package child

import (
	"cmp"
	"time"
)

// Policy is the rule for restarting a child that ended.
type Policy struct {
	// BackoffMin is the delay before the first restart. It doubles with each further
	// restart, up to BackoffMax.
	BackoffMin time.Duration
	BackoffMax time.Duration

	// HealthyAfter is how long a child must serve to reset the back-off.
	HealthyAfter time.Duration

	// RestartLimit is how many ends within RestartWindow are tolerated. With one
	// more, the child fails permanently.
	RestartLimit  int
	RestartWindow time.Duration
}

// WithDefaults returns the policy with zero fields replaced by those of d.
func (p Policy) WithDefaults(d Policy) Policy {
	return Policy{
		cmp.Or(p.BackoffMin, d.BackoffMin), cmp.Or(p.BackoffMax, d.BackoffMax), cmp.Or(p.HealthyAfter, d.HealthyAfter),
		cmp.Or(p.RestartLimit, d.RestartLimit), cmp.Or(p.RestartWindow, d.RestartWindow),
	}
}

// Restarts applies a policy to one child. Time is an argument, for tests.
type Restarts struct {
	Policy

	// tries counts starts since the child was last healthy.
	tries int

	// ended lists the ends within the window, oldest first.
	ended []time.Time
}

// Next records that the child ended, and returns how long to wait before the next
// start. It returns false if the child ended more often than the limit allows.
// served is how long the child was ready, 0 if it never was.
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

// Forgive clears the history, because an operator asked for a restart.
func (r *Restarts) Forgive() { r.tries, r.ended = 0, nil }

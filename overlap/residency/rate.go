package residency

import (
	"math"
	"time"
)

// fade is the time in which the count of a model's queries fades to 1/e: long enough to know a rate of
// a few queries per minute, short compared to the hours in which loads change.
const fade = 10 * time.Minute

// rebase is how many times fade may pass until all counts must be rescaled, before they overflow.
const rebase = 100

// clock converts counts that fade. They all fade alike, so they need not be touched: each is in units of
// the origin, where later queries count more, and factor is what such a unit is worth now.
type clock struct {
	origin, now time.Duration
	factor      float64
}

// advance sets the time. It reports whether all counts must be multiplied by the factor, and the clock
// restarted.
func (c *clock) advance(now time.Duration) bool {
	if now != c.now || c.factor == 0 {
		c.now, c.factor = now, math.Exp(-(now-c.origin).Seconds()/fade.Seconds())
	}
	return now-c.origin > rebase*fade
}

// restart makes the time the origin.
func (c *clock) restart() { c.origin, c.factor = c.now, 1 }

// unit returns the count of a query that arrives now.
func (c *clock) unit() float64 { return 1 / c.factor }

// rate is a faded count of queries, and since when they are counted, in units of the origin.
type rate struct{ count, begun float64 }

// perSecond returns how many queries arrive per second, if the count covers at least so many seconds.
func (r *rate) perSecond(c *clock, least float64) float64 {
	return r.count * c.factor / max(fade.Seconds()*(1-r.begun*c.factor), least)
}

func (r *rate) multiply(factor float64) {
	r.count *= factor
	r.begun *= factor
}

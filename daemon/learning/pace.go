package learning

import "time"

const (
	// Quiet is how long no query may have arrived before a group is measured while the
	// device is idle. A client that sends one query after another must not wait for a
	// measurement each time.
	Quiet = 200 * time.Millisecond

	// patience is how long measurements may be disturbed before they run between the rounds
	// of queries: under a load without pauses there would otherwise never be a predictor.
	// busyShare is the maximum share of the time that they take then.
	patience  = 5 * time.Second
	busyShare = 0.1

	// longestRound is the longest time that queries wait for a span of such a round if no
	// target demands less.
	longestRound = time.Second
)

// pace decides when measurements may run alongside a load of queries, and sums the time
// that they take.
type pace struct {
	// arrived is when the last query arrived.
	arrived time.Duration

	// spent is the time of the rounds of the current step.
	spent time.Duration

	// longest is how long queries may wait for a round.
	longest time.Duration

	// began is when the latest round began.
	began time.Duration

	// rested is until when queries have the device to themselves under a load without
	// pauses.
	rested time.Duration

	// calm is when the latest undisturbed round ended.
	calm time.Duration
}

// Arrived tells the pace that a query has arrived.
func (p *pace) Arrived(now time.Duration) { p.arrived = now }

// DueAt returns when the next measurement may run. On an idle device that is when it has
// been quiet long enough. If measurements have been disturbed for longer than patience, it
// is when queries have had their share of the time.
func (p *pace) DueAt(idle bool) time.Duration {
	if quiet := p.arrived + Quiet; idle && quiet < p.pressing() {
		return quiet
	}
	return max(p.rested, p.pressing())
}

// pressing returns when measurements begin to run between the rounds of queries.
func (p *pace) pressing() time.Duration { return p.calm + patience }

// Began records the start of a round that measures. It returns until when arriving queries
// must wait for it at most. That is now, so that a query stops the round, unless the round
// is one that runs between those of queries.
func (p *pace) Began(now time.Duration) (queriesWait time.Duration) {
	p.began = now
	if now < p.pressing() {
		return now
	}
	return now + p.longest
}

// Ended records the end of that round, whether it was completed or stopped.
func (p *pace) Ended(now time.Duration, stopped bool) {
	took := now - p.began
	p.spent += took
	p.rested = now + time.Duration(float64(took)*(1/busyShare-1))
	if !stopped && p.began >= p.arrived+Quiet {
		p.calm = now
	}
}

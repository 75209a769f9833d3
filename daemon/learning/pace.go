package learning

import "time"

const (
	// Quiet is for how long no query must have come before a group is measured.
	// Who sends one query after another is not to wait for a measurement each
	// time.
	Quiet = 200 * time.Millisecond

	// patience is for how long no round has run undisturbed until rounds that measure
	// run between those of queries: under a load that never pauses there would never be
	// a predictor. busyShare is the most of the time that they take then.
	patience  = 5 * time.Second
	busyShare = 0.1

	// longestRound is for how long queries wait for a span of such a round at most
	// where no target says less.
	longestRound = time.Second
)

// pace decides when rounds that measure may run beside a load of queries, and knows
// how long those of a step took.
type pace struct {
	arrived time.Duration // when the last query came
	spent   time.Duration // on the rounds of the step
	longest time.Duration // that queries wait for a round
	began   time.Duration // the latest round
	rested  time.Duration // until when queries have the device to themselves, where they never pause
	calm    time.Duration // when the latest round ended that no query came near
}

// Arrived is called for every query: measuring waits until none has come for
// Quiet.
func (p *pace) Arrived(now time.Duration) { p.arrived = now }

// DueAt returns from when on a round may be run that measures. If the device is idle
// that is when it has been quiet for long enough. Where rounds have been disturbed for
// longer than anybody should wait for a predictor, it is when queries have had their
// share of the time.
func (p *pace) DueAt(idle bool) time.Duration {
	if quiet := p.arrived + Quiet; idle && quiet < p.pressing() {
		return quiet
	}
	return max(p.rested, p.pressing())
}

// pressing returns from when on rounds run between those of queries.
func (p *pace) pressing() time.Duration { return p.calm + patience }

// Began is called when a round begins that measures. It returns until when queries that
// come meanwhile wait for its end at most: not at all, unless it runs between theirs.
func (p *pace) Began(now time.Duration) (queriesWait time.Duration) {
	p.began = now
	if now < p.pressing() {
		return now
	}
	return now + p.longest
}

// Ended is called when that round has ended, or was stopped.
func (p *pace) Ended(now time.Duration, stopped bool) {
	took := now - p.began
	p.spent += took
	p.rested = now + time.Duration(float64(took)*(1/busyShare-1))
	if !stopped && p.began >= p.arrived+Quiet {
		p.calm = now
	}
}

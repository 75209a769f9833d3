package executor

import "time"

// Latency is the latency of the round's group as predictors see it. This is its
// one definition: what is measured to train a predictor, what a prediction is
// compared with while serving, and what metrics say of predictions all go by it.
//
// Of several spans it is the time from Run until the last of them has ended, by
// the host's clock: they run beside each other, so the longest decides, and
// sending them and waking up happen once, however many there are. Of one span it
// is its time in the engine, by the host's clock too: from before its inputs are
// copied until the device has been waited for. What sending one span takes is
// the same for each, and known to the scheduler as the time between rounds.
//
// The device's own clock is no part of it: a deadline is kept by the host's. See
// [Outcome.DeviceTime] for what it says.
func (o *Outcome) Latency() time.Duration {
	if len(o.Spans) == 1 {
		return o.Spans[0].Took
	}
	return o.Took
}

// DeviceTime is how long the device worked on the round's group by its own clock,
// 0 if it has none. Of several spans it is that of the longest: each worker
// measures with events of its own, whose zeros are not comparable. What it falls
// short of Latency went into copying, launching and waking up.
func (o *Outcome) DeviceTime() (longest time.Duration) {
	for i := range o.Spans {
		longest = max(longest, o.Spans[i].DeviceTook)
	}
	return longest
}

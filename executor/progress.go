package executor

import "time"

// What is told of progress. An honest worker tells its phases, and within one no
// more than twenty times in a second.
const (
	progressBurst = 256                   // at once
	progressEvery = 10 * time.Millisecond // one more
)

// progressLimit bounds how often progress is passed on: whoever is told may be
// the one who schedules. It belongs to one goroutine; time is an argument.
type progressLimit struct {
	left  int
	since time.Time // when left was counted
}

// allow reports whether one more may be passed on. What may not is left out.
func (l *progressLimit) allow(now time.Time) bool {
	if l.since.IsZero() {
		l.left, l.since = progressBurst, now
	}
	if more := int64(now.Sub(l.since) / progressEvery); more > 0 {
		l.left = int(min(int64(l.left)+more, progressBurst))
		l.since = now
	}
	if l.left == 0 {
		return false
	}
	l.left--
	return true
}

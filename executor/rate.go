package executor

import (
	"fmt"
	"time"
)

// What is passed on of what workers say. An honest worker tells progress when a
// phase begins, and within one no more than twenty times in a second; what it
// writes is rarely more than the trace of a crash.
var (
	progressRate = rate{burst: 256, every: 10 * time.Millisecond}
	outputRate   = rate{burst: 1024, every: 10 * time.Millisecond}
)

// rate is how much is passed on at once, and after how long one more is.
type rate struct {
	burst int
	every time.Duration
}

// limiter bounds how often something is passed on: whoever is told may be the
// one who schedules. It belongs to one goroutine; time is an argument.
type limiter struct {
	rate
	left  int
	since time.Time // when left was counted
}

// allow reports whether one more may be passed on.
func (l *limiter) allow(now time.Time) bool {
	if l.since.IsZero() {
		l.left, l.since = l.burst, now
	}
	if more := int64(now.Sub(l.since) / l.every); more > 0 {
		l.left = int(min(int64(l.left)+more, int64(l.burst)))
		l.since = now
	}
	if l.left == 0 {
		return false
	}
	l.left--
	return true
}

// lines passes on what a worker writes, and how many lines it left out.
type lines struct {
	limiter
	emit func(string)
	out  int
}

func (l *lines) take(line string, now time.Time) {
	if !l.allow(now) {
		l.out++
		return
	}
	l.tell()
	l.emit(line)
}

// tell says how many lines were left out since the last that was not.
func (l *lines) tell() {
	if l.out > 0 {
		l.emit(fmt.Sprintf("(%d lines were left out: the worker writes too much)", l.out))
		l.out = 0
	}
}

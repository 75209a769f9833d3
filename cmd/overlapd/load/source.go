package load

import (
	"sync/atomic"
	"time"
)

// clock counts from the end of the warm-up, which has negative times.
type clock struct{ start time.Time }

func (c clock) now() time.Duration { return time.Since(c.start) }

func (c clock) time(at time.Duration) time.Time { return c.start.Add(at) }

// source tells the connections of one service when their next request is due.
// Any of them may ask at any time.
type source interface {
	// next returns false when there is no request left to send.
	next() (due time.Duration, ok bool)
}

// timetable is a source of requests whose times are fixed beforehand. Requests
// are handed out in order, so none waits while a later one has a connection.
type timetable struct {
	due    []time.Duration
	cursor atomic.Int64
}

func (t *timetable) next() (time.Duration, bool) {
	i := t.cursor.Add(1) - 1
	if i >= int64(len(t.due)) {
		return 0, false
	}
	return t.due[i], true
}

// backToBack is a source of requests that are due as soon as someone asks.
type backToBack struct {
	clock clock
	end   time.Duration
}

func (b backToBack) next() (time.Duration, bool) {
	now := b.clock.now()
	return now, now < b.end
}

// flood is a source of requests that are all due at the time 0, after a warm-up
// that goes back to back.
type flood struct {
	backToBack
	left atomic.Int64
}

func (f *flood) next() (time.Duration, bool) {
	now, ok := f.backToBack.next()
	if now < 0 || !ok {
		return now, ok
	}
	return 0, f.left.Add(-1) >= 0
}

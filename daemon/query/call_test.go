package query

import (
	"testing"
	"time"
)

func TestDeadline(t *testing.T) {
	s := &Service{QoSTarget: 100 * time.Millisecond}
	at := time.Now()
	for timeout, want := range map[time.Duration]time.Duration{0: s.QoSTarget, time.Millisecond: time.Millisecond, time.Hour: s.QoSTarget} {
		c := Call{Service: s, Arrival: at, Timeout: timeout}
		if got := c.Deadline().Sub(at); got != want {
			t.Errorf("timeout %v: deadline after %v, want %v", timeout, got, want)
		}
	}
}

// waited is a backend that notes how often calls were cancelled, and answers
// those.
type waited struct {
	Backend
	cancelled int
}

func (w *waited) Cancel(c *Call) {
	w.cancelled++
	c.Answer(Reply{})
}

// Client and answer may meet in any order; the call is cancelled once, and
// only while it is waited for.
func TestCallCancelsOnce(t *testing.T) {
	const (
		answered = iota // the call that is waited for next has its answer
		left
		wait
	)
	for name, tt := range map[string]struct {
		steps []int
		want  int
	}{
		"answered":                 {[]int{answered, wait}, 0},
		"left while waiting":       {[]int{left, wait}, 1},
		"left after the answer":    {[]int{answered, wait, left}, 0},
		"left in the second":       {[]int{answered, wait, left, wait}, 1},
		"left, and called again":   {[]int{left, wait, wait}, 2},
		"left between two of them": {[]int{answered, wait, left, wait}, 1},
	} {
		w, gone := new(waited), make(chan struct{})
		c := NewCall(&Service{Backend: w})
		for _, step := range tt.steps {
			switch step {
			case answered:
				c.Answer(Reply{})
			case left:
				close(gone)
			case wait:
				c.wait(gone)
			}
		}
		if w.cancelled != tt.want {
			t.Errorf("%s: cancelled %d times, want %d", name, w.cancelled, tt.want)
		}
	}
}

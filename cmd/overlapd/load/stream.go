package load

import (
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	// reconnectPause keeps connections that go back to back from spinning
	// while nobody listens.
	reconnectPause = 10 * time.Millisecond

	maxReasonBytes = 64
)

// Reasons that the generator gives itself.
const (
	wrongAnswer = "wrong_answer" // differs from the first answer to the same input
	unsent      = "unsent"       // no connection was free before the timeout
)

// sender is a connection with what its goroutine needs besides.
type sender struct {
	conn  *conn
	waker *waker
	turn  int // of the next request to send
}

// stream is the load on one service.
type stream struct {
	service *service
	source  source
	clock   clock
	senders []*sender
	rec     *recorder
	timeout time.Duration
	timed   bool // times are fixed beforehand; the timeout counts from them
	verify  bool
	volley  bool
}

// run sends until the source is empty or abort is called.
func (s *stream) run() {
	if s.volley {
		s.runVolleys()
		return
	}
	var wg sync.WaitGroup
	for _, w := range s.senders {
		wg.Go(func() { s.drive(w) })
	}
	wg.Wait()
}

// drive sends what is due, one request after the other.
func (s *stream) drive(w *sender) {
	var out [1]outcome
	for {
		due, ok := s.source.next()
		if !ok {
			return
		}
		out[0] = outcome{due: due, timed: s.timed}
		if !s.await(w, &out[0]) || !s.shoot(w, &out[0]) {
			return
		}
		s.rec.add(out[:])
		if out[0].reason == "connection" && !s.timed && w.waker.sleep(reconnectPause) != nil {
			return
		}
	}
}

// await sleeps until the request is due and reports whether it shall be sent.
func (s *stream) await(w *sender, o *outcome) bool {
	ahead := o.due - s.clock.now()
	o.busy = ahead < 0
	return ahead <= 0 || w.waker.sleep(ahead) == nil
}

// runVolleys sends one request on every connection, waits for all answers, and
// does so again.
func (s *stream) runVolleys() {
	outs := make([]outcome, len(s.senders))
	for {
		due, ok := s.source.next()
		if !ok || !s.shootAll(due, outs) {
			return
		}
		s.rec.add(outs)
	}
}

func (s *stream) shootAll(due time.Duration, outs []outcome) bool {
	sent := make([]bool, len(outs))
	var wg sync.WaitGroup
	for i, w := range s.senders {
		outs[i] = outcome{due: due}
		wg.Go(func() {
			sent[i] = s.shoot(w, &outs[i])
			if outs[i].reason == "connection" {
				_ = w.waker.sleep(reconnectPause) // the next volley sees an abort
			}
		})
	}
	wg.Wait()
	for _, ok := range sent {
		if !ok {
			return false
		}
	}
	return true
}

// shoot sends one request and notes what became of it. It returns false if the
// run ended first, and then the request does not count.
func (s *stream) shoot(w *sender, o *outcome) bool {
	requests := s.service.requests
	r := requests[w.turn%len(requests)]
	w.turn++
	o.sent = s.clock.now()
	expires := o.sent + s.timeout
	if s.timed {
		expires = o.due + s.timeout
	}
	if o.sent >= expires {
		o.done, o.reason = o.sent, unsent
		return true
	}
	err := w.conn.do(r.wire, s.clock.time(expires))
	o.done = s.clock.now()
	if errors.Is(err, errStopped) {
		return false
	}
	o.reason = s.judge(r, &w.conn.answer, err)
	return true
}

// judge returns why an answer counts as an error, "" if it is a good one.
func (s *stream) judge(r *request, a *fasthttp.Response, err error) string {
	switch {
	case err != nil:
		return reasonOf(err)
	case a.StatusCode() != fasthttp.StatusOK:
		return answerReason(a.StatusCode(), a.Body())
	case s.verify && !r.sameAnswer(a.Body()):
		return wrongAnswer
	}
	return ""
}

// answerReason returns the reason in the body of an error, or one made of the
// status if the body gives none.
func answerReason(status int, body []byte) string {
	var e struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(body, &e) != nil || e.Reason == "" || len(e.Reason) > maxReasonBytes {
		return "http_" + strconv.Itoa(status)
	}
	return e.Reason
}

// abort makes run return soon; requests in flight do not count.
func (s *stream) abort() {
	for _, w := range s.senders {
		w.conn.abort()
		w.waker.abort()
	}
}

func (s *stream) close() {
	for _, w := range s.senders {
		w.conn.stopDial()
		w.conn.close()
		w.waker.close()
	}
}

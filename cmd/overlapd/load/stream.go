package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
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
	turn  int // position of the next request
}

// stream is the load on one service. Its senders take requests from it: in an
// open loop in the order of the times at which they are due, so that none waits
// while a later one has a connection, in a closed one whenever they ask.
type stream struct {
	service *service
	senders []*sender
	rec     *recorder
	clock   clock
	timeout time.Duration
	verify  bool

	timed bool            // an open loop; the timeout counts from when a request is due
	due   []time.Duration // open loop only
	taken atomic.Int64    // how many times are handed out
	end   time.Duration   // closed loop only
}

// clock counts from the end of the warm-up, which has negative times.
type clock struct{ start time.Time }

func (c clock) now() time.Duration { return time.Since(c.start) }

func (c clock) time(at time.Duration) time.Time { return c.start.Add(at) }

// next returns when the next request is due, and false when there is none left
// to send.
func (s *stream) next() (due time.Duration, ok bool) {
	if !s.timed {
		now := s.clock.now()
		return now, now < s.end
	}
	if i := s.taken.Add(1) - 1; i < int64(len(s.due)) {
		return s.due[i], true
	}
	return 0, false
}

// run sends until nothing is left, or its connections are stopped.
func (s *stream) run() {
	var wg sync.WaitGroup
	for _, w := range s.senders {
		wg.Go(func() { s.drive(w) })
	}
	wg.Wait()
}

// drive sends what is due, one request after the other.
func (s *stream) drive(w *sender) {
	for {
		due, ok := s.next()
		if !ok {
			return
		}
		o := outcome{due: due, timed: s.timed}
		ahead := due - s.clock.now()
		o.busy = ahead < 0
		if ahead > 0 && w.waker.sleep(ahead) != nil || !s.shoot(w, &o) {
			return
		}
		s.rec.add(&o)
		if o.reason == "connection" && !s.timed && w.waker.sleep(reconnectPause) != nil {
			return
		}
	}
}

// shoot sends one request and sets what became of it. It returns false if the
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

// waker lets one goroutine sleep until a time and wake some microseconds after
// it. The timers of Go wake up to a millisecond late when the process is idle,
// because they wait in epoll, whose timeout is in milliseconds; a timerfd is an
// event like any other and holds no thread while it waits.
type waker struct {
	file    *os.File
	fd      int
	release func() bool // lets go of the context
}

func newWaker(run context.Context) (*waker, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: timer: %w", err)
	}
	w := &waker{file: os.NewFile(uintptr(fd), "timer"), fd: fd}
	w.release = context.AfterFunc(run, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })
	return w, nil
}

// sleep returns after d, or earlier with an error once the run has ended.
func (w *waker) sleep(d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(d), 1))}
	if err := unix.TimerfdSettime(w.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("load: timer: %w", err)
	}
	var expirations [8]byte
	_, err := w.file.Read(expirations[:])
	return err
}

func (w *waker) close() {
	w.release()
	w.file.Close()
}

package http

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	page "github.com/overlapd/overlapd/daemon/observe/dashboard"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// maxWatchers is how many clients may have the events at once.
	maxWatchers = 16

	// frameEvery is the least time between two frames of events, and restEvery
	// that while nothing runs.
	frameEvery = 500 * time.Millisecond
	restEvery  = time.Second

	// frameRounds is how many rounds a frame holds, the latest ones.
	frameRounds = 64

	// slowWatcher is how long a client may take to read a frame before it is
	// dropped.
	slowWatcher = 5 * time.Second
)

var (
	errWatchers = query.Unavailable(query.ReasonWatchers, "too many clients watch this daemon: close a dashboard")
	errSince    = query.Invalid("since must be the number of a round: the next of the answer before, or 0")
)

// ringOf returns the timeline that a request asks for: that of the first
// instance, unless it names another.
func (e *Endpoint) ringOf(ctx *fasthttp.RequestCtx) (*timeline.Ring, *query.Error) {
	rings, n := e.host.Timelines(), 0
	if v := ctx.QueryArgs().Peek("instance"); v != nil {
		var err error
		if n, err = strconv.Atoi(string(v)); err != nil || n < 0 || n >= len(rings) {
			return nil, query.Invalid("instance must be a number from 0 to %d", len(rings)-1)
		}
	}
	return rings[n], nil
}

// sinceOf returns after what a request asks to be told, the latest if it does
// not say.
func sinceOf(ctx *fasthttp.RequestCtx) (since uint64, ok bool) {
	v := ctx.QueryArgs().Peek("since")
	if v == nil {
		return timeline.Latest, true
	}
	since, err := strconv.ParseUint(string(v), 10, 63)
	return since, err == nil
}

// answerTimeline answers with the rounds after one, or with the latest ones.
func (e *Endpoint) answerTimeline(ctx *fasthttp.RequestCtx) {
	ring, fault := e.ringOf(ctx)
	if fault != nil {
		writeError(ctx, fault)
		return
	}
	since, ok := sinceOf(ctx)
	if !ok {
		writeError(ctx, errSince)
		return
	}
	text, err := json.Marshal(ring.Read(since, timeline.PageRounds, nil))
	if err != nil {
		writeError(ctx, query.ErrInternal)
		return
	}
	e.writeJSON(ctx, text)
}

// answerDashboard sends the page.
func (e *Endpoint) answerDashboard(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	h.Set("Content-Security-Policy", page.Policy())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set(fasthttp.HeaderCacheControl, "no-cache")
	ctx.SetContentType("text/html; charset=utf-8")
	e.tell(ctx, page.Page())
}

// watchers are the clients that have the events, and the overview that they
// share: the loop is asked no more often however many there are.
type watchers struct {
	count atomic.Int32

	mu struct {
		sync.Mutex
		at       time.Time
		overview json.RawMessage
	}
}

// overviewOf returns the overview of now or of a moment ago, or null if the
// loop does not tell.
func (w *watchers) overviewOf(e *Endpoint) json.RawMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.overview != nil && time.Since(w.mu.at) < frameEvery/2 {
		return w.mu.overview
	}
	text, ok := e.overview()
	if !ok {
		text = json.RawMessage("null")
	}
	w.mu.at, w.mu.overview = time.Now(), text
	return text
}

// answerEvents sends the events for as long as the client reads them and the
// daemon serves.
func (e *Endpoint) answerEvents(ctx *fasthttp.RequestCtx) {
	ring, fault := e.ringOf(ctx)
	if fault != nil {
		writeError(ctx, fault)
		return
	}
	if e.watchers.count.Add(1) > maxWatchers {
		e.watchers.count.Add(-1)
		writeError(ctx, errWatchers)
		return
	}
	ctx.SetContentType("text/event-stream")
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	ctx.Response.Header.Set("X-Accel-Buffering", "no")
	ctx.SetConnectionClose()
	if ctx.IsHead() {
		e.watchers.count.Add(-1)
		return
	}
	s := &events{endpoint: e, ring: ring, stopped: ctx.Done(), since: timeline.Latest}
	s.conn, _ = ctx.Conn().(*conn)
	s.authorization = bytes.Clone(ctx.Request.Header.Peek(fasthttp.HeaderAuthorization))
	ctx.Response.SetBodyStream(s, -1)
}

// events is the body of the answer to one watcher: reading it waits for the
// next frame.
type events struct {
	endpoint *Endpoint
	ring     *timeline.Ring
	conn     *conn // nil in tests without a socket
	stopped  <-chan struct{}

	authorization []byte // what let the client in; the events end when it does so no more
	since         uint64
	page          *timeline.Page
	sent          time.Time // the last frame, zero before the first
	rest          []byte    // of the frame, not read yet
}

// frame is what one event holds.
type frame struct {
	Overview json.RawMessage `json:"overview"`
	Timeline *timeline.Page  `json:"timeline"`

	Recent []timeline.Service `json:"recent"` // of all instances
}

func (s *events) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if !s.wait() {
			return 0, io.EOF
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close counts the watcher off.
func (s *events) Close() error {
	s.endpoint.watchers.count.Add(-1)
	return nil
}

// wait waits until the next frame is due. It reports false if there is to be
// none.
func (s *events) wait() bool {
	for tick := time.Until(s.sent.Add(frameEvery)); ; tick = frameEvery {
		select {
		case <-s.stopped:
			return false
		case <-time.After(max(tick, 0)):
		}
		if s.conn != nil && s.conn.gone() || !s.endpoint.access.Allows(s.authorization) {
			return false
		}
		if s.page == nil || s.ring.Changed(s.since) || time.Since(s.sent) >= restEvery {
			return true
		}
	}
}

// next writes the next frame. The rounds that do not fit in are those that a
// person would not see.
func (s *events) next() error {
	ring, e := s.ring, s.endpoint
	if s.conn != nil {
		if err := s.conn.SetWriteDeadline(time.Now().Add(slowWatcher)); err != nil {
			return err
		}
	}
	if s.page == nil {
		s.page = ring.Read(timeline.Latest, timeline.PageRounds, nil)
	} else {
		s.page = ring.ReadLatest(s.since, frameRounds, s.page)
	}
	s.since, s.sent = s.page.Next, time.Now()
	text, err := json.Marshal(frame{e.watchers.overviewOf(e), s.page, e.recent()})
	if err != nil {
		return err
	}
	s.rest = append(append([]byte("data: "), text...), "\n\n"...)
	return nil
}

// recent returns what became of the last queries of every service.
func (e *Endpoint) recent() (all []timeline.Service) {
	for _, ring := range e.host.Timelines() {
		all = append(all, ring.Services()...)
	}
	return all
}

// answerQueries answers with the queries that ended after so many, or with how
// many there were.
func (e *Endpoint) answerQueries(ctx *fasthttp.RequestCtx) {
	ring, fault := e.ringOf(ctx)
	if fault != nil {
		writeError(ctx, fault)
		return
	}
	since, ok := sinceOf(ctx)
	if !ok {
		writeError(ctx, errQueriesSince)
		return
	}
	text, err := json.Marshal(ring.ReadQueries(since))
	if err != nil {
		writeError(ctx, query.ErrInternal)
		return
	}
	e.writeJSON(ctx, text)
}

var errQueriesSince = query.Invalid("since must be a number of queries: the next of the answer before, or 0")

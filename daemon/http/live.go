package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
)

const (
	// maxWatchers is the number of clients that may stream events at the same time.
	maxWatchers = 16

	// frameEvery is the minimum interval between frames, restEvery the interval while no
	// round runs.
	frameEvery = 500 * time.Millisecond
	restEvery  = time.Second

	// frameRounds is the number of rounds in a frame. If there were more, it has the
	// latest.
	frameRounds = 64

	// slowWatcher is how long a client may take to read a frame before it is disconnected.
	slowWatcher = 5 * time.Second
)

// events is the response body of one client that streams events (text/event-stream). Read
// blocks until the next frame is due, so fasthttp's goroutine of the connection paces the
// stream.
type events struct {
	pages *pages
	ring  *timeline.Ring

	// conn is nil in tests without a socket.
	conn    *conn
	stopped <-chan struct{}

	// allowed reports whether the client's token is still valid.
	allowed func() bool
	since   uint64
	page    *timeline.Page

	// sent is the time of the last frame, zero before the first.
	sent time.Time

	// rest is the unread part of the frame.
	rest bytes.Reader
}

// frame is the payload of one event.
type frame struct {
	// Overview is null if the loop does not publish a status.
	Overview json.RawMessage `json:"overview"`
	Timeline *timeline.Page  `json:"timeline"`

	// Recent has the outcome of the last queries of each service.
	Recent []timeline.Service `json:"recent"`
}

// Read implements io.Reader. It returns io.EOF when the stream ends.
func (s *events) Read(p []byte) (int, error) {
	if s.rest.Len() == 0 {
		if !s.wait() {
			return 0, io.EOF
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	return s.rest.Read(p)
}

// Close makes room for another watcher.
func (s *events) Close() error {
	s.pages.watchers.Add(-1)
	return nil
}

// wait blocks until the next frame is due. It returns false if the stream has ended: the
// endpoint stops, the client has gone, or its token was revoked.
func (s *events) wait() bool {
	for tick := time.Until(s.sent.Add(frameEvery)); ; tick = frameEvery {
		select {
		case <-s.stopped:
			return false
		case <-time.After(max(tick, 0)):
		}
		if s.conn != nil && s.conn.here.Err() != nil || !s.allowed() {
			return false
		}
		if s.page == nil || s.ring.Changed(s.since) || time.Since(s.sent) >= restEvery {
			return true
		}
	}
}

// next prepares the next frame. The first has a whole page of rounds. Later ones skip
// rounds that do not fit, since nobody could follow them.
func (s *events) next() error {
	ring := s.ring
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
	f := frame{Overview: json.RawMessage("null"), Timeline: s.page}
	if text, ok := s.pages.overview(); ok {
		f.Overview = text
	}
	f.Recent = s.pages.Timeline.Services()
	// json.Marshal leaves no line feed in the text, so the event has a single data line.
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	s.rest.Reset(fmt.Appendf(nil, "data: %s\n\n", text))
	return nil
}

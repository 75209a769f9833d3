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

// events is the body of the answer to one watcher: reading it waits for the
// next frame.
type events struct {
	pages   *pages
	ring    *timeline.Ring
	conn    *conn // nil in tests without a socket
	stopped <-chan struct{}

	allowed func() bool // whether the client may still have the events
	since   uint64
	page    *timeline.Page
	sent    time.Time    // the last frame, zero before the first
	rest    bytes.Reader // the frame, as far as it is not read yet
}

// frame is what one event holds.
type frame struct {
	Overview json.RawMessage `json:"overview"` // null if the loop does not publish one
	Timeline *timeline.Page  `json:"timeline"`

	// Recent is what became of the last queries of every service.
	Recent []timeline.Service `json:"recent"`
}

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

// Close counts the watcher off.
func (s *events) Close() error {
	s.pages.watchers.Add(-1)
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
		if s.conn != nil && s.conn.here.Err() != nil || !s.allowed() {
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
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	s.rest.Reset(fmt.Appendf(nil, "data: %s\n\n", text))
	return nil
}

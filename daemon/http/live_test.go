package http

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	page "github.com/overlapd/overlapd/daemon/observe/dashboard"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// play puts so many rounds into the timeline of the fake.
func (s *server) play(rounds int) {
	list := []models.Service{{Operators: 2}}
	for range rounds {
		r := overlap.Round{Number: s.timeline.Read(timeline.Latest, 1, nil).Next + 1}
		r.Predicted.Latency = time.Millisecond
		s.timeline.Observe(&observe.Event{Kind: observe.Dispatched, Round: &r, Why: &overlap.Explanation{}, Services: list})
		s.timeline.Observe(&observe.Event{Kind: observe.Ended, At: time.Second, Outcome: &models.Outcome{Round: r.Number, Took: 2 * time.Millisecond}})
	}
}

// pageOf decodes a timeline.
func pageOf(t *testing.T, a answered) (p timeline.Page) {
	t.Helper()
	if err := json.Unmarshal(a.body, &p); err != nil || a.status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", a.status, err, a.body)
	}
	return p
}

// The history has a value for each step since the start.
func TestHistoryRoute(t *testing.T) {
	s := serve(t, testLimits())
	s.play(5)
	var h timeline.History
	if a := s.get("/overlapd/history"); a.status != http.StatusOK || json.Unmarshal(a.body, &h) != nil ||
		len(h.Busy) == 0 || h.Busy[0] != 10*time.Millisecond || len(h.InTime) != len(h.Busy) || h.Lost == nil {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The load is answered whether the scheduler is alive or not, and says which.
func TestLoadRoute(t *testing.T) {
	s := serve(t, testLimits())
	for _, dead := range []bool{false, true} {
		s.Dead.Store(dead)
		var l status.Load
		if a := s.get("/overlapd/load"); a.status != http.StatusOK || json.Unmarshal(a.body, &l) != nil ||
			l.Stalled != dead || l.DevicesDemanded != 1 || l.Services["simple"].Headroom != 1 {
			t.Errorf("dead: %t: %d %s", dead, a.status, a.body)
		}
	}
}

func TestTimelineRoute(t *testing.T) {
	s := serve(t, testLimits())
	if p := pageOf(t, s.get("/overlapd/timeline")); p.Rounds == nil || p.Services[0].Name != "simple" || p.Next != 0 {
		t.Errorf("of a daemon that has just started: %+v", p)
	}
	s.play(5)
	if p := pageOf(t, s.get("/overlapd/timeline")); len(p.Rounds) != 5 || p.Next != 5 {
		t.Errorf("the latest: %+v", p)
	}
	if p := pageOf(t, s.get("/overlapd/timeline?since=3")); len(p.Rounds) != 2 || p.Rounds[0].Number != 4 {
		t.Errorf("since 3: %+v", p)
	}
	for _, since := range []string{"", "-1", "x", "9223372036854775808"} {
		a := s.get("/overlapd/timeline?since=" + since)
		if message, reason := a.failure(t); a.status != 400 || reason != query.ReasonInvalid || !strings.Contains(message, "number of a round") {
			t.Errorf("since=%s: %d %s", since, a.status, a.body)
		}
	}
	s.live()
}

// watchEvents opens the events and returns what reads its frames.
func (s *server) watchEvents() (next func() (frame, bool), leave func()) {
	s.t.Helper()
	c := s.dial()
	if _, err := c.Write(rawRequest("GET", "/overlapd/events", nil, nil)); err != nil {
		s.t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("%v, %+v", err, r)
	}
	lines := bufio.NewReader(r.Body)
	return func() (f frame, ok bool) {
		s.t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return f, false
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(data), &f); err != nil {
					s.t.Fatalf("%v: %s", err, data)
				}
				return f, true
			}
		}
	}, func() { c.Close() }
}

// The first frame has what is remembered, the next what came since.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := serve(t, testLimits())
	s.play(10)
	next, leave := s.watchEvents()
	f, ok := next()
	if !ok || len(f.Timeline.Rounds) != 10 || len(f.Recent) != 1 || !strings.Contains(string(f.Overview), `"policy":"edf"`) {
		t.Fatalf("%t: %+v", ok, f)
	}
	s.play(2)
	if f, ok = next(); !ok || len(f.Timeline.Rounds) != 2 || f.Timeline.Rounds[0].Number != 11 {
		t.Errorf("%t: %+v", ok, f.Timeline)
	}
	s.play(frameRounds + 6)
	if f, ok = next(); !ok || len(f.Timeline.Rounds) != frameRounds || f.Timeline.Missed != 6 {
		t.Errorf("%t: %d rounds, %d missed", ok, len(f.Timeline.Rounds), f.Timeline.Missed)
	}
	s.Dead.Store(true) // the loop does not answer
	s.play(1)
	for ok && string(f.Overview) != "null" {
		f, ok = next()
	}
	if !ok {
		t.Error("the events end because the loop does not answer")
	}
	s.Dead.Store(false)
	leave()
	eventually(t, "the watcher to be counted off", func() bool { return s.endpoint.pages.watchers.Load() == 0 })
	s.live()
}

// A frame comes while nothing happens, too: it shows that the daemon lives.
func TestEventsOfAnIdleDaemon(t *testing.T) {
	t.Parallel()
	s := serve(t, testLimits())
	next, _ := s.watchEvents()
	for range 2 {
		if f, ok := next(); !ok || len(f.Timeline.Rounds) != 0 {
			t.Errorf("%t: %+v", ok, f.Timeline)
		}
	}
}

// The number of watchers is limited. Existing ones stay, and another may watch once one
// has left.
func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, testLimits())
	var leave []func()
	var first func() (frame, bool)
	for i := range maxWatchers {
		next, l := s.watchEvents()
		leave = append(leave, l)
		if i == 0 {
			first = next
		}
	}
	a := s.get("/overlapd/events")
	if _, reason := a.failure(t); a.status != http.StatusServiceUnavailable || reason != query.ReasonWatchers || a.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d %s", a.status, a.body)
	}
	if _, ok := first(); !ok {
		t.Error("one that was there is dropped")
	}
	leave[1]()
	eventually(t, "one to leave", func() bool { return s.endpoint.pages.watchers.Load() < maxWatchers })
	next, _ := s.watchEvents()
	if _, ok := next(); !ok {
		t.Error("none may come though one has left")
	}
	leave[2]()
	eventually(t, "one to leave", func() bool { return s.endpoint.pages.watchers.Load() < maxWatchers })
	r, err := http.Head("http://" + s.addr.String() + "/overlapd/events")
	if err != nil || r.StatusCode != http.StatusOK || s.endpoint.pages.watchers.Load() != maxWatchers-1 {
		t.Errorf("HEAD: %v, %+v, and %d watch", err, r, s.endpoint.pages.watchers.Load())
	}
}

// A client that reads nothing is dropped once its socket is full.
func TestSlowWatcherIsDropped(t *testing.T) {
	s := serve(t, testLimits())
	e := &events{pages: s.endpoint.pages, allowed: func() bool { return true }, ring: s.timeline, stopped: make(chan struct{}), since: timeline.Latest}
	s.endpoint.pages.watchers.Add(1)
	client, nc := net.Pipe()
	defer client.Close()
	defer nc.Close()
	e.conn = newConn(nc, &listener{}, nil)
	if err := e.next(); err != nil {
		t.Fatal(err)
	}
	if err := nc.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil { // five seconds have passed
		t.Fatal(err)
	}
	if _, err := io.Copy(nc, io.LimitReader(e, 1<<20)); err == nil {
		t.Error("writing to a client that does not read goes on")
	}
	e.Close()
}

// Shutting down ends the events at once.
func TestShutdownEndsEvents(t *testing.T) {
	s := serve(t, testLimits())
	next, _ := s.watchEvents()
	if _, ok := next(); !ok {
		t.Fatal("no frame")
	}
	over := make(chan bool)
	go func() {
		ok := true
		for ok {
			_, ok = next()
		}
		close(over)
	}()
	if err := s.endpoint.server.Shutdown(); err != nil {
		t.Error(err)
	}
	<-over
}

func TestDashboardRoute(t *testing.T) {
	s := serve(t, testLimits())
	a := s.get("/")
	html, policy := page.Page()
	if a.status != http.StatusOK || string(a.body) != html || a.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%d, %v", a.status, a.header)
	}
	if a.header.Get("Content-Security-Policy") != policy || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", a.header)
	}
	foreign := s.exchange([]byte("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
	if foreign.status != http.StatusForbidden {
		t.Errorf("a foreign Host gets %d", foreign.status)
	}
	for _, path := range []string{"/overlapd/timeline", "/overlapd/events", "/"} {
		if a := s.exchange(rawRequest("POST", path, nil, []byte("x"))); a.status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, a.status)
		}
		a := s.exchange([]byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\r\n"))
		if a.status != http.StatusForbidden {
			t.Errorf("%s for a foreign Origin: %d", path, a.status)
		}
	}
}

func TestQueriesRoute(t *testing.T) {
	s := serve(t, testLimits())
	s.timeline.Observe(&observe.Event{
		Kind: observe.Answered, Call: &query.Call{QueryID: 5, Service: new(query.Service)}, Answer: &overlap.Answer{Query: 5, Result: overlap.Finished},
	})
	page := func(path string) (p timeline.QueryPage) {
		t.Helper()
		a := s.get(path)
		if err := json.Unmarshal(a.body, &p); err != nil || a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return p
	}
	if p := page("/overlapd/queries"); len(p.Queries) != 0 || p.Next != 1 {
		t.Errorf("%+v", p)
	}
	if p := page("/overlapd/queries?since=0"); len(p.Queries) != 1 || p.Queries[0].ID != 5 || p.Queries[0].Service != "simple" {
		t.Errorf("%+v", p)
	}
	for _, bad := range []string{"since=", "since=-1"} {
		if a := s.get("/overlapd/queries?" + bad); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
	s.live()
}

// BenchmarkFrame is what a frame of the dashboard costs.
func BenchmarkFrame(b *testing.B) {
	s := serve(b, testLimits())
	e := &events{pages: s.endpoint.pages, allowed: func() bool { return true }, ring: s.timeline, since: timeline.Latest}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s.play(2 * frameRounds)
		b.StartTimer()
		if err := e.next(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(e.rest.Len()), "bytes")
}

package http

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/query"
)

func dropped(c *query.Call) query.Reply {
	return query.Reply{Err: &query.Error{Status: http.StatusServiceUnavailable, Reason: query.ReasonCancelled, Message: "cancelled"}}
}

// Queued or running is the same to the endpoint: the backend has the call.
func TestDeparture(t *testing.T) {
	s := serve(t, testLimits())
	s.Hold.Store(true)
	infer := rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple("")))
	leaves, stays := s.sent(infer), s.sent(infer)
	s.WaitHeld(2)
	leaves.Close()
	eventually(t, "the call to be cancelled", func() bool { return s.Cancelled() == 1 })
	s.AnswerHeld(s.Run)
	if a := s.read(stays); a.status != http.StatusOK {
		t.Errorf("5-7: the client that stays gets %d %s", a.status, a.body)
	}
	s.settle()
	if n := s.Cancelled(); n != 1 {
		t.Errorf("Cancel was called %d times", n)
	}
	s.Hold.Store(false)
	s.live()
}

func TestDepartureMidRequest(t *testing.T) {
	s := serve(t, testLimits())
	raw := rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple("")))
	for _, n := range []int{1, 20, len(raw) - 100, len(raw) - 1} {
		s.sent(raw[:n]).Close()
	}
	eventually(t, "the connections to be closed", func() bool { return s.watched() == 0 })
	s.settle()
	s.live()
	if n := s.Cancelled(); n != 0 {
		t.Errorf("Cancel was called %d times for requests that never came", n)
	}
}

// A connection that is used for many requests is cancelled for the one that
// it waits for, and only for it.
func TestDepartureOfReusedConnection(t *testing.T) {
	s := serve(t, testLimits())
	infer := rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple("")))
	c := s.dial()
	for range 3 {
		c.Write(infer)
		s.read(c)
	}
	s.Hold.Store(true)
	c.Write(infer)
	s.WaitHeld(1)
	c.Close()
	eventually(t, "the call to be cancelled", func() bool { return s.Cancelled() == 1 })
	s.AnswerHeld(dropped)
	s.settle()
	idle := s.dial()
	idle.Write(rawRequest("GET", "/v2", nil, nil))
	s.read(idle)
	idle.Close()
	eventually(t, "the connection to be closed", func() bool { return s.watched() == 0 })
	if n := s.Cancelled(); n != 1 {
		t.Errorf("Cancel was called %d times", n)
	}
}

// Departures, answers and new requests race here; under the race detector
// this finds calls that are touched after Release.
func TestDepartureRaces(t *testing.T) {
	s := serve(t, testLimits())
	s.Hold.Store(true)
	infer := rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple("")))
	stop := make(chan struct{})
	var answering, clients sync.WaitGroup
	answering.Go(func() {
		for {
			s.AnswerHeld(s.Run)
			select {
			case <-stop:
				s.AnswerHeld(s.Run)
				return
			default:
			}
		}
	})
	for range 8 {
		clients.Go(func() {
			for range 40 {
				s.sent(infer).Close()
			}
		})
	}
	clients.Wait()
	s.Hold.Store(false) // some connections, already closed, are still to be accepted and their requests read
	close(stop)
	answering.Wait()
	eventually(t, "the connections to be closed", func() bool { return s.watched() == 0 })
}

// A request that has come half does not hold the daemon up until read_timeout.
func TestHalfSentRequestsDoNotHoldShutdown(t *testing.T) {
	l := testLimits()
	l.ReadTimeout = time.Hour
	s := serve(t, l)
	infer := rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple("")+strings.Repeat(" ", 20<<10)))
	half := map[string]net.Conn{"a header": s.sent(infer[:30]), "the beginning of a body": s.sent(infer[:1000]), "half of a body": s.sent(infer[:15<<10])}
	eventually(t, "the requests to be read", func() bool {
		read := 0
		w := s.endpoint.watch
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.mu.conns {
			if c.spoken.Load() {
				read++
			}
		}
		return read == len(half) && s.endpoint.bodies.memory.Used() > 0
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.endpoint.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for name, c := range half {
		if a, err := readAnswer(bufio.NewReader(c)); err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), query.ReasonDraining) {
			t.Errorf("%s: %d %s %v", name, a.status, a.body, err)
		}
	}
}

func TestShutdownAnswersWhatWasAccepted(t *testing.T) {
	s := serve(t, testLimits())
	s.Hold.Store(true)
	c := s.sent(rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple(""))))
	s.WaitHeld(1)
	down := make(chan error, 1)
	go func() { down <- s.endpoint.server.Shutdown() }()
	eventually(t, "the listener to be closed", func() bool {
		nc, err := dialOnce(s)
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
	s.AnswerHeld(s.Run)
	if a := s.read(c); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// scarce is a listener that is out of descriptors now and then.
type scarce struct {
	net.Listener
	failures atomic.Int32
}

func (l *scarce) Accept() (net.Conn, error) {
	if l.failures.Add(1)%2 == 1 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestOutOfDescriptors(t *testing.T) {
	s := serve(t, testLimits())
	ln, err := access.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.endpoint.Serve(&scarce{Listener: ln}) }()
	other := &server{fake: s.fake, t: t, endpoint: s.endpoint, addr: ln.Addr()}
	for range 3 {
		other.live()
	}
	ln.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// A connection without a descriptor cannot be watched and is not kept.
func TestWatchNeedsADescriptor(t *testing.T) {
	e := unserved(t, nil)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := newConn(ours, &listener{watch: e.watch}, e.places.Take(ours.RemoteAddr()))
	if err := e.watch.add(c); err == nil {
		t.Error("a pipe in memory is watched")
	}
	c.Close()
	c.Close()
	if watched, open := len(e.watch.mu.conns), e.places.Used(); watched != 0 || open != 0 {
		t.Errorf("%d connections are watched, %d are open", watched, open)
	}
}

// An event that was under way when its connection was closed finds nothing,
// even if the descriptor has a new owner.
func TestTokensAreNotUsedTwice(t *testing.T) {
	s := serve(t, testLimits())
	seen := map[uint64]bool{}
	for range 20 {
		c := s.dial()
		eventually(t, "the connection", func() bool { return s.watched() == 1 })
		w := s.endpoint.watch
		w.mu.Lock()
		for token := range w.mu.conns {
			if seen[token] {
				t.Errorf("token %d again", token)
			}
			seen[token] = true
		}
		w.mu.Unlock()
		c.Close()
		eventually(t, "the connection to be closed", func() bool { return s.watched() == 0 })
	}
}

// A shutdown does not wait for connections that were opened in advance.
func TestShutdownClosesSilentConnections(t *testing.T) {
	s := serve(t, testLimits())
	for range 3 {
		s.dial()
	}
	speaks := s.dial()
	speaks.Write([]byte("GET /"))
	eventually(t, "the connections to be accepted", func() bool { return s.watched() == 4 && s.spoken() == 1 })
	s.endpoint.watch.stop()
	eventually(t, "the silent ones to be closed", func() bool { return s.watched() == 1 })
	closed(t, "one that comes later", s.dial())
	speaks.Write([]byte("v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	if a := s.read(speaks); a.status != http.StatusOK {
		t.Errorf("the one that has begun a request: %d", a.status)
	}
}

// Where the listening socket outlives the endpoint, a connection that was accepted is served
// although the endpoint stops, and closed with the answer.
func TestShutdownServesWhoIsConnected(t *testing.T) {
	f := newFake(t)
	e := endpointOf(t, f, testLimits(), func(o *Options) { o.Lasting = true })
	ln, err := access.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	s := &server{fake: f, t: t, endpoint: e, addr: ln.Addr()}
	silent, kept := s.dial(), s.dial()
	kept.Write(rawRequest("GET", "/v2/health/live", nil, nil))
	s.read(kept)
	eventually(t, "the connections to be accepted", func() bool { return s.watched() == 2 })
	ln.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	down := make(chan error, 1)
	go func() { down <- e.Shutdown(context.Background()) }()
	eventually(t, "the endpoint to stop", e.watch.stopping)
	for what, c := range map[string]net.Conn{"a new connection": silent, "one that was used": kept} {
		c.Write(rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple(""))))
		if a := s.read(c); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
		closed(t, what, c)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	s.settle()
}

// spoken returns how many connections have sent something.
func (s *server) spoken() (n int) {
	w := s.endpoint.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.conns {
		if c.spoken.Load() {
			n++
		}
	}
	return n
}

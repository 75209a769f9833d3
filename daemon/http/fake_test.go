package http

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/daemon/text"
	"github.com/overlapd/overlapd/models"
)

// fake is a backend, and the host of an endpoint.
type fake struct {
	*backend
	timeline *timeline.Ring
}

func newFake(t testing.TB) *fake {
	return &fake{newBackend(t), timeline.New(time.Now(), []models.Service{{Name: "simple", Operators: 2, QoSTarget: time.Second}})}
}

func (f *fake) Status() (*status.Status, bool) {
	return &status.Status{Policy: "edf", Services: []status.Service{}}, !f.Dead.Load()
}

// queriesOf returns what serves the queries of a host within limits.
func queriesOf(h query.Host, l config.Limits) *query.Server {
	return &query.Server{
		Host: h, Memory: query.NewBudget(l.MemoryBytes), Connections: query.NewPlaces(l.Connections),
		Version: "test", Log: zerolog.Nop(),
	}
}

// endpointOf returns an endpoint with a fake behind it, whose options change may
// change.
func endpointOf(t testing.TB, f *fake, l config.Limits, change func(*Options)) *Endpoint {
	t.Helper()
	q := queriesOf(f, l)
	o := Options{Queries: q, Texts: text.New(q, nil), Status: f.Status, Timeline: f.timeline}
	if change != nil {
		change(&o)
	}
	e, err := NewEndpoint(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// server is an endpoint on a socket with a fake behind it.
type server struct {
	*fake
	t        testing.TB
	endpoint *Endpoint
	addr     net.Addr
}

func testLimits() config.Limits {
	l := config.Default().Limits
	l.IdleTimeout = 20 * time.Second
	return l
}

func serve(t testing.TB, l config.Limits) *server { return serveAt(t, l, "127.0.0.1:0") }

func serveAt(t testing.TB, l config.Limits, address string) *server {
	t.Helper()
	f := newFake(t)
	e := endpointOf(t, f, l, nil)
	ln, err := access.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{fake: f, t: t, endpoint: e, addr: ln.Addr()}
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		e.Shutdown(ctx)
		ln.Close() // if Serve had not begun, Shutdown found nothing to close
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		s.settle()
	})
	return s
}

// settle fails the test if any memory of a query or a request is still out.
func (s *server) settle() {
	s.t.Helper()
	eventually(s.t, "memory to come back", func() bool {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return s.Mu.Out == 0 && s.endpoint.bodies.memory.Used() == 0
	})
}

// watched returns how many connections are open.
func (s *server) watched() int {
	w := s.endpoint.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.conns)
}

func dialOnce(s *server) (net.Conn, error) { return net.Dial(s.addr.Network(), s.addr.String()) }

func (s *server) dial() net.Conn {
	s.t.Helper()
	c, err := dialOnce(s)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// reply is an answer as a client sees it.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// failure returns the error that the answer is, or fails the test.
func (a answered) failure(t testing.TB) (message, reason string) {
	t.Helper()
	var e struct{ Error, Reason string }
	if err := json.Unmarshal(a.body, &e); err != nil || e.Error == "" || e.Reason == "" {
		t.Fatalf("status %d: the body is no error: %q", a.status, a.body)
	}
	if got := a.header.Get("Content-Type"); got != contentJSON {
		t.Errorf("an error of type %q", got)
	}
	return e.Error, e.Reason
}

// exchange sends raw bytes and reads one answer.
func (s *server) exchange(raw []byte) answered {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	go c.Write(raw)
	return s.read(c)
}

func (s *server) read(c net.Conn) answered {
	s.t.Helper()
	a, err := readAnswer(bufio.NewReader(c))
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func readAnswer(r *bufio.Reader) (answered, error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header, b}, err
}

// request returns the bytes of a request.
func rawRequest(method, path string, header map[string]string, body []byte) []byte {
	b := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path)
	for k, v := range header {
		b = fmt.Appendf(b, "%s: %s\r\n", k, v)
	}
	if body != nil && header["Transfer-Encoding"] == "" {
		b = fmt.Appendf(b, "Content-Length: %d\r\n", len(body))
	}
	return append(append(b, "\r\n"...), body...)
}

func (s *server) get(path string) answered {
	s.t.Helper()
	return s.exchange(rawRequest("GET", path, nil, nil))
}

func (s *server) infer(service, body string) answered {
	s.t.Helper()
	return s.exchange(rawRequest("POST", "/v2/models/"+service+"/infer", nil, []byte(body)))
}

// live fails the test if the daemon does not answer any more.
func (s *server) live() {
	s.t.Helper()
	if a := s.get("/v2/health/live"); a.status != http.StatusOK {
		s.t.Fatalf("health/live answers %d %s", a.status, a.body)
	}
}

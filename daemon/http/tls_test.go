package http

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/internal/fakes/fakeca"
)

func (g *guardedServer) secure() *tls.Conn {
	g.t.Helper()
	c, err := g.dialTLS(g.ca.Client(""))
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// Requests, answers and limits are over TLS what they are without it.
func TestTLSAnswers(t *testing.T) {
	l := testLimits()
	l.RequestBytes = 1 << 20
	g := serveGuarded(t, l, true, testToken, nil)
	if a := g.ask(rawRequest("POST", "/v2/models/simple/infer", bearer(testToken), []byte(simple("")))); a.status != 200 {
		t.Errorf("infer: %d %s", a.status, a.body)
	}
	if a := g.ask(rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple("")))); a.status != 401 {
		t.Errorf("without a token: %d %s", a.status, a.body)
	}
	c := g.secure()
	for range 3 {
		c.Write(rawRequest("GET", "/v2", bearer(testToken), nil))
		if a := g.read(c); a.status != 200 {
			t.Errorf("again: %d %s", a.status, a.body)
		}
	}
	// An answer before the body is read gets through although the rest comes.
	large := rawRequest("POST", "/v2/models/simple/infer", bearer(testToken), make([]byte, l.RequestBytes+1))
	if a := g.ask(large); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %d %s", a.status, a.body)
	}
	if got := c.ConnectionState(); got.Version != tls.VersionTLS13 {
		t.Errorf("version %#x", got.Version)
	}
}

// The departure of a client cancels its query over TLS, too, whether it says
// goodbye or just closes.
func TestTLSDeparture(t *testing.T) {
	g := serveGuarded(t, testLimits(), true, "", nil)
	g.Hold.Store(true)
	infer := rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple("")))
	var conns [3]*tls.Conn
	for i := range conns {
		conns[i] = g.secure()
		conns[i].Write(infer)
	}
	g.WaitHeld(3)
	conns[0].Close()           // with close_notify
	conns[1].NetConn().Close() // without
	eventually(t, "the calls to be cancelled", func() bool { return g.Cancelled() == 2 })
	g.AnswerHeld(g.Run)
	if a := g.read(conns[2]); a.status != 200 {
		t.Errorf("the client that stays gets %d %s", a.status, a.body)
	}
	g.settle()
	if n := g.Cancelled(); n != 2 {
		t.Errorf("Cancel was called %d times", n)
	}
}

// A peer that says nothing, or says it slowly, is let go.
func TestSlowHandshake(t *testing.T) {
	t.Parallel()
	l := testLimits()
	l.ReadTimeout = 50 * time.Millisecond
	if l.ReadTimeout > handshakeTime {
		t.Fatal("the handshake would end first")
	}
	g := serveGuarded(t, l, true, "", nil)
	silent, slow, half := g.dial(), g.dial(), g.dial()
	half.Write([]byte{22, 3, 1, 2, 0, 1}) // the begin of a record
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for _, b := range append([]byte{22, 3, 1, 0x40, 0}, make([]byte, 1<<14)...) {
			if _, err := slow.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	closed(t, "silent", silent)
	closed(t, "half a record", half)
	closed(t, "slow", slow)
	<-stop
	eventually(t, "the connections to be forgotten", func() bool { return g.watched() == 0 })
}

// Who speaks HTTP where TLS is spoken is told so.
func TestPlainRequest(t *testing.T) {
	g := serveGuarded(t, testLimits(), true, testToken, nil)
	for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS", "DELETE"} {
		a := g.exchange(rawRequest(method, "/v2", bearer(testToken), nil))
		if message, _ := a.failure(t); a.status != 400 || !strings.Contains(message, "https://") {
			t.Errorf("%s: %d %s", method, a.status, message)
		}
	}
	c := g.dial()
	c.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
	if b, _ := io.ReadAll(c); strings.Contains(string(b), "HTTP") {
		t.Errorf("SSH is answered with %q", b)
	}
}

func TestClientCertificates(t *testing.T) {
	g := serveGuarded(t, testLimits(), true, "", func(_ *Options, o *access.Options) { o.CA = fakeca.New(t.TempDir()).File() })
	c, err := g.dialTLS(g.ca.Client("somebody"))
	if err == nil {
		c.Write(rawRequest("GET", "/v2/health/live", nil, nil))
		var b []byte
		b, err = io.ReadAll(c)
		if len(b) > 0 {
			t.Errorf("a client of another authority is answered %q", b)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client of another authority is told %v", err)
	}
}

// Over the limit, only probes are answered over TLS, too.
func TestTLSConnectionLimit(t *testing.T) {
	l := testLimits()
	l.Connections = 1
	g := serveGuarded(t, l, true, "", nil)
	first := g.secure()
	first.Write(rawRequest("GET", "/v2/health/live", nil, nil))
	if a := g.read(first); a.status != 200 {
		t.Errorf("the first: %d", a.status)
	}
	for path, want := range map[string]int{"/v2": 503, "/v2/health/live": 200} {
		if a := g.ask(rawRequest("GET", path, nil, nil)); a.status != want {
			t.Errorf("%s: %d %s, want %d", path, a.status, a.body, want)
		}
	}
	first.Write(rawRequest("GET", "/v2/health/live", nil, nil))
	if a := g.read(first); a.status != 200 {
		t.Errorf("the first: %d", a.status)
	}
}

// A shutdown does not wait for clients that do not read its goodbye.
func TestTLSShutdown(t *testing.T) {
	g := serveGuarded(t, testLimits(), true, "", nil)
	for range 4 {
		c := g.secure()
		c.Write(rawRequest("GET", "/v2/health/live", nil, nil))
		g.read(c)
	}
	g.dial() // in the middle of a handshake
	eventually(t, "the connections to be there", func() bool { return g.watched() == 5 })
}

func TestPlainAnswersAreWhole(t *testing.T) {
	for name, text := range map[string]string{"plain": errPlain, "connections": errConnections} {
		head, body, _ := strings.Cut(text, "\r\n\r\n")
		if !strings.Contains(head, fmt.Sprintf("Content-Length: %d", len(body))) {
			t.Errorf("%s: the body has %d bytes", name, len(body))
		}
	}
}

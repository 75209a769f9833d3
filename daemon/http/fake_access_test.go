package http

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakeca"
)

// testToken is one that lets in.
const testToken = "0123456789abcdef-test"

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// tokenFile writes a file with a token.
func tokenFile(t testing.TB, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// guardedServer is an endpoint that does not let everybody in.
type guardedServer struct {
	*server
	ca     *fakeca.CA
	access *access.Access
}

// serveGuarded serves with TLS if secure is set, and wants a token if there is
// one.
func serveGuarded(t testing.TB, l config.Limits, secure bool, token string, change func(*Options, *access.Options)) *guardedServer {
	t.Helper()
	g := &guardedServer{ca: fakeca.New(t.TempDir())}
	var o access.Options
	if secure {
		o.Cert, o.Key = g.ca.Pair("server", time.Hour)
	}
	if token != "" {
		o.TokenFile = tokenFile(t, token)
	}
	f := newFake(t)
	e := endpointOf(t, f, l, func(options *Options) {
		if change != nil {
			change(options, &o)
		}
		var err error
		if g.access, err = access.Open(o); err != nil {
			t.Fatal(err)
		}
		options.Access = g.access
	})
	ln, err := access.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.server = &server{fake: f, t: t, endpoint: e, addr: ln.Addr()}
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		e.Shutdown(ctx)
		ln.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		g.settle()
	})
	return g
}

// dialTLS connects and agrees on keys, or returns why that fails.
func (g *guardedServer) dialTLS(c *tls.Config) (*tls.Conn, error) {
	c = c.Clone()
	c.ServerName = "localhost"
	nc := g.dial()
	conn := tls.Client(nc, c)
	g.t.Cleanup(func() { conn.Close() })
	return conn, conn.Handshake()
}

// ask sends raw bytes over TLS and reads one answer.
func (g *guardedServer) ask(raw []byte) answered {
	g.t.Helper()
	c, err := g.dialTLS(g.ca.Client(""))
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	go c.Write(raw)
	a, err := readAnswer(bufio.NewReader(c))
	if err != nil {
		g.t.Fatal(err)
	}
	return a
}

// closed fails the test unless the daemon closes a connection.
func closed(t testing.TB, name string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		if _, err := c.Read(make([]byte, 512)); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Errorf("%s: the connection is still open", name)
			}
			return
		}
	}
}

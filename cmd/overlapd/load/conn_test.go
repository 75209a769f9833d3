package load

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// scripted starts a server that hands each of its connections, with its
// number, to talk, and closes it afterwards.
func scripted(t *testing.T, talk func(n int, nc net.Conn, r *bufio.Reader)) *url.URL {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			talk(n, nc, bufio.NewReader(nc))
			nc.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return &url.URL{Scheme: "http", Host: ln.Addr().String()}
}

func readRequest(r *bufio.Reader) error {
	var q fasthttp.Request
	return q.Read(r)
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func soon() time.Time { return time.Now().Add(10 * time.Second) }

func TestConnNoticesThatTheServerLeft(t *testing.T) {
	u := scripted(t, func(_ int, nc net.Conn, r *bufio.Reader) {
		if readRequest(r) == nil {
			nc.Write([]byte(okAnswer))
		}
	})
	c := newConn(t.Context(), u.Host, nil)
	defer c.close()
	for i := range 3 {
		if err := c.do(newWire(u, "/", "", nil, -1), soon()); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		for !closedByPeer(c.nc) { // until the server has closed it
			time.Sleep(time.Millisecond)
		}
		c.lastUsed = time.Time{}
	}
}

func TestConnNeverSendsTwice(t *testing.T) {
	var got atomic.Int64
	u := scripted(t, func(_ int, nc net.Conn, r *bufio.Reader) {
		if readRequest(r) == nil {
			got.Add(1)
		}
	})
	c := newConn(t.Context(), u.Host, nil)
	defer c.close()
	err := c.do(newWire(u, "/", "", nil, -1), soon())
	if err == nil || reasonOf(err) != "connection" || got.Load() != 1 {
		t.Errorf("error %v after the server got %d requests, want one", err, got.Load())
	}
}

func TestConnReadsAnAnswerThatComesEarly(t *testing.T) {
	written := make(chan struct{})
	u := scripted(t, func(_ int, nc net.Conn, r *bufio.Reader) {
		nc.Write([]byte("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
		<-written
	})
	c := newConn(t.Context(), u.Host, nil)
	defer c.close()
	err := c.do(newWire(u, "/a", "", make([]byte, 64), -1), soon())
	close(written)
	if err != nil || c.answer.StatusCode() != 413 {
		t.Errorf("status %d and error %v, want 413", c.answer.StatusCode(), err)
	}
	if c.nc != nil {
		t.Error("a connection that the server closes is kept")
	}
}

func TestConnRefusesBrokenAnswers(t *testing.T) {
	for _, answer := range []string{"", "HTTP/1.1", "nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"} {
		u := scripted(t, func(_ int, nc net.Conn, r *bufio.Reader) {
			if readRequest(r) == nil {
				nc.Write([]byte(answer))
			}
		})
		c := newConn(t.Context(), u.Host, nil)
		if err := c.do(newWire(u, "/", "", nil, -1), soon()); reasonOf(err) != "connection" {
			t.Errorf("answer %q: error %v", answer, err)
		}
		c.close()
	}
}

func TestAbortEndsARequestInFlight(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	u := scripted(t, func(_ int, nc net.Conn, r *bufio.Reader) {
		if readRequest(r) == nil {
			close(asked)
		}
		<-release
	})
	defer close(release)
	ctx, abort := context.WithCancel(t.Context())
	c := newConn(ctx, u.Host, nil)
	defer c.close()
	go func() { <-asked; abort() }()
	if err := c.do(newWire(u, "/", "", nil, -1), time.Now().Add(time.Hour)); !errors.Is(err, errStopped) {
		t.Errorf("error %v, want %v", err, errStopped)
	}
	if err := c.do(newWire(u, "/", "", nil, -1), soon()); !errors.Is(err, errStopped) {
		t.Errorf("error %v after abort, want %v", err, errStopped)
	}
}

func TestRequestsDoNotAllocate(t *testing.T) {
	wire := []byte(nil)
	answer := []byte(okAnswer)
	u := scripted(t, func(_ int, nc net.Conn, r *bufio.Reader) {
		buffer := make([]byte, 64<<10)
		for {
			if _, err := nc.Read(buffer); err != nil { // the request fits one segment
				return
			}
			nc.Write(answer)
		}
	})
	wire = newWire(u, "/a", "", make([]byte, 64), 0)
	c := newConn(t.Context(), u.Host, nil)
	defer c.close()
	deadline := soon()
	n := testing.AllocsPerRun(200, func() {
		if err := c.do(wire, deadline); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%g allocations per request", n)
	}
}

func TestWaker(t *testing.T) {
	ctx, abort := context.WithCancel(t.Context())
	w, err := newWaker(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for _, d := range []time.Duration{0, time.Microsecond, 3 * time.Millisecond} {
		before := time.Now()
		if err := w.sleep(d); err != nil || time.Since(before) < d {
			t.Errorf("slept %s with error %v, want at least %s", time.Since(before), err, d)
		}
	}
	time.AfterFunc(time.Millisecond, abort)
	for range 2 {
		if w.sleep(time.Hour) == nil {
			t.Error("abort let a sleep come to its end")
		}
	}
}

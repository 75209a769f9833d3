package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
)

// TestUnreached: every way not to reach a daemon has a sentence that says what
// to do.
func TestUnreached(t *testing.T) {
	c := NewClient("/run/a.sock")
	for _, test := range []struct {
		err  error
		want string
	}{
		{os.ErrNotExist, "no daemon is running"},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.ECONNREFUSED)}, "start one with overlapd serve"},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.EACCES)}, "become root"},
		{io.EOF, "try again"}, {unix.ECONNRESET, "try again"},
		{&net.OpError{Op: "dial", Err: unix.EMFILE}, "too many open files"}, {context.Canceled, "canceled"},
	} {
		if got := c.unreached(fmt.Errorf("Post: %w", test.err)).Error(); !strings.Contains(got, test.want) || !strings.Contains(got, "/run/a.sock") {
			t.Errorf("%v: %s", test.err, got)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	path := socketPath(t)
	if _, err := NewClient(path).Last(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no admin socket ") {
		t.Errorf("no socket: %v", err)
	}
	if _, err := NewClient(filepath.Join(filepath.Dir(path), strings.Repeat("x", 200))).Last(t.Context()); !errors.Is(err, errPathTooLong) {
		t.Errorf("a path that is too long: %v", err)
	}
	s, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s.SetUnlinkOnClose(false)
	s.Close()
	if _, err := NewClient(path).Last(t.Context()); err == nil || !strings.Contains(err.Error(), "the daemon that created it is gone") {
		t.Errorf("a dead daemon: %v", err)
	}
}

// answering returns a client of a server that answers the same to everything.
func answering(t *testing.T, answer string) *Client {
	t.Helper()
	path := socketPath(t)
	s, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<10))
			_, _ = io.WriteString(c, answer)
			c.Close()
		}
	}()
	t.Cleanup(func() { s.Close(); <-done })
	return NewClient(path)
}

func TestForeignAnswers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
	for answer, want := range map[string]string{
		ok + "hello\n": "is not overlapd",
		ok + "{}\n":    "stopped before the reload ended",
		ok:             "stopped before the reload ended",
		ok + `{"step":{"service":"a","state":"loading"}}` + "\n":                                             "stopped before the reload ended",
		ok + strings.Repeat("x", maxLineBytes+1):                                                             "stopped before the reload ended",
		"HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n<html>":                                                 "is not overlapd",
		"HTTP/1.1 409 No\r\nConnection: close\r\n\r\n{\"error\":{\"kind\":\"busy\",\"message\":\"wait\"}}\n": "wait",
		"SSH-2.0\r\n": "request to",
	} {
		if r, err := answering(t, answer).Reload(t.Context(), func(config.Step) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %+v, %v", answer, r, err)
		}
	}
	if _, err := answering(t, ok+"hello").Last(t.Context()); err == nil || !strings.Contains(err.Error(), "is not overlapd") {
		t.Errorf("a report that is none: %v", err)
	}
}

package http

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// The time for an answer begins with it, not with the one before: connections
// rest for longer than answers may take.
func TestWriteTimeoutBeginsAnew(t *testing.T) {
	l := testLimits()
	l.WriteTimeout = 50 * time.Millisecond
	s := serve(t, l)
	for name, tt := range map[string]struct{ raw, want string }{
		"leave to send":         {"POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 100 "},
		"no leave to send":      {"POST /v2/models/nobody/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 404 "},
		"what is not a request": {"GET /v2 HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "HTTP/1.1 400 "},
	} {
		c := s.sent(rawRequest("GET", "/v2/health/live", nil, nil))
		r := bufio.NewReader(c)
		if _, err := readAnswer(r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * l.WriteTimeout) // the connection rests: there is nothing to wait for
		io.WriteString(c, tt.raw)
		if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, tt.want) {
			t.Errorf("%s: %q, %v", name, line, err)
		}
	}
}

// A client that did not wait for leave can read why it has none.
func TestRefusedBodyThatCame(t *testing.T) {
	s := serve(t, testLimits())
	head := fmt.Appendf(nil, "POST /v2/models/nobody/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", 1<<20)
	c := s.sent(append(head, make([]byte, 1<<20)...))
	r := bufio.NewReader(c)
	if a, err := readAnswer(r); err != nil || a.status != 404 {
		t.Fatalf("%d %v", a.status, err)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("after the answer: %v", err)
	}
}

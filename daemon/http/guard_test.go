package http

import "testing"

func TestOurs(t *testing.T) {
	e := &gate{hosts: hostSet([]string{"Inference.Example", "fe80::1"})}
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8000": true, "LOCALHOST:8000": true, "127.0.0.1": true, "127.0.0.1:80": true,
		"[::1]": true, "[::1]:8000": true, "::1": true,
		"inference.example": true, "INFERENCE.EXAMPLE:443": true, "[fe80::1]:8000": true,
		"": false, ":8000": false, "evil.example": false, "localhost.evil.example": false, "evil.localhost": false,
		"127.0.0.1.evil.example:8000": false, "127.0.0.2": false, "localhost:8000:8000": false, "localhost.": false,
		"[localhost": true, "evil.example:localhost": false, "0.0.0.0": false, "[::2]:8000": false,
	} {
		if got := e.ours([]byte(host)); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

func TestHasHeader(t *testing.T) {
	for raw, want := range map[string]bool{
		"Content-Length: 5\r\n":                  true,
		"Host: a\r\ncontent-length:5\r\n":        true,
		"CONTENT-LENGTH : 5\r\n":                 true,
		"Host: a\nContent-Length: 5":             true,
		"":                                       false,
		"Content-Length\r\n":                     false,
		"X-Content-Length: 5\r\n":                false,
		"X: Content-Length: 5\r\n":               false,
		"Content-Lengths: 5\r\nContent: Length:": false,
	} {
		if got := hasHeader([]byte(raw), "content-length"); got != want {
			t.Errorf("%q: %t", raw, got)
		}
	}
}

// Who is not on this machine may give the daemon any name.
func TestHostsBehindAListenerThatIsNotLoopback(t *testing.T) {
	s := serveAt(t, testLimits(), "unix:"+t.TempDir()+"/s")
	for _, header := range []string{"", "Origin: https://evil.example\r\n"} {
		raw := []byte("GET /v2/health/live HTTP/1.1\r\nHost: any.example\r\n" + header + "\r\n")
		if a := s.exchange(raw); a.status != 200 {
			t.Errorf("%q: %d %s", raw, a.status, a.body)
		}
	}
	if a := s.exchange([]byte("GET /v2/health/live HTTP/1.1\r\n\r\n")); a.status != 400 {
		t.Errorf("no Host: %d %s", a.status, a.body)
	}
}

package http

import "testing"

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

package http

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
)

func TestMethods(t *testing.T) {
	s := serve(t, testLimits())
	for path, allow := range map[string]string{
		"/v2": "GET, HEAD", "/v2/": "GET, HEAD", "/v2/health/live": "GET, HEAD", "/v2/health/ready": "GET, HEAD",
		"/v2/models/simple": "GET, HEAD", "/v2/models/simple/ready": "GET, HEAD", "/v2/models/simple/versions/1": "GET, HEAD",
		"/v2/models/simple/config": "GET, HEAD", "/v2/models/simple/stats": "GET, HEAD", "/v2/models/stats": "GET, HEAD",
		"/v2/repository/index": "POST", "/v2/models/simple/infer": "POST", "/v2/models/simple/versions/1/infer": "POST",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"} {
			if strings.Contains(allow, method) {
				continue
			}
			a := s.exchange(rawRequest(method, path, nil, []byte("{}")))
			if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != allow {
				t.Errorf("%s %s: %d, allow %q", method, path, a.status, a.header.Get("Allow"))
			}
			if _, reason := a.failure(t); reason != query.ReasonMethod {
				t.Errorf("%s %s: reason %q", method, path, reason)
			}
		}
	}
	s.live()
}

func TestUnknownPaths(t *testing.T) {
	s := serve(t, testLimits())
	for _, path := range []string{
		"/index.html", "/v1", "/v2/health", "/v2/models", "/v2/models/", "/v2/models//infer", "/v2/models/nobody",
		"/v2/models/simple/", "/v2/models/simple/versions", "/v2/models/simple/versions/", "/v2/models/simple/versions/2",
		"/v2/models/simple/versions/1/", "/v2/models/simple/versions/01", "/v2/models/simple/other", "/v2/models/simple/ready/x",
		"/v2/models/%73imple", "/v2/models/simple%00", "/v2/models/..%2f..%2fetc", "/v2/models/../health/live",
		"/v2/models/./simple", "//v2", "/v2/models/simple%0d%0aX:1", "/v2/models/%20", "/v2/models/" + strings.Repeat("a", 10<<10),
		"/v2/models/simple/versions/" + strings.Repeat("1", 5<<10), "/v2/models/simple\\infer", "/metrics",
	} {
		a := s.get(path)
		if a.status != http.StatusNotFound {
			t.Errorf("%.40s: %d %.100s", path, a.status, a.body)
			continue
		}
		if message, _ := a.failure(t); len(message) > 2*128+100 {
			t.Errorf("%.40s: an error of %d bytes", path, len(message))
		}
	}
	for _, path := range []string{"/v2/models/sim ple", "/v2/\x00"} {
		if a := s.get(path); a.status/100 != 4 {
			t.Errorf("%q: %d", path, a.status)
		} else {
			a.failure(t)
		}
	}
	s.live()
}

// A request that two readers could divide in two ways is refused and its
// connection closed.
func TestFraming(t *testing.T) {
	s := serve(t, testLimits())
	for name, head := range map[string]string{
		"8: CL and TE":             "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
		"8: TE and CL":             "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
		"8: CL twice":              "Content-Length: 2\r\nContent-Length: 2\r\n",
		"8: two lengths":           "Content-Length: 2\r\nContent-Length: 3\r\n",
		"8: TE twice":              "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		"8: unknown TE":            "Transfer-Encoding: gzip\r\n",
		"10: length not a number":  "Content-Length: 2x\r\n",
		"10: length negative":      "Content-Length: -2\r\n",
		"10: length overflows":     "Content-Length: 99999999999999999999\r\n",
		"space before the colon":   "Content-Length : 2\r\n",
		"two hosts":                "Host: localhost\r\n",
		"header line without name": ": x\r\n",
	} {
		raw := "POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\n" + head + "\r\n{}"
		c := s.dial()
		io.WriteString(c, raw)
		r := bufio.NewReader(c)
		a, err := readAnswer(r)
		if err != nil || a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %v", name, a.status, err)
			continue
		}
		a.failure(t)
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("%s: the connection stays open (%v)", name, err)
		}
	}
	s.live()
}

func chunked(body string, size int) []byte {
	var b []byte
	for len(body) > 0 {
		n := min(size, len(body))
		b = fmt.Appendf(b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return append(b, "0\r\n\r\n"...)
}

func TestChunks(t *testing.T) {
	s := serve(t, testLimits())
	te := map[string]string{"Transfer-Encoding": "chunked"}
	post := func(body []byte) answered {
		return s.exchange(rawRequest("POST", "/v2/models/simple/infer", te, body))
	}
	padded := simple("") + strings.Repeat(" ", 65_537-len(simple("")))
	if a := post(chunked(padded, 1)); a.status != http.StatusOK {
		t.Errorf("9: 65,537 chunks of one byte: %d %s", a.status, a.body)
	}
	for name, body := range map[string]string{
		"8: bare LF after a chunk extension": "2;a\n{}\r\n0\r\n\r\n",
		"chunk size not a number":            "zz\r\n{}\r\n0\r\n\r\n",
		"chunk size overflows":               "ffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
		"chunk longer than it says":          "1\r\n{}\r\n0\r\n\r\n",
		"no CRLF after a chunk":              "2\r\n{}0\r\n\r\n",
	} {
		a := post([]byte(body))
		if a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		a.failure(t)
	}
	s.live()
}

func TestBodyLimit(t *testing.T) {
	l := testLimits()
	l.RequestBytes = 1 << 20
	s := serve(t, l)
	body := func(n int) string { return simple("") + strings.Repeat(" ", n-len(simple(""))) }
	if a := s.infer("simple", body(1<<20)); a.status != http.StatusOK {
		t.Errorf("10: exactly the limit: %d %s", a.status, a.body)
	}
	te := map[string]string{"Transfer-Encoding": "chunked"}
	if a := s.exchange(rawRequest("POST", "/v2/models/simple/infer", te, chunked(body(1<<20), 1<<16))); a.status != http.StatusOK {
		t.Errorf("10: exactly the limit in chunks: %d %s", a.status, a.body)
	}
	for name, raw := range map[string][]byte{
		"10: one more":           rawRequest("POST", "/v2/models/simple/infer", nil, []byte(body(1<<20+1))),
		"10: eight times":        rawRequest("POST", "/v2/models/simple/infer", nil, []byte(body(8<<20))),
		"10: one more in chunks": rawRequest("POST", "/v2/models/simple/infer", te, chunked(body(1<<20+1), 1<<16)),
		"10: says 1 TB":          []byte("POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1099511627776\r\n\r\n" + strings.Repeat(" ", 9000)),
	} {
		bounded(t, len(raw), func() {
			a := s.exchange(raw)
			if a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
			if _, reason := a.failure(t); reason != query.ReasonTooLarge {
				t.Errorf("%s: reason %q", name, reason)
			}
		})
	}
	c := s.dial() // the length says less than what follows: the rest is the next request
	c.Write([]byte("POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}{}{}\r\n\r\n"))
	r := bufio.NewReader(c)
	for range 2 {
		if a, err := readAnswer(r); err != nil || a.status != http.StatusBadRequest {
			t.Errorf("10: a length that is too short: %d %v", a.status, err)
		}
	}
	s.live()
}

// The bodies of all requests together are bounded too.
func TestBodyMemory(t *testing.T) {
	l := testLimits()
	l.RequestBytes, l.MemoryBytes = 4<<20, 16<<20
	s := serve(t, l)
	var slow []net.Conn
	for range 3 { // the last quarter is kept for small ones
		c := s.dial()
		fmt.Fprintf(c, "POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", 4<<20)
		c.Write(make([]byte, 2<<20+1))
		slow = append(slow, c)
	}
	eventually(t, "the memory to be taken", func() bool { return s.endpoint.bodies.memory.Used() >= 12<<20 })
	if a := s.infer("simple", simple("")); a.status != http.StatusOK {
		t.Errorf("a small one, meanwhile: %d %s", a.status, a.body)
	}
	a := s.infer("simple", simple("")+strings.Repeat(" ", 2<<20))
	if _, reason := a.failure(t); a.status != http.StatusServiceUnavailable || reason != query.ReasonNoMemory || a.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := s.List[0].Stats.Counts().TurnedAway[slices.Index(query.TurnedAwayFor[:], query.ReasonNoMemory)]; n == 0 {
		t.Error("a query that found no memory is not counted")
	}
	for _, c := range slow {
		c.Close()
	}
	s.settle()
	if a := s.infer("simple", simple("")); a.status != http.StatusOK {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

// A line feed alone ends no line of a header: another server may take two lines for one.
func TestBareLineFeeds(t *testing.T) {
	s := serve(t, testLimits())
	for name, header := range map[string]string{
		"a line": "Host: localhost\nX: y\r\n\r\n",
		"hidden": "Host: localhost\r\nX: y\nContent-Length: 2\r\n\r\n{}",
	} {
		a := s.exchange([]byte("GET /v2 HTTP/1.1\r\n" + header))
		if a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		a.failure(t)
	}
	s.live()
}

// Browsers do not guess the type of an answer, whatever it is.
func TestTypesAreNotGuessed(t *testing.T) {
	s := serve(t, testLimits())
	for name, a := range map[string]answered{
		"a page": s.get("/v2"), "the dashboard": s.get("/"), "nothing": s.get("/none"), "a query": s.infer("simple", simple("")), "a wrong one": s.infer("simple", "{"),
		"no request": s.exchange([]byte("nonsense\r\n\r\n")),
	} {
		if got := a.header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: %d with X-Content-Type-Options %q", name, a.status, got)
		}
	}
}

func TestHeaderLength(t *testing.T) {
	s := serve(t, testLimits())
	for _, v := range []string{"99999999999", "-1", "abc", "0", "", "+5", "1e2", "18446744073709551616", "0x10", " "} {
		a := s.exchange(rawRequest("POST", "/v2/models/simple/infer", map[string]string{headerLength: v}, []byte(simple(""))))
		if a.status != http.StatusBadRequest {
			t.Errorf("11: %q: %d %s", v, a.status, a.body)
		}
		a.failure(t)
	}
	twice := fmt.Sprintf("%d\r\n%s: 10", len(simple("")), headerLength)
	if a := s.exchange(rawRequest("POST", "/v2/models/simple/infer", map[string]string{headerLength: twice}, []byte(simple("")))); a.status != http.StatusBadRequest {
		t.Errorf("11: twice: %d %s", a.status, a.body)
	}
	s.live()
}

func TestHeaderLimit(t *testing.T) {
	s := serve(t, testLimits())
	a := s.exchange(rawRequest("GET", "/v2", map[string]string{"X-Long": strings.Repeat("a", 64<<10)}, nil))
	if a.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d %s", a.status, a.body)
	}
	a.failure(t)
	s.live()
}

func packed(t *testing.T, encoding string, body io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if encoding == "deflate" {
		w = zlib.NewWriter(&b)
	}
	if _, err := io.Copy(w, body); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return b.Bytes()
}

// bombOf returns many MiB of spaces, packed, without their end: JSON that says
// nothing for long. They are packed once.
func bombOf(t *testing.T, encoding string, mebibytes int) []byte {
	t.Helper()
	var b bytes.Buffer
	var w interface {
		io.Writer
		Flush() error
	} = gzip.NewWriter(&b)
	if encoding == "deflate" {
		w = zlib.NewWriter(&b)
	}
	var ends [2]int
	for i := range ends {
		if _, err := w.Write(bytes.Repeat([]byte{' '}, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		ends[i] = b.Len()
	}
	return append(b.Bytes()[:ends[0]:ends[0]], bytes.Repeat(b.Bytes()[ends[0]:ends[1]], mebibytes-1)...)
}

func TestCompression(t *testing.T) {
	l := testLimits()
	l.RequestBytes = 1 << 20
	s := serve(t, l)
	post := func(encoding string, body []byte) answered {
		return s.exchange(rawRequest("POST", "/v2/models/simple/infer", map[string]string{"Content-Encoding": encoding}, body))
	}
	for _, encoding := range []string{"gzip", "deflate"} {
		whole := packed(t, encoding, strings.NewReader(simple("")))
		for _, name := range []string{encoding, strings.ToUpper(encoding)} {
			if a := post(name, whole); a.status != http.StatusOK {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
		bomb := bombOf(t, encoding, 64)
		bounded(t, 1<<20, func() {
			if a := post(encoding, bomb); a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("12: a bomb of %s: %d %s", encoding, a.status, a.body)
			}
		})
		damaged := bytes.Clone(whole)
		damaged[len(damaged)-5] ^= 1 // of the checksum, or of the data before it
		for name, body := range map[string][]byte{"cut": whole[:len(whole)-10], "damaged": damaged, "wrong": []byte("not packed"), "empty": {}} {
			a := post(encoding, body)
			if a.status != http.StatusBadRequest {
				t.Errorf("12: %s %s: %d %s", name, encoding, a.status, a.body)
			}
			a.failure(t)
		}
	}
	a := post("br", []byte(simple("")))
	if _, reason := a.failure(t); a.status != http.StatusUnsupportedMediaType || reason != query.ReasonEncoding {
		t.Errorf("12: unknown encoding: %d %s", a.status, a.body)
	}
	s.live()
}

func TestCompressedAnswer(t *testing.T) {
	s := serve(t, testLimits())
	body := []byte(echo("FP32", "[1,2000]", repeat("1.5", 2000)))
	for accept, want := range map[string]string{
		"": "", "gzip": "gzip", "deflate": "deflate", "deflate, gzip;q=0.5": "gzip", "gzip;q=0": "", "gzip; q=0.000, deflate": "deflate", "br": "", "*": "",
	} {
		a := s.exchange(rawRequest("POST", "/v2/models/echo_FP32/infer", map[string]string{"Accept-Encoding": accept}, body))
		if got := a.header.Get("Content-Encoding"); a.status != http.StatusOK || got != want {
			t.Errorf("%q: %d, packed as %q", accept, a.status, got)
			continue
		}
		r := io.Reader(bytes.NewReader(a.body))
		var err error
		switch want {
		case "gzip":
			r, err = gzip.NewReader(r)
		case "deflate":
			r, err = zlib.NewReader(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || bytes.Count(b, []byte("1.5")) != 2000 {
			t.Errorf("%q: %v, %.80s", accept, err, b)
		}
	}
	small := s.exchange(rawRequest("POST", "/v2/models/simple/infer", map[string]string{"Accept-Encoding": "gzip"}, []byte(simple(""))))
	if got := small.header.Get("Content-Encoding"); got != "" {
		t.Errorf("a short answer is packed as %q", got)
	}
}

func TestSlowClients(t *testing.T) {
	t.Parallel()
	l := testLimits()
	l.ReadTimeout = 200 * time.Millisecond
	s := serve(t, l)
	for name, start := range map[string]string{
		"2: header": "GET /v2 HTTP/1.1\r\nHost: loc",
		"3: body":   "POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
		"3: chunks": "POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		c := s.dial()
		io.WriteString(c, start)
		a := s.read(c)
		if _, reason := a.failure(t); a.status != http.StatusRequestTimeout || reason != query.ReasonTimeout {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	s.live()
}

// A client that does not read its answer loses its connection; the memory of
// the query is back long before.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	l := testLimits()
	l.WriteTimeout = 200 * time.Millisecond
	s := serve(t, l)
	const elements = 2 << 20
	head := strings.Replace(binaryEcho("FP32", fmt.Sprintf("[1,%d]", elements), 4*elements), "{", `{"parameters":{"binary_data_output":true},`, 1)
	c := s.dial()
	c.(*net.TCPConn).SetReadBuffer(4 << 10)
	c.Write(binaryRequest("echo_FP32", head, make([]byte, 4*elements)))
	s.settle()
	eventually(t, "the connection to be given up", func() bool { return s.watched() == 0 })
	s.live()
}

func TestForeignHosts(t *testing.T) {
	l := testLimits()
	l.Hosts = []string{"Inference.Example", "fe80::1"}
	s := serve(t, l)
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:8000": 200, "127.0.0.1:1": 200, "[::1]:8000": 200, "[::1]": 200, "inference.example:80": 200, "INFERENCE.EXAMPLE": 200, "[fe80::1]:8000": 200,
		"evil.example": 403, "localhost.evil.example": 403, "127.0.0.2": 403, "localhost:evil": 400, "127.0.0.1.evil.example:8000": 403, "": 400,
		"localhost.": 403, "localhost.:8000": 403, "127.0.0.1.": 403, "0.0.0.0": 403, "[::]": 403, "[::ffff:127.0.0.1]": 403, "[::1%25lo]": 403,
		"[::2]": 403, "127.1": 403, "2130706433": 403, "0x7f000001": 403, "localhost@evil.example": 403,
		"evil.localhost": 403, ":8000": 403, "localhost:8000:8000": 400, "evil.example:localhost": 400, "localhost,evil.example": 403, "localhost#evil.example": 400,
	} {
		a := s.exchange([]byte("GET /v2/health/live HTTP/1.1\r\nHost: " + host + "\r\n\r\n"))
		if a.status != want {
			t.Errorf("14: Host %q: %d %s", host, a.status, a.body)
		}
		if want != 200 {
			a.failure(t)
		}
	}
	for origin, want := range map[string]int{
		"http://localhost:3000": 200, "http://127.0.0.1": 200, "https://inference.example": 200,
		"http://evil.example": 403, "null": 403, "http://localhost.evil.example": 403, "http://[::1": 403,
		"http://[::1]:3000": 200, "http://localhost.": 403, "http://localhost@evil.example": 403, "http://evil.example/localhost": 403,
		"file://": 403, "chrome-extension://localhost.evil": 403, "http://localhost http://evil.example": 403,
	} {
		a := s.exchange(rawRequest("POST", "/v2/models/simple/infer", map[string]string{"Origin": origin}, []byte(simple(""))))
		if a.status != want {
			t.Errorf("14: Origin %q: %d %s", origin, a.status, a.body)
		}
	}
	s.live()
}

// Pages of others may link here, but not load anything from here: images and
// the like come without an Origin.
func TestForeignPages(t *testing.T) {
	l := testLimits()
	l.Hosts = []string{"inference.example"}
	s := serve(t, l)
	for _, c := range []struct {
		site, mode, origin string
		want               int
	}{
		{"cross-site", "no-cors", "", 403},
		{"cross-site", "cors", "", 403},
		{"cross-site", "websocket", "", 403},
		{"cross-site", "", "", 403},
		{"cross-site", "navigate", "", 200},
		{"cross-site", "cors", "https://inference.example", 200},
		{"cross-site", "cors", "https://evil.example", 403},
		{"same-site", "no-cors", "", 200},
		{"same-origin", "cors", "", 200},
		{"none", "navigate", "", 200},
	} {
		for _, path := range []string{"/", "/v2", "/overlapd/timeline"} {
			header := map[string]string{headerFetchSite: c.site, headerFetchMode: c.mode, "Origin": c.origin}
			if c.origin == "" {
				delete(header, "Origin")
			}
			if a := s.exchange(rawRequest("GET", path, header, nil)); a.status != c.want || a.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s, %s from %q asks for %s: %d, want %d", c.site, c.mode, c.origin, path, a.status, c.want)
			}
		}
	}
}

// Over the limit only probes are answered.
func TestConnectionLimit(t *testing.T) {
	l := testLimits()
	l.Connections = 100
	s := serve(t, l)
	var idle []net.Conn
	for range l.Connections {
		c := s.dial()
		c.Write(rawRequest("GET", "/v2/health/live", nil, nil))
		s.read(c)
		idle = append(idle, c)
	}
	for range 40 {
		for path, want := range map[string]int{"/v2": 503, "/": 503, "/v2/nothing": 404, "/v2/health/live": 200, "/healthz": 200, "/v2/health/ready": 200, "/v2/models/simple/ready": 200} {
			a := s.get(path)
			if a.status != want {
				t.Fatalf("13: %s: %d %s, want %d", path, a.status, a.body, want)
			}
			if want == 503 {
				if _, reason := a.failure(t); reason != query.ReasonConnections || a.header.Get("Retry-After") == "" {
					t.Fatalf("13: %s: %s", path, a.body)
				}
			}
		}
		if a := s.infer("simple", simple("")); a.status != http.StatusServiceUnavailable {
			t.Fatalf("13: a query: %d %s", a.status, a.body)
		}
	}
	for _, c := range idle[1:] {
		c.Close()
	}
	eventually(t, "a connection to be free", func() bool {
		a, err := readAnswer(bufio.NewReader(s.sent(rawRequest("GET", "/v2", nil, nil))))
		return err == nil && a.status == http.StatusOK
	})
	idle[0].Write(rawRequest("GET", "/v2/health/live", nil, nil))
	if a := s.read(idle[0]); a.status != http.StatusOK {
		t.Errorf("a connection that was idle: %d", a.status)
	}
}

// sent returns a connection on which raw was sent.
func (s *server) sent(raw []byte) net.Conn {
	c := s.dial()
	c.Write(raw)
	return c
}

func TestExpectContinue(t *testing.T) {
	s := serve(t, testLimits())
	head := func(path string, n int) []byte {
		return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, n)
	}
	c := s.sent(head("/v2/models/simple/infer", len(simple(""))))
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("%q %v", line, err)
	}
	r.ReadString('\n')
	io.WriteString(c, simple(""))
	if a, err := readAnswer(r); err != nil || a.status != http.StatusOK {
		t.Errorf("%d %s %v", a.status, a.body, err)
	}
	for path, want := range map[string]int{"/v2/models/simple/infer": 413, "/v2/models/nobody/infer": 404, "/v2/models/simple": 405} {
		a := s.read(s.sent(head(path, 1<<30)))
		if a.status != want && a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", path, a.status)
		}
		a.failure(t)
	}
	s.live()
}

// A connection is used again after an answer that did not need the body.
func TestUnwantedBody(t *testing.T) {
	s := serve(t, testLimits())
	c := s.dial()
	r := bufio.NewReader(c)
	for _, tt := range []struct {
		raw  []byte
		want int
	}{
		{rawRequest("GET", "/v2/health/live", nil, []byte("GET /v2 HTTP/1.1\r\n\r\n")), 200},
		{rawRequest("POST", "/v2/repository/index", nil, []byte("{}")), 200},
		{rawRequest("PUT", "/v2", map[string]string{"Transfer-Encoding": "chunked"}, chunked("abcdef", 2)), 405},
		{rawRequest("POST", "/v2/models/unloaded/infer", nil, []byte(simple(""))), 503},
		{rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple(""))), 200},
	} {
		c.Write(tt.raw)
		if a, err := readAnswer(r); err != nil || a.status != tt.want {
			t.Fatalf("%.40q: %d %v, want %d", tt.raw, a.status, err, tt.want)
		}
	}
	if a := s.exchange(rawRequest("POST", "/v2/models/nobody/infer", nil, make([]byte, 3<<20))); a.status != 404 {
		t.Errorf("a long body for nobody: %d", a.status)
	}
}

// What the header is enough to refuse is refused when it is there, whether its body
// comes or not.
func TestJudgedAtTheHeader(t *testing.T) {
	l := testLimits()
	l.RequestBytes = 1 << 20
	g := serveGuarded(t, l, false, testToken, nil)
	for name, c := range map[string]struct {
		method, path, token string
		length, want        int
	}{
		"no token":       {"POST", "/v2/models/simple/infer", "", 100, 401},
		"wrong token":    {"POST", "/v2/models/simple/infer", "0123456789abcdef-wrong", 100, 401},
		"no such path":   {"POST", "/v2/nothing", testToken, 100, 404},
		"no such model":  {"POST", "/v2/models/nobody/infer?a=b", testToken, 10_000, 404},
		"absolute":       {"POST", "http://localhost/v2/models/nobody/infer", testToken, 100, 404},
		"wrong method":   {"PUT", "/v2/models/simple/infer", testToken, 100, 405},
		"not offered":    {"POST", "/v2/logging", testToken, 100, 501},
		"too large":      {"POST", "/v2/models/simple/infer", testToken, 1<<20 + 1, 413},
		"too large by 1": {"POST", "/v2/models/simple/infer", testToken, 1 << 60, 413},
	} {
		header := map[string]string{"Content-Length": strconv.Itoa(c.length)}
		if c.token != "" {
			header["Authorization"] = "Bearer " + c.token
		}
		conn := g.sent(rawRequest(c.method, c.path, header, nil))
		_ = conn.SetReadDeadline(time.Now().Add(l.ReadTimeout / 2))
		a, err := readAnswer(bufio.NewReader(conn))
		conn.Close()
		if err != nil || a.status != c.want {
			t.Errorf("%s: %d %s %v, want %d", name, a.status, a.body, err, c.want)
		} else if c.want == 405 && a.header.Get("Allow") != "POST" {
			t.Errorf("%s: allow %q", name, a.header.Get("Allow"))
		}
	}
}

// Versions, targets and framing are as RFC 9112 says, and no header stands twice that
// decides about who may ask.
func TestRequestLines(t *testing.T) {
	s := serve(t, testLimits())
	for raw, want := range map[string]int{
		"GET /v2 HTTP/9.9\r\nHost: localhost\r\n":                                                                       505,
		"GET /v2 HTTP/2.0\r\nHost: localhost\r\n":                                                                       505,
		"GET /v2 HTTP/0.9\r\nHost: localhost\r\n":                                                                       505,
		"GET /v2 HTTP/1.0\r\n":                                                                                          200,
		"GET /v2 HTTP/1.2\r\nHost: localhost\r\n":                                                                       200,
		"GET http://localhost/v2 HTTP/1.1\r\nHost: localhost\r\n":                                                       200,
		"GET HTTP://LOCALHOST:80/v2?x=1 HTTP/1.1\r\nHost: localhost\r\n":                                                200,
		"GET http://localhost/v2 HTTP/1.1\r\nHost: evil.example\r\n":                                                    200, // the target's counts
		"GET http://evil.example/v2 HTTP/1.1\r\nHost: localhost\r\n":                                                    403,
		"GET http://localhost/v2 HTTP/1.1\r\n":                                                                          400,
		"GET http://user:word@localhost/v2 HTTP/1.1\r\nHost: localhost\r\n":                                             400,
		"GET ftp://localhost/v2 HTTP/1.1\r\nHost: localhost\r\n":                                                        400,
		"GET http:///v2 HTTP/1.1\r\nHost: localhost\r\n":                                                                400,
		"GET /v2?from=http://a/b HTTP/1.1\r\nHost: localhost\r\n":                                                       200,
		"GET /v2 HTTP/1.1\r\nHost: localhost\r\nAuthorization: a\r\nAuthorization: b\r\n":                               400,
		"GET /v2 HTTP/1.1\r\nHost: localhost\r\nauthorization: a\r\nAuthorization: a\r\n":                               400,
		"GET /v2 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\n":                                            200,
		"GET /v2 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\n":                                        400,
		"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nTransfer-Encoding: identity\r\n": 400,
	} {
		a := s.exchange([]byte(raw + "\r\n"))
		if a.status != want {
			t.Errorf("%q: %d %s, want %d", raw, a.status, a.body, want)
		}
		if want >= 400 {
			a.failure(t)
		}
	}
	s.live()
}

// Connections that ask nothing keep out neither probes, at once, nor after a second
// anybody else.
func TestSilentConnections(t *testing.T) {
	l := testLimits()
	l.ReadTimeout, l.Connections = time.Hour, 64
	s := serve(t, l)
	var silent []net.Conn
	for range 3 * l.Connections {
		silent = append(silent, s.dial())
	}
	if _, err := silent[0].Write([]byte("GET /v2 HT")); err != nil { // it begins to ask, and stops
		t.Fatal(err)
	}
	if a := s.get("/v2/health/ready"); a.status != http.StatusOK {
		t.Errorf("a probe: %d %s", a.status, a.body)
	}
	eventually(t, "a query to be answered", func() bool {
		a, err := readAnswer(bufio.NewReader(s.sent(rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple(""))))))
		return err == nil && a.status == http.StatusOK
	})
	if open := s.watched(); open > l.Connections+64 {
		t.Errorf("%d connections are open", open)
	}
}

func TestPipelining(t *testing.T) {
	s := serve(t, testLimits())
	one := rawRequest("POST", "/v2/models/simple/infer", nil, []byte(simple("")))
	c := s.sent(bytes.Repeat(one, 20))
	r := bufio.NewReader(c)
	for i := range 20 {
		if a, err := readAnswer(r); err != nil || a.status != http.StatusOK {
			t.Fatalf("answer %d: %d %v", i, a.status, err)
		}
	}
}

// Who is not on this machine may give the daemon any name.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := serveAt(t, testLimits(), "unix:"+path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
	for header, want := range map[string]int{"Host: anything\r\n": 200, "Host: anything\r\nOrigin: https://evil.example\r\n": 200, "": 400} {
		if a := s.exchange([]byte("GET /v2/health/live HTTP/1.1\r\n" + header + "\r\n")); a.status != want {
			t.Errorf("%q: %d %s, want %d", header, a.status, a.body, want)
		}
	}
	s.live()
}

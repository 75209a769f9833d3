package http

import (
	"bufio"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/query"
)

// openPaths need no token.
var openPaths = []string{"/healthz", "/v2/health/live", "/v2/health/ready", "/"}

// everyPath returns each path that there is, in the ways in which it can be
// written, and some that there are not.
func everyPath() []string {
	paths := slices.Collect(maps.Keys(fixedRoutes))
	for tail := range modelRoutes {
		paths = append(paths, "/v2/models/simple"+tail, "/v2/models/simple/versions/1"+tail, "/v2/models/none"+tail)
	}
	for _, p := range slices.Clone(paths) {
		paths = append(paths, "/"+p, p+"/", p+"?a=/v2/health/live", "/v2/health/live/.."+p, "/v2/health/live%2f.."+p, "http://localhost"+p)
	}
	return append(paths, "/v2/health", "/v2/health/live/x", "/v2/health/live%00", "/V2/health/live", "/none", "/../../etc/passwd")
}

// needsToken reports whether a path as it was sent needs a token.
func needsToken(path string) bool {
	path, _, _ = strings.Cut(strings.TrimPrefix(path, "http://localhost"), "?")
	return !slices.Contains(openPaths, path)
}

// No path, method or version of HTTP leads around the token.
func TestEveryRouteWantsAToken(t *testing.T) {
	g := serveGuarded(t, testLimits(), false, testToken, nil)
	for _, path := range everyPath() {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "OPTIONS", "PATCH"} {
			raw := rawRequest(method, path, nil, nil)
			if method == "POST" {
				raw = rawRequest(method, path, map[string]string{"Expect": "100-continue"}, []byte("{}"))
			}
			c := g.sent(raw)
			a, err := readAnswerTo(method, bufio.NewReader(c))
			c.Close()
			if err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			if denied := a.status == http.StatusUnauthorized; denied != needsToken(path) {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
			if a.status == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") != challenge {
				t.Errorf("%s %s: no challenge in %v", method, path, a.header)
			}
		}
	}
	g.fake.Mu.Lock()
	defer g.fake.Mu.Unlock()
	if g.Mu.Released != 0 || g.Mu.Out != 0 {
		t.Errorf("%d queries reached the backend", g.Mu.Released)
	}
}

// readAnswerTo reads an answer that has no body if it is one to HEAD.
func readAnswerTo(method string, r *bufio.Reader) (answered, error) {
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	return answered{resp.StatusCode, resp.Header, nil}, nil
}

// With a token, everything is as it is without one.
func TestTokenLetsIn(t *testing.T) {
	g := serveGuarded(t, testLimits(), false, testToken, nil)
	for path, want := range map[string]int{
		"/v2": 200, "/v2/models/simple": 200, "/overlapd/status": 200, "/overlapd/timeline": 200, "/overlapd/history": 200, "/overlapd/load": 200,
		"/metrics": 404, "/none": 404, "/v2/models/none": 404, "/v2/health/live": 200,
	} {
		if a := g.exchange(rawRequest("GET", path, bearer(testToken), nil)); a.status != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	body := []byte(simple(""))
	if a := g.exchange(rawRequest("POST", "/v2/models/simple/infer", bearer(testToken), body)); a.status != 200 {
		t.Errorf("infer: %d %s", a.status, a.body)
	}
	message, reason := g.exchange(rawRequest("POST", "/v2/models/simple/infer", nil, body)).failure(t)
	if reason != query.ReasonUnauthorized || !strings.Contains(message, "Authorization: Bearer") {
		t.Errorf("without: %s (%s)", message, reason)
	}
	message, reason = g.exchange(rawRequest("POST", "/v2/models/simple/infer", bearer("0123456789abcdef-wrong"), body)).failure(t)
	if reason != query.ReasonUnauthorized || !strings.Contains(message, "is not valid") || strings.Contains(message, "wrong") {
		t.Errorf("with a wrong one: %s (%s)", message, reason)
	}
}

// A body that nobody asked for is not read, and its connection is closed.
func TestNoTokenNoBody(t *testing.T) {
	g := serveGuarded(t, testLimits(), false, testToken, nil)
	head := fmt.Appendf(nil, "POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", 32<<20)
	c := g.sent(append(head, make([]byte, 16<<10)...)) // fasthttp reads on until it has 8 KiB
	if a := g.read(c); a.status != http.StatusUnauthorized {
		t.Errorf("%d, %v", a.status, a.header)
	}
	closed(t, "the rest of the body", c)
	if n := g.endpoint.bodies.memory.Used(); n != 0 {
		t.Errorf("%d bytes are held for it", n)
	}
}

func TestOpenMetrics(t *testing.T) {
	for _, open := range []bool{true, false} {
		g := serveGuarded(t, testLimits(), false, testToken, func(e *Options, _ *access.Options) {
			e.OpenMetrics = open
			e.Metrics = func() ([]byte, error) { return []byte("up 1\n"), nil }
		})
		want := map[bool]int{true: 200, false: 401}[open]
		if a := g.get("/metrics"); a.status != want {
			t.Errorf("open %t: %d", open, a.status)
		}
		if a := g.exchange(rawRequest("GET", "/metrics", bearer(testToken), nil)); a.status != 200 {
			t.Errorf("open %t, with a token: %d", open, a.status)
		}
		if a := g.get("/v2"); a.status != 401 {
			t.Errorf("open %t: /v2 answers %d", open, a.status)
		}
	}
}

// A token that was replaced lets nobody in any more, on open connections too.
func TestTokenReplaced(t *testing.T) {
	var file string
	g := serveGuarded(t, testLimits(), false, testToken, func(_ *Options, o *access.Options) { file = o.TokenFile })
	c := g.dial()
	ask := func(token string) int {
		c.Write(rawRequest("GET", "/v2", bearer(token), nil))
		return g.read(c).status
	}
	const next = "0123456789abcdef-next"
	if got := ask(testToken); got != 200 {
		t.Fatal(got)
	}
	if err := os.WriteFile(file, []byte(next), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.access.Reload(); err != nil {
		t.Fatal(err)
	}
	if before, after := ask(testToken), ask(next); before != 401 || after != 200 {
		t.Errorf("the old one: %d, the new one: %d", before, after)
	}
}

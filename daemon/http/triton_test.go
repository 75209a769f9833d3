package http

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/query"
)

// Clients read health from the status, or from fields that the protocol names.
func TestHealthSaysInItsBody(t *testing.T) {
	s := serve(t, testLimits())
	for path, want := range map[string]string{
		"/v2/health/live": `{"live":true}`, "/healthz": `{"live":true}`, "/v2/health/ready": `{"ready":true}`,
		"/v2/models/simple/ready": `{"name":"simple","ready":true}`, "/v2/models/simple/versions/1/ready": `{"name":"simple","ready":true}`,
	} {
		if a := s.get(path); a.status != http.StatusOK || string(a.body) != want || a.header.Get("Content-Type") != contentJSON {
			t.Errorf("%s: %d %s, want %s", path, a.status, a.body, want)
		}
	}
	s.Dead.Store(true)
	for path, want := range map[string]string{
		"/v2/health/live": `"live":false`, "/v2/models/unloaded/ready": `"name":"unloaded","ready":false`,
	} {
		a := s.get(path)
		if _, reason := a.failure(t); a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), want) || reason != query.ReasonLoading || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s, want %s", path, a.status, a.body, want)
		}
	}
}

// A service that is given up is so in its health, too.
func TestHealthOfAServiceThatIsGivenUp(t *testing.T) {
	s := serve(t, testLimits())
	given := s.Service([]byte("unloaded"))
	given.GivenUp.Store(true)
	a := s.get("/v2/models/unloaded/ready")
	if _, reason := a.failure(t); a.status != http.StatusServiceUnavailable || reason != query.ReasonGivenUp || !strings.Contains(string(a.body), `"ready":false`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What Triton offers and overlapd does not is refused with what does its work here.
func TestNotOffered(t *testing.T) {
	s := serve(t, testLimits())
	for path, want := range map[string]string{
		"/v2/systemsharedmemory/status": "in the request", "/v2/systemsharedmemory/region/a/register": "in the request", "/v2/cudasharedmemory/unregister": "in the request",
		"/v2/trace/setting": "[tracing]", "/v2/models/simple/trace/setting": "[tracing]", "/v2/models/none/versions/1/trace/setting": "[tracing]",
		"/v2/logging": "log_level",
	} {
		for _, method := range []string{"GET", "POST"} {
			a := s.exchange(rawRequest(method, path, nil, []byte("{}")))
			if message, reason := a.failure(t); a.status != http.StatusNotImplemented || reason != query.ReasonNotOffered || !strings.Contains(message, want) {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
	for name, body := range map[string]string{
		"input":  `{"inputs":[{"name":"X","datatype":"FP32","shape":[1,1],"parameters":{"shared_memory_region":"a","shared_memory_byte_size":4}}]}`,
		"output": `{"outputs":[{"name":"Y","parameters":{"shared_memory_region":"a"}}]}`,
	} {
		a := s.infer("echo_FP32", body)
		if message, _ := a.failure(t); a.status != http.StatusNotImplemented || !strings.Contains(message, "shared_memory") {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	for _, path := range []string{"/v2/models/none/load", "/v2/loggings", "/v2/models/simple/logging", "/v2/repository", "/v2/repository/a/models/b/load", "/v2/trace"} {
		if a := s.get(path); a.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// What GET answers, HEAD does, with the length of what would come and nothing of it,
// and the connection goes on.
func TestHead(t *testing.T) {
	s := serve(t, testLimits())
	for _, path := range everyPath() {
		get := s.head(path)
		if get.StatusCode != http.StatusOK || get.Header.Get("Content-Type") == "text/event-stream" {
			continue
		}
		c := s.sent(rawRequest("HEAD", path, nil, nil))
		r := bufio.NewReader(c)
		a, err := http.ReadResponse(r, &http.Request{Method: http.MethodHead})
		if err != nil || a.StatusCode != http.StatusOK || a.ContentLength != get.ContentLength && !strings.Contains(path, "stat") && !strings.Contains(path, "/overlapd/") {
			t.Errorf("%s: %v, %d bytes are announced, GET has %d", path, err, a.ContentLength, get.ContentLength)
			continue
		}
		if _, err := c.Write(rawRequest("GET", "/v2", nil, nil)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if next, err := readAnswer(r); err != nil || next.status != http.StatusOK {
			t.Errorf("%s: what follows: %v", path, err)
		}
		c.Close()
	}
}

// head returns the head of an answer, whose body has been read.
func (s *server) head(path string) *http.Response {
	s.t.Helper()
	c := s.sent(rawRequest("GET", path, map[string]string{"Connection": "close"}, nil))
	defer c.Close()
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if a.Header.Get("Content-Type") != "text/event-stream" {
		_, _ = io.Copy(io.Discard, a.Body)
	}
	return a
}

// Clients that keep all numbers as doubles write integers with a fraction or an exponent.
func TestWholeFloatsAreIntegers(t *testing.T) {
	s := serve(t, testLimits())
	for typ, numbers := range map[string]map[string]string{
		"INT32":  {"1.0": "1", "-2.50e1": "-25", "1e2": "100", "0.0": "0", "-0.0": "0", "0e5": "0"},
		"INT64":  {"9007199254740992.0": "9007199254740992", "9007199254740993": "9007199254740993"},
		"UINT8":  {"2.55E2": "255", "-0.0": "0"},
		"UINT64": {"18446744073709551615": "18446744073709551615"},
	} {
		for number, want := range numbers {
			a := s.infer("echo_"+typ, echo(typ, "[1,1]", "["+number+"]"))
			if a.status != http.StatusOK || !strings.Contains(string(a.body), `"data":[`+want+`]`) {
				t.Errorf("%s %s: %d %s", typ, number, a.status, a.body)
			}
		}
	}
}

package http

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

var (
	dateLine   = regexp.MustCompile(`Date: [^\r]*\r\n`)
	lengthLine = regexp.MustCompile(`Content-Length: [0-9]+`)
	counts     = regexp.MustCompile(`(count|ns|last_inference)":[0-9]+`)
)

// settled takes out of an answer what differs between two runs: the date, and
// the numbers of the statistics.
func settled(answer []byte) []byte {
	answer = dateLine.ReplaceAll(answer, nil)
	if bytes.Contains(answer, []byte("model_stats")) {
		answer = lengthLine.ReplaceAll(answer, []byte("Content-Length: N"))
		answer = counts.ReplaceAll(answer, []byte(`$1":N`))
	}
	return answer
}

// The files in testdata/exchange are what clients send and what they must
// get, byte for byte. Those of tritonclient (Python, over HTTP) were recorded
// between it and an endpoint whose answers it took; those of perf_analyzer
// are written after what its sources send, in that order.
func TestExchanges(t *testing.T) {
	requests, err := filepath.Glob("testdata/exchange/*.request")
	if err != nil || len(requests) < 20 {
		t.Fatalf("%d exchanges, %v", len(requests), err)
	}
	s := serve(t, testLimits())
	for _, path := range requests {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".request"), func(t *testing.T) {
			request, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s.t = t
			got := settled(s.rawExchange(request))
			path := strings.TrimSuffix(path, "request") + "response"
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
	s.t = t
	simple := s.List[0].Stats.Counts()
	if queued := simple.Queue.Count; queued == 0 || queued != simple.Success.Count {
		t.Errorf("%d queries were queued, %d succeeded", queued, simple.Success.Count)
	}
}

// rawExchange sends a request and returns the bytes of its answer.
func (s *server) rawExchange(request []byte) []byte {
	s.t.Helper()
	c := s.sent(request)
	defer c.Close()
	var raw bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c, &raw)), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		s.t.Fatal(err)
	}
	return raw.Bytes()
}

package http

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/query"
)

func TestIndex(t *testing.T) {
	s := serve(t, testLimits())
	a := s.exchange(rawRequest("POST", "/v2/repository/index", nil, []byte("{}")))
	var index []struct{ Name, Version, State, Reason string }
	if err := json.Unmarshal(a.body, &index); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	if len(index) != len(s.List) {
		t.Fatalf("%d services, want %d", len(index), len(s.List))
	}
	for i, got := range index {
		state, reason := "READY", ""
		if s.List[i].Name == "unloaded" {
			state, reason = "LOADING", query.ReasonLoading
		}
		if got.Name != s.List[i].Name || got.Version != query.ModelVersion || got.State != state || got.Reason != reason {
			t.Errorf("%+v", got)
		}
	}
}

func TestRetryAfterIsWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "1", 0: "1", 1: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90", 90*time.Second + time.Millisecond: "91",
	} {
		if got := retrySeconds(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestMetricsRoute(t *testing.T) {
	s := serve(t, testLimits())
	if a := s.get("/metrics"); a.status != http.StatusNotFound || !strings.Contains(string(a.body), "metrics = false") {
		t.Errorf("without metrics: %d %s", a.status, a.body)
	}
	text := strings.Repeat("overlapd_rounds_total 1\n", 100)
	s.endpoint.pages.Metrics = func() ([]byte, error) { return []byte(text), nil }
	if a := s.get("/metrics"); a.status != http.StatusOK || string(a.body) != text || a.header.Get("Content-Type") != metrics.ContentType {
		t.Errorf("%d %v %.40s", a.status, a.header, a.body)
	}
	if a := s.exchange(rawRequest("GET", "/metrics", map[string]string{"Accept-Encoding": "gzip"}, nil)); a.header.Get("Content-Encoding") != "gzip" || len(a.body) >= len(text) {
		t.Errorf("%d %v", a.status, a.header)
	}
	if a := s.exchange(rawRequest("POST", "/metrics", nil, []byte{})); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", a.status, a.header)
	}
	s.endpoint.pages.Metrics = func() ([]byte, error) { return nil, errors.New("two of one name") }
	if a := s.get("/metrics"); a.status != http.StatusInternalServerError || strings.Contains(string(a.body), "two of one name") {
		t.Errorf("a defect: %d %s", a.status, a.body)
	}
}

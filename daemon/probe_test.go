package daemon

import (
	"encoding/json"
	"github.com/overlapd/overlapd/daemon/query"
	"net/http"
	"testing"
	"time"
)

func TestIndex(t *testing.T) {
	s := serve(t, testLimits())
	a := s.exchange(rawRequest("POST", "/v2/repository/index", nil, []byte("{}")))
	var index []struct{ Name, Version, State, Reason string }
	if err := json.Unmarshal(a.body, &index); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	if len(index) != len(s.services) {
		t.Fatalf("%d services, want %d", len(index), len(s.services))
	}
	for i, got := range index {
		state, reason := "READY", ""
		if s.services[i].Name == "unloaded" {
			state, reason = "UNAVAILABLE", query.ReasonLoading
		}
		if got.Name != s.services[i].Name || got.Version != query.ModelVersion || got.State != state || got.Reason != reason {
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

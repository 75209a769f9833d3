package main

import (
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/status"
)

func TestBrief(t *testing.T) {
	for of, want := range map[time.Duration]string{
		0: "0s", 12300 * time.Microsecond: "12ms", 1500 * time.Nanosecond: "2µs", 90 * time.Second: "1m30s", 2 * time.Minute: "2m",
		10 * time.Second: "10s", time.Hour: "1h", time.Hour + 30*time.Second: "1h0m30s", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m",
	} {
		if got := brief(of.Seconds()); got != want {
			t.Errorf("%v: %s, want %s", of, got, want)
		}
	}
}

func TestMeasuredText(t *testing.T) {
	for want, m := range map[string]status.Progress{
		"measured 0 of 20": {Total: 20},
		"measured 3 of 20, about 45s left; what is not measured after 2m is left out": {Done: 3, Total: 20, LeftSeconds: 45.2, LimitSeconds: 120},
	} {
		if got := measuredText(&m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWriteLoading(t *testing.T) {
	var b strings.Builder
	writeLoading(&b, []status.Loading{
		{Service: "bert", Phase: "load", Done: 41, Total: 353, LoadSeconds: 60},
		{Service: "new", Phase: "read", LoadSeconds: 2},
	})
	want := "\nbert loads its model (load, 41 of 353 steps done) since 1m\n\nnew loads its model (read) since 2s\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// What the predictor does not know is said with what to do.
func TestWriteOverviewOfUnknownServices(t *testing.T) {
	o := &status.Status{Policy: "overlap", Predictor: status.Predictor{
		Phase: "serving", Reason: "trained; it does not know bert", UnknownServices: []string{"bert"}, Remedy: "restart overlapd",
	}}
	var b strings.Builder
	if err := writeOverview(&b, o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "what bert takes in groups is not predicted") || !strings.Contains(b.String(), "restart overlapd\n") {
		t.Error(b.String())
	}
}

package serving

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/admin"
)

// The command waits for what is open and for a while without a query, and at its limit says
// what there still is.
func TestDrainOptions(t *testing.T) {
	gone := errors.New("nobody listens")
	for name, c := range map[string]struct {
		options drainOptions
		ask     func(n int) (map[string]int64, uint64, error) // the answer to a request by its number
		says    string                                        // the error, if it begins with "error: "
	}{
		"no wait": {drainOptions{}, func(int) (map[string]int64, uint64, error) { return map[string]int64{"a": 1}, 1, nil }, "it answers queries until it is stopped"},
		"cancel":  {drainOptions{cancel: true}, func(int) (map[string]int64, uint64, error) { return nil, 1, nil }, "ready again"},
		"nothing": {drainOptions{wait: true, limit: time.Minute}, func(int) (map[string]int64, uint64, error) { return nil, 1, nil }, "no query is open after"},
		"at last": {drainOptions{wait: true, grace: time.Second, limit: time.Minute}, func(n int) (map[string]int64, uint64, error) {
			if n < 5 {
				return map[string]int64{"a": 1}, uint64(n), nil
			}
			return nil, 5, nil
		}, "no query is open after"},
		"open": {drainOptions{wait: true, limit: 1100 * time.Millisecond}, func(int) (map[string]int64, uint64, error) {
			return map[string]int64{"b": 1, "a": 3}, 1, nil
		}, "error: queries are still open after 1.1s: a: 3 queries, b: 1 query; raise --limit"},
		"still coming": {drainOptions{wait: true, limit: 1100 * time.Millisecond}, func(n int) (map[string]int64, uint64, error) { return nil, uint64(n), nil },
			"error: queries still arrive after 1.1s: their sender ignores readiness"},
		"nobody": {drainOptions{wait: true, limit: time.Minute}, func(int) (map[string]int64, uint64, error) { return nil, 0, gone }, "error: nobody listens"},
		"it ends": {drainOptions{wait: true, limit: time.Minute}, func(n int) (map[string]int64, uint64, error) {
			if n < 3 {
				return nil, 1, nil
			}
			return nil, 0, gone
		}, "error: nobody listens"},
		"too short": {drainOptions{wait: true, grace: 5 * time.Second, limit: 6 * time.Second}, nil, "error: --grace must not be negative, and --limit must exceed it"},
		"negative":  {drainOptions{grace: -1}, nil, "error: --grace must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, first := 0, ""
			said, err := c.options.drain(t.Context(), func(do string) (map[string]int64, uint64, error) {
				if n++; n == 1 {
					first = do
				} else if do != admin.DrainShow {
					t.Errorf("request %d is %s", n, do)
				}
				return c.ask(n)
			})
			want, fails := strings.CutPrefix(c.says, "error: ")
			if fails && (err == nil || !strings.Contains(err.Error(), want)) || !fails && (err != nil || !strings.Contains(said, want)) {
				t.Errorf("said %q, got %v", said, err)
			}
			if do := map[bool]string{false: admin.DrainBegin, true: admin.DrainCancel}[c.options.cancel]; c.ask != nil && first != do {
				t.Errorf("the first request is %s", first)
			}
			if name == "at last" && n < 5 {
				t.Errorf("it asked %d times", n)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := drainOptions{wait: true, limit: time.Minute}
	if _, err := o.drain(ctx, func(string) (map[string]int64, uint64, error) { return map[string]int64{"a": 1}, 0, nil }); err == nil || !strings.Contains(err.Error(), "cancel with: overlapd drain --cancel") {
		t.Error(err)
	}
}

func TestReloaderDrains(t *testing.T) {
	l := newListening(nil)
	_, _, open := l.Open()
	for what, err := range map[string]error{"leave": l.Leave(true), "open": open} {
		if !errors.Is(err, errOpening) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	f := &fakeRunning{}
	l.follow(f)
	for _, leaves := range []bool{true, false} {
		if err := l.Leave(leaves); err != nil || f.leaves != leaves {
			t.Errorf("%v, it leaves: %t", err, f.leaves)
		}
	}
	if open, ended, err := l.Open(); err != nil || open["a"] != 2 || ended != 7 {
		t.Errorf("open %v, ended %d, got %v", open, ended, err)
	}
	if log := l.log.String(); !strings.Contains(log, "reports not ready") || !strings.Contains(log, "draining cancelled") {
		t.Error(log)
	}
}

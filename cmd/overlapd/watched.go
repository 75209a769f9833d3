package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
)

// noRounds asks a timeline for nothing but how it stands.
const noRounds = math.MaxInt64

// askTimeline asks a daemon for the rounds of an instance after one, or for the
// latest ones.
func askTimeline(t *target, instance int, since uint64) (p timeline.Page, err error) {
	query := "instance=" + strconv.Itoa(instance)
	if since != timeline.Latest {
		query += "&since=" + strconv.FormatUint(since, 10)
	}
	code, body, err := t.get("/overlapd/timeline", query)
	if errors.Is(err, errUnauthorized) {
		return p, err
	}
	if err != nil {
		return p, fmt.Errorf("no daemon answers at %s: %w; start one with overlapd serve", t.base, err)
	}
	if code == fasthttp.StatusBadRequest {
		return p, fmt.Errorf("the daemon at %s has no instance %d: overlapd status --json lists them", t.base, instance)
	}
	if err := json.Unmarshal(body, &p); err != nil || code != fasthttp.StatusOK || p.Services == nil {
		return p, fmt.Errorf("what answers at %s has no timeline (HTTP status %d): it is no overlapd, or an older one", t.base, code)
	}
	return p, nil
}

// askRecent asks what became of the last queries, on every instance.
func askRecent(t *target, instances int) (all []timeline.Service, err error) {
	for i := range max(1, instances) {
		p, err := askTimeline(t, i, noRounds)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Services...)
	}
	return all, nil
}

// short writes a latency with three digits, and none as a dash.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 100*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// missedOf writes the share of the last queries that were late or without an
// answer.
func missedOf(s *timeline.Service) string {
	if s.Ended == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(s.Missed)/float64(s.Ended))
}

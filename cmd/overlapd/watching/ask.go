package watching

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
)

// answers is what several endpoints say. Recent covers the last queries of each service.
type answers struct {
	Live     bool          `json:"live"`
	Ready    bool          `json:"ready"`
	Models   []modelStatus `json:"models"`
	Overview status.Status `json:"overview"`

	Recent  []timeline.Service `json:"recent"`
	History timeline.History   `json:"history"`
}

// modelStatus is the statistics of one service, in the protocol's names, so that clients of Triton read
// the JSON of status as they read its.
type modelStatus struct {
	Name           string `json:"name"`
	Version        string `json:"version"`
	InferenceCount uint64 `json:"inference_count"`
	ExecutionCount uint64 `json:"execution_count"`
	Stats          struct {
		Success total `json:"success"`
		Fail    total `json:"fail"`
		Queue   total `json:"queue"`
		Infer   total `json:"compute_infer"`
	} `json:"inference_stats"`
}

// total is how often something happened, and how long all of it took.
type total struct {
	Count uint64 `json:"count"`
	NS    uint64 `json:"ns"`
}

// mean is 0 where nothing happened.
func (t total) mean() time.Duration {
	if t.Count == 0 {
		return 0
	}
	return time.Duration(t.NS / t.Count).Round(time.Microsecond)
}

// askStatus asks several endpoints, one after the other. What happens in between makes their counts differ
// by a few, which is no matter for people.
func askStatus(t *target) (s answers, err error) {
	// The HTTP status says it, so there is nothing to decode.
	for path, healthy := range map[string]*bool{"/v2/health/live": &s.Live, "/v2/health/ready": &s.Ready} {
		code, _, err := t.get(path, "")
		if err != nil {
			return s, err
		}
		*healthy = code == fasthttp.StatusOK
	}
	if s.Models, err = askModels(t); err != nil {
		return s, err
	}
	if err := t.ask("/overlapd/status", "", "status", &s.Overview, func() bool { return true }); err != nil {
		return s, err
	}
	p, err := askTimeline(t, noRounds)
	if err != nil {
		return s, err
	}
	s.Recent = p.Services
	return s, t.ask("/overlapd/history", "", "history", &s.History, func() bool { return s.History.Lost != nil })
}

// askReady asks what a balancer asks. The reason comes with the answer, for the error.
func askReady(t *target) error {
	code, body, err := t.get("/v2/health/ready", "")
	if err == nil && code != fasthttp.StatusOK {
		var why struct{ Error string }
		_ = json.Unmarshal(body, &why) // another server may say so in another form
		err = fmt.Errorf("the daemon is not ready: %s; see overlapd status", cmp.Or(why.Error, fasthttp.StatusMessage(code)))
	}
	return err
}

// askModels returns the statistics of each service.
func askModels(t *target) ([]modelStatus, error) {
	var stats struct {
		Models []modelStatus `json:"model_stats"`
	}
	err := t.ask("/v2/models/stats", "", "statistics", &stats, func() bool { return stats.Models != nil })
	return stats.Models, err
}

// askServices returns the names of all services, of which there must be some.
func askServices(t *target) (names []string, err error) {
	list, err := askModels(t)
	for _, m := range list {
		names = append(names, m.Name)
	}
	// Load on no service would be a success that measures nothing.
	if err == nil && len(names) == 0 {
		err = errors.New("the daemon has no services")
	}
	return names, err
}

// noRounds asks a timeline for no rounds, only for its services and its position.
const noRounds = math.MaxInt64

// pageQuery asks for what there is after a position, or for the latest.
func pageQuery(since uint64) string {
	if since == timeline.Latest {
		return ""
	}
	return "since=" + strconv.FormatUint(since, 10)
}

// askTimeline asks for the rounds after a position, and for how the services do.
func askTimeline(t *target, since uint64) (p timeline.Page, err error) {
	err = t.ask("/overlapd/timeline", pageQuery(since), "timeline", &p, func() bool { return p.Services != nil })
	return p, err
}

// askQueries asks for the queries that were over after a position.
func askQueries(t *target, since uint64) (p timeline.QueryPage, err error) {
	err = t.ask("/overlapd/queries", pageQuery(since), "queries", &p, func() bool { return p.Queries != nil })
	return p, err
}

// seen is the JSON of top: the state of a daemon at one moment.
type seen struct {
	Status   answers       `json:"status"`
	Timeline timeline.Page `json:"timeline"`
}

// seeDaemon asks for all that top shows.
func seeDaemon(t *target) (s seen, err error) {
	if s.Status, err = askStatus(t); err != nil {
		return s, err
	}
	s.Timeline, err = askTimeline(t, timeline.Latest)
	return s, err
}

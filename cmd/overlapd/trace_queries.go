package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/perfetto"
)

const (
	// traceArrivalRow is the row of the arrivals of the first service.
	traceArrivalRow = 1000

	// arrivalMark is how long an arrival looks: an arrow must begin in something
	// that lasts, and two slices of a row must not overlap.
	arrivalMark = time.Nanosecond
)

// askQueries asks a daemon for the queries of an instance that are over after so
// many, or how many there were.
func askQueries(t *target, instance int, since uint64) (p timeline.QueryPage, err error) {
	q := "instance=" + strconv.Itoa(instance)
	if since != timeline.Latest {
		q += "&since=" + strconv.FormatUint(since, 10)
	}
	code, body, err := t.get("/overlapd/queries", q)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(body, &p); err != nil || code != fasthttp.StatusOK || p.Queries == nil {
		return p, fmt.Errorf("what answers at %s does not tell of queries (HTTP status %d): it is no overlapd, or an older one", t.base, code)
	}
	return p, nil
}

// newQueries returns the queries that are over since it was called last. They may
// have come before the trace began; those that are not over are not in it.
func (r *recorder) newQueries(t *target) (over []timeline.Query, err error) {
	for more := true; more; {
		p, err := askQueries(t, r.which, r.queriesSince)
		if err != nil {
			return nil, err
		}
		over = append(over, p.Queries...)
		r.traced.QueriesMissed += p.Missed
		r.queriesSince, more = p.Next, p.More && len(over) < timeline.Queries
	}
	return over, nil
}

// query writes a query: from its arrival to its answer, within that its waiting,
// and an arrow from its arrival to its first span.
func (r *recorder) query(q *timeline.Query) {
	r.traced.Queries++
	i, ok := r.rows[q.Service]
	if !ok {
		return // of a service that was gone before the trace began
	}
	id := strconv.FormatUint(q.ID, 10)
	args := map[string]any{
		"id": q.ID, "batch": q.Batch, "size": q.Size, "result": q.Result, "deadline_us": perfetto.Micros(q.Deadline - q.Arrival),
		"left_us": perfetto.Micros(q.Deadline - q.End), // until its deadline, when it ended
	}
	if q.Reason != "" {
		args["reason"] = q.Reason
	}
	e := perfetto.Event{Name: q.Service + " queries", Kind: "query", At: q.Arrival, Device: traceDevice, Row: traceServiceRow + i, Args: args}
	r.w.Range(e, id, q.End)
	if q.Deadline > q.Arrival && q.Deadline < q.End {
		r.instant("deadline of query "+id, q.Deadline, traceArrivalRow+i, 0)
	}
	arrival := perfetto.Event{Name: "query " + id, Kind: "arrival", At: q.Arrival, Device: traceDevice, Row: traceArrivalRow + i, Args: args}
	r.w.Slice(arrival, arrivalMark)
	if q.Started == 0 {
		return
	}
	if q.Started > q.Arrival && q.Started < q.End {
		e.Name, e.Args = "waits", nil
		r.w.Range(e, id, q.Started)
	}
	if r.traced.Rounds == 0 || q.Started < r.from {
		return // the span where the arrow would end is not in the trace
	}
	first := arrival
	// A moment after the span began, so that the arrow ends in it.
	first.At, first.Row = q.Started+1, traceServiceRow+i
	r.w.Flow(arrival, first, id)
}

package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// GiveRecorded sets the queries of a scenario, which must be complete except for its
// arrivals, to those in a CSV file with one line for each query. The number of queries, and
// Scale and Keep of the arrivals, apply as usual. One column has the arrival times: time_s,
// in seconds since the start; or timestamp or arrived_at, a date and time, where the first
// query defines the start. The columns size, seq_len and service are optional. Values that
// the file does not have are drawn as for other arrivals. GiveRecorded returns the names of
// all other columns.
func GiveRecorded(sc *Scenario, path string) (ignored []string, err error) {
	r, err := readRecording(sc, path)
	if err != nil {
		return nil, err
	}
	return r.ignored, r.give()
}

// recording holds recorded queries for the services of a scenario, in ascending order of
// their times.
type recording struct {
	scenario *Scenario
	path     string

	// Positions of the columns, -1 for those that the file does not have.
	seconds, clock, size, seqLen, service int
	ignored                               []string

	// first is the time of day of the first query.
	first time.Time

	// times holds the arrival times. queries is nil if the file has only times.
	times   []time.Duration
	queries []recorded
}

// recorded is what the file says about a query besides its time.
type recorded struct {
	service, size, seqLen, line int
}

// timesSheet describes a file of queries.
var timesSheet = textfile.Sheet{
	Form:    "a header line with the column time_s (seconds since the start) or timestamp (dates and times) and, below, a line for each query",
	MaxRows: MaxQueries, Unusable: ErrArrivals, TooLarge: ErrArrivals,
}

// readRecording reads a file of queries.
func readRecording(sc *Scenario, path string) (*recording, error) {
	r := &recording{scenario: sc, path: path}
	if err := timesSheet.ReadFile(path, r.head, r.row); err != nil {
		return nil, err
	}
	return r, nil
}

// head finds the columns.
func (r *recording) head(t *textfile.Table) {
	r.seconds, r.clock = t.Column("time_s"), t.Column("timestamp", "arrived_at")
	r.size, r.seqLen, r.service = t.Column("size"), t.Column("seq_len"), t.Column("service")
	switch {
	case r.seconds < 0 && r.clock < 0:
		t.Require("time_s", "timestamp")
	case r.seconds >= 0:
		r.clock = -1
	}
	for i, h := range t.Head {
		if !slices.Contains([]int{r.seconds, r.clock, r.size, r.seqLen, r.service}, i) {
			r.ignored = append(r.ignored, h)
		}
	}
}

// row reads a query.
func (r *recording) row(t *textfile.Table) {
	at := r.time(t)
	if n := len(r.times); n > 0 && at < r.times[n-1] {
		t.Refuse(max(r.seconds, r.clock), "it is before the time in the line above; sort the lines")
	}
	r.times = append(r.times, at)
	if r.size < 0 && r.seqLen < 0 && r.service < 0 {
		return
	}
	q := recorded{line: t.Line()}
	if r.service >= 0 {
		q.service = slices.IndexFunc(r.scenario.Services, func(s Service) bool { return s.Name == t.Fields[r.service] })
		if q.service < 0 {
			var names []string
			for i := range r.scenario.Services {
				names = append(names, r.scenario.Services[i].Name)
			}
			t.Refuse(r.service, "there is no such service; the services are %s", strings.Join(names, ", "))
		}
	}
	if r.size >= 0 {
		q.size = t.Whole(r.size, 1, predictor.MaxSize)
	}
	if r.seqLen >= 0 {
		q.seqLen = t.Whole(r.seqLen, 0, predictor.MaxSeqLen)
	}
	r.queries = append(r.queries, q)
}

// clockForms are the accepted formats of dates and times. Fractions of a second may follow
// each.
var clockForms = []string{time.RFC3339, time.DateTime, "2006-01-02T15:04:05"}

// time returns the arrival time of the query in a line.
func (r *recording) time(t *textfile.Table) time.Duration {
	if r.seconds >= 0 {
		seconds := t.Number(r.seconds, 0, math.MaxFloat64)
		if seconds > maxTime.Seconds() {
			t.Refuse(r.seconds, "it is after %v; give seconds since the start, not the time of day", maxTime)
		}
		return time.Duration(seconds * float64(time.Second))
	}
	for _, form := range clockForms {
		clock, err := time.Parse(form, t.Fields[r.clock])
		if err != nil {
			continue
		}
		if r.first.IsZero() {
			r.first = clock
		}
		at := clock.Sub(r.first)
		if at > maxTime {
			t.Refuse(r.clock, "it is more than %v after the first query; shorten the file", maxTime)
		}
		return at
	}
	t.Refuse(r.clock, "it must be a date and time such as 2006-01-02 15:04:05.9999999 or 2006-01-02T15:04:05Z (seconds since the start go into a column time_s)")
	return 0
}

// give sets the recorded queries as those of the scenario.
func (r *recording) give() error {
	sc := r.scenario
	sc.Arrivals.Process, sc.Arrivals.Times, sc.Given = Times, r.times, nil
	if r.queries == nil {
		return nil
	}
	queries, err := sc.Submissions()
	if err != nil {
		return err
	}
	thinning, left := stream(sc.Seed, forThinning, 0), r.queries
	for i := range queries {
		q := &queries[i]
		for keep := sc.Arrivals.Keep; keep > 0 && keep < 1 && thinning.Float64() >= keep; {
			left = left[1:]
		}
		was := left[0]
		left = left[1:]
		if r.service >= 0 {
			// Draw the values that the file does not have according to the service that it
			// has.
			s, random := &sc.Services[was.service], stream(sc.Seed, forSizes, i+1)
			q.Service = models.ServiceID(was.service)
			q.Size, q.SeqLen = oneOf(s.Sizes, 1, random), oneOf(s.SeqLens, 0, random)
			q.Leaves = sc.Clients.leaves(q.At, s.Target, random)
		}
		if r.size >= 0 {
			q.Size = was.size
		}
		if r.seqLen >= 0 {
			q.SeqLen = was.seqLen
		}
		if err := r.check(q, was.line); err != nil {
			return err
		}
	}
	sc.Given = queries
	return nil
}

// check returns an error if a query is larger or longer than the device was measured with.
func (r *recording) check(q *Query, line int) error {
	sc := r.scenario
	i, _ := sc.model(&sc.Services[q.Service])
	m := &sc.Device.Models()[i]
	if size, seqLen := most(m.Sizes, predictor.MaxSize), most(m.SeqLens, predictor.MaxSeqLen); q.Size > size || q.SeqLen > seqLen {
		return fmt.Errorf("%w: %s:%d: size %d and sequence length %d; model %s was measured up to %d and %d: leave the query out, or measure the model with them",
			ErrArrivals, r.path, line, q.Size, q.SeqLen, m.Name, size, seqLen)
	}
	return nil
}

// loadsSheet describes a file of loads.
var loadsSheet = textfile.Sheet{
	Form:    "a header line with the column load and, below, the queries of each minute",
	MaxRows: MaxQueries, Unusable: ErrArrivals, TooLarge: ErrArrivals,
}

// ReadLoads reads a CSV file of loads. Its column load has the number of queries in each
// minute, one line for each minute. Other columns are ignored.
func ReadLoads(path string) ([]float64, error) {
	var loads []float64
	var at int
	err := loadsSheet.ReadFile(path,
		func(t *textfile.Table) { at = t.Require("load") },
		func(t *textfile.Table) { loads = append(loads, t.Number(at, 0, maxQPS*60)) })
	if err == nil && slices.Max(loads) == 0 {
		err = fmt.Errorf("%w: %s: no minute has a load; give at least one that has", ErrArrivals, path)
	}
	return loads, err
}

package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/textfile"
)

// GiveRecorded has a scenario, complete but for its arrivals, serve the queries of
// a CSV file with a line for each query, as many as the scenario wants and as its
// arrivals scale and keep. A column has when the query came: time_s in seconds since
// the start, or timestamp or arrived_at, a date and time, of which the first is taken
// for the start. The columns size, seq_len and service may follow; what the file lacks
// is drawn as for any arrivals. The names of all other columns are returned.
func GiveRecorded(sc *Scenario, path string) (ignored []string, err error) {
	r, err := readRecording(sc, path)
	if err != nil {
		return nil, err
	}
	return r.ignored, r.give()
}

// recording is queries that came, for the services of a scenario, in ascending order of
// their times. The columns of the file are by position, -1 for those that it does not
// have; queries is nil if there are only times.
type recording struct {
	scenario *Scenario
	path     string

	seconds, clock, size, seqLen, service int
	ignored                               []string

	first   time.Time // clock time of the first query
	times   []time.Duration
	queries []recorded
}

// recorded is what the file holds of a query besides its time.
type recorded struct {
	service, size, seqLen, line int
}

var timesSheet = textfile.Sheet{
	Form:    "a header line with the column time_s (seconds since the start) or timestamp (dates and times) and, below, a line for each query",
	MaxRows: MaxQueries, Unusable: ErrArrivals, TooLarge: ErrArrivals,
}

func readRecording(sc *Scenario, path string) (*recording, error) {
	r := &recording{scenario: sc, path: path}
	if err := timesSheet.ReadFile(path, r.head, r.row); err != nil {
		return nil, err
	}
	return r, nil
}

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

func (r *recording) row(t *textfile.Table) {
	at := r.time(t)
	if n := len(r.times); n > 0 && at < r.times[n-1] {
		t.Refuse(max(r.seconds, r.clock), "it comes before that of the line above; sort the lines")
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

// clockForms are how dates and times may be written. Fractions of a second may
// follow each.
var clockForms = []string{time.RFC3339, time.DateTime, "2006-01-02T15:04:05"}

// time returns when the query of a line came.
func (r *recording) time(t *textfile.Table) time.Duration {
	if r.seconds >= 0 {
		seconds := t.Number(r.seconds, 0, math.MaxFloat64)
		if seconds > maxTime.Seconds() {
			t.Refuse(r.seconds, "it is after %v; give seconds since the start, not the time of the clock", maxTime)
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
			t.Refuse(r.clock, "it is more than %v after the first; cut the file", maxTime)
		}
		return at
	}
	t.Refuse(r.clock, "it must be a date and time such as 2006-01-02 15:04:05.9999999 or 2006-01-02T15:04:05Z (seconds since the start go into a column time_s)")
	return 0
}

// give has the scenario serve what was recorded.
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
			// What else the file does not say is drawn for the service that it says.
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

// check refuses what the device does not know.
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

var loadsSheet = textfile.Sheet{
	Form:    "a header line with the column load and, below, the queries of each minute",
	MaxRows: MaxQueries, Unusable: ErrArrivals, TooLarge: ErrArrivals,
}

// ReadLoads reads a CSV file of loads: a column load, the number of queries in
// each minute, one line for each. Further columns are passed over.
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

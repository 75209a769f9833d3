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
	r, err := readRecording(path)
	if err != nil {
		return nil, err
	}
	return r.ignored, r.give(sc)
}

// recording is queries that came, in ascending order of their times. What else the
// file holds of each query is nil if it has no such column; names are those of
// services, by position in services. lines is nil if there are only times.
type recording struct {
	path     string
	ignored  []string
	times    []time.Duration
	sizes    []int
	seqLens  []int
	services []int
	names    []string
	lines    []int
}

var timesSheet = textfile.Sheet{
	Form:     "a header line with the column time_s (seconds since the start) or timestamp (dates and times) and, below, a line for each query",
	MaxBytes: maxTraceBytes, MaxRows: MaxQueries, Unusable: ErrArrivals, TooLarge: ErrArrivals,
}

func readRecording(path string) (*recording, error) {
	r := &recording{path: path}
	c := recordingColumns{known: map[string]int{}}
	err := timesSheet.ReadFile(path,
		func(t *textfile.Table) { r.ignored = c.find(t) },
		func(t *textfile.Table) { r.add(t, &c) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

// recordingColumns holds positions of columns, -1 for those that are not there, the
// clock time of the first query, and the names of services that have come up.
type recordingColumns struct {
	seconds, clock, size, seqLen, service int
	first                                 time.Time
	known                                 map[string]int
}

// find returns the names of further columns.
func (c *recordingColumns) find(t *textfile.Table) (ignored []string) {
	c.seconds, c.clock = t.Column("time_s"), t.Column("timestamp", "arrived_at")
	c.size, c.seqLen, c.service = t.Column("size"), t.Column("seq_len"), t.Column("service")
	switch {
	case c.seconds < 0 && c.clock < 0:
		t.Require("time_s", "timestamp")
	case c.seconds >= 0:
		c.clock = -1
	}
	for i, h := range t.Head {
		if !slices.Contains([]int{c.seconds, c.clock, c.size, c.seqLen, c.service}, i) {
			ignored = append(ignored, h)
		}
	}
	return ignored
}

// add takes one line.
func (r *recording) add(t *textfile.Table, c *recordingColumns) {
	at := c.time(t)
	if n := len(r.times); n > 0 && at < r.times[n-1] {
		t.Refuse(max(c.seconds, c.clock), "it comes before that of the line above; sort the lines")
	}
	r.times = append(r.times, at)
	if c.size < 0 && c.seqLen < 0 && c.service < 0 {
		return
	}
	r.lines = append(r.lines, t.Line())
	if c.service >= 0 {
		r.addService(c, t.Fields[c.service])
	}
	if c.size >= 0 {
		r.sizes = append(r.sizes, t.Whole(c.size, 1, predictor.MaxSize))
	}
	if c.seqLen >= 0 {
		r.seqLens = append(r.seqLens, t.Whole(c.seqLen, 0, predictor.MaxSeqLen))
	}
}

func (r *recording) addService(c *recordingColumns, name string) {
	i, known := c.known[name]
	if !known {
		i = len(r.names)
		name = strings.Clone(name) // not the line that it stands in
		c.known[name] = i
		r.names = append(r.names, name)
	}
	r.services = append(r.services, i)
}

// clockForms are how dates and times may be written. Fractions of a second may
// follow each.
var clockForms = []string{time.RFC3339, time.DateTime, "2006-01-02T15:04:05"}

// time returns when the query of a line came.
func (c *recordingColumns) time(t *textfile.Table) time.Duration {
	if c.seconds >= 0 {
		seconds := t.Number(c.seconds, 0, math.MaxFloat64)
		if seconds > maxTime.Seconds() {
			t.Refuse(c.seconds, "it is after %v; give seconds since the start, not the time of the clock", maxTime)
		}
		return time.Duration(seconds * float64(time.Second))
	}
	for _, form := range clockForms {
		clock, err := time.Parse(form, t.Fields[c.clock])
		if err != nil {
			continue
		}
		if c.first.IsZero() {
			c.first = clock
		}
		at := clock.Sub(c.first)
		switch {
		case at < 0:
			t.Refuse(c.clock, "it comes before that of the first query; sort the lines")
		case at > maxTime:
			t.Refuse(c.clock, "it is more than %v after the first; cut the file", maxTime)
		}
		return at
	}
	t.Refuse(c.clock, "it must be a date and time such as 2006-01-02 15:04:05.9999999 or 2006-01-02T15:04:05Z (seconds since the start go into a column time_s)")
	return 0
}

func (r *recording) give(sc *Scenario) error {
	sc.Arrivals.Process, sc.Arrivals.Times, sc.Given = Times, r.times, nil
	if r.lines == nil {
		return nil
	}
	services, err := r.bind(sc)
	if err != nil {
		return err
	}
	queries, err := sc.Submissions()
	if err != nil {
		return err
	}
	number := r.kept(sc)
	for i := range queries {
		q, n := &queries[i], number()
		if r.services != nil {
			q.Service = services[r.services[n]]
			r.draw(sc, i, q)
		}
		if r.sizes != nil {
			q.Size = r.sizes[n]
		}
		if r.seqLens != nil {
			q.SeqLen = r.seqLens[n]
		}
		if err := r.check(sc, q, r.lines[n]); err != nil {
			return err
		}
	}
	sc.Given = queries
	return nil
}

// bind finds the services that the recording names.
func (r *recording) bind(sc *Scenario) ([]models.ServiceID, error) {
	list := make([]models.ServiceID, len(r.names))
	for i, name := range r.names {
		at := slices.IndexFunc(sc.Services, func(s Service) bool { return s.Name == name })
		if at < 0 {
			line := r.lines[slices.Index(r.services, i)]
			return nil, fmt.Errorf("%w: %s:%d: there is no service %.40q; the services are %s", ErrArrivals, r.path, line, name, strings.Join(serviceNames(sc), ", "))
		}
		list[i] = models.ServiceID(at)
	}
	return list, nil
}

func serviceNames(sc *Scenario) (names []string) {
	for i := range sc.Services {
		names = append(names, sc.Services[i].Name)
	}
	return names
}

// kept returns a function that returns the number of the next recorded query,
// those left out that the arrivals thin out.
func (r *recording) kept(sc *Scenario) func() int {
	n, keep, thinning := -1, sc.Arrivals.Keep, stream(sc.Seed, forThinning, 0)
	return func() int {
		for n++; keep > 0 && keep < 1 && thinning.Float64() >= keep; {
			n++
		}
		return n
	}
}

// draw gives a query of a service that was recorded the size and sequence
// length that one of this service may have, and how long its client stays.
func (r *recording) draw(sc *Scenario, number int, q *Query) {
	s := &sc.Services[q.Service]
	random := stream(sc.Seed, forSizes, number+1)
	q.Size, q.SeqLen = oneOf(s.Sizes, 1, random), oneOf(s.SeqLens, 0, random)
	q.Leaves = sc.Clients.leaves(q.At, s.Target, random)
}

// check refuses what the device does not know.
func (r *recording) check(sc *Scenario, q *Query, line int) error {
	i, _ := sc.model(&sc.Services[q.Service])
	m := &sc.Device.Models()[i]
	if size, seqLen := most(m.Sizes, predictor.MaxSize), most(m.SeqLens, predictor.MaxSeqLen); q.Size > size || q.SeqLen > seqLen {
		return fmt.Errorf("%w: %s:%d: size %d and sequence length %d; model %s was measured up to %d and %d: leave the query out, or measure the model with them",
			ErrArrivals, r.path, line, q.Size, q.SeqLen, m.Name, size, seqLen)
	}
	return nil
}

// maxTraceBytes limits a file of arrivals.
const maxTraceBytes = 1 << 30

var loadsSheet = textfile.Sheet{
	Form:     "a header line with the column load and, below, the queries of each minute",
	MaxBytes: maxTraceBytes, MaxRows: MaxQueries, Unusable: ErrArrivals, TooLarge: ErrArrivals,
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

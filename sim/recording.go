package sim

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
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

func readRecording(path string) (*recording, error) {
	r := &recording{path: path}
	err := readArrivals(path, timesForm, func(a *arrivalsFile) error {
		c, err := r.columns(a)
		if err != nil {
			return err
		}
		return a.each(func(fields []string) error { return r.add(a, c, fields) })
	})
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

func (r *recording) columns(a *arrivalsFile) (*recordingColumns, error) {
	c := &recordingColumns{known: map[string]int{}}
	for _, column := range []struct {
		at    *int
		names []string
	}{
		{&c.seconds, []string{"time_s"}}, {&c.clock, []string{"timestamp", "arrived_at"}},
		{&c.size, []string{"size"}}, {&c.seqLen, []string{"seq_len"}}, {&c.service, []string{"service"}},
	} {
		var err error
		if *column.at, err = a.column(column.names...); err != nil {
			return nil, err
		}
	}
	switch {
	case c.seconds < 0 && c.clock < 0:
		return nil, a.fault("no column time_s or timestamp among %s; give the file %s", a.columns(), timesForm)
	case c.seconds >= 0:
		c.clock = -1
	}
	for i, h := range a.head {
		if !slices.Contains([]int{c.seconds, c.clock, c.size, c.seqLen, c.service}, i) {
			r.ignored = append(r.ignored, h)
		}
	}
	return c, nil
}

// add takes one line.
func (r *recording) add(a *arrivalsFile, c *recordingColumns, fields []string) error {
	at, err := c.time(a, fields)
	if err != nil {
		return err
	}
	if n := len(r.times); n > 0 && at < r.times[n-1] {
		return a.fault("time %s comes before that of the line above; sort the lines", fields[max(c.seconds, c.clock)])
	}
	r.times = append(r.times, at)
	if c.size < 0 && c.seqLen < 0 && c.service < 0 {
		return nil
	}
	r.lines = append(r.lines, a.table.Line())
	if c.service >= 0 {
		r.addService(c, fields[c.service])
	}
	for _, column := range []struct {
		at, least, most int
		to              *[]int
	}{{c.size, 1, predictor.MaxSize, &r.sizes}, {c.seqLen, 0, predictor.MaxSeqLen, &r.seqLens}} {
		if column.at < 0 {
			continue
		}
		v, err := a.number(fields, column.at, float64(column.least), float64(column.most))
		if err == nil && v != math.Trunc(v) {
			err = a.fault("column %s is %v; it must be a whole number", a.head[column.at], v)
		}
		if err != nil {
			return err
		}
		*column.to = append(*column.to, int(v))
	}
	return nil
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
func (c *recordingColumns) time(a *arrivalsFile, fields []string) (time.Duration, error) {
	if c.seconds >= 0 {
		seconds, err := a.number(fields, c.seconds, 0, math.MaxFloat64)
		if err == nil && seconds > maxTime.Seconds() {
			err = a.fault("time %v is after %v; give seconds since the start, not the time of the clock", seconds, maxTime)
		}
		return time.Duration(seconds * float64(time.Second)), err
	}
	for _, form := range clockForms {
		clock, err := time.Parse(form, fields[c.clock])
		if err != nil {
			continue
		}
		if c.first.IsZero() {
			c.first = clock
		}
		at := clock.Sub(c.first)
		if at < 0 {
			return 0, a.fault("time %s comes before that of the first query; sort the lines", fields[c.clock])
		}
		if at > maxTime {
			return 0, a.fault("time %s is more than %v after the first; cut the file", fields[c.clock], maxTime)
		}
		return at, nil
	}
	return 0, a.fault("column %s is %.40q; it must be a date and time such as 2006-01-02 15:04:05.9999999 or 2006-01-02T15:04:05Z (seconds since the start go into a column time_s)",
		a.head[c.clock], fields[c.clock])
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

// What a file of arrivals must have.
const (
	timesForm = "a header line with the column time_s (seconds since the start) or timestamp (dates and times) and, below, a line for each query"
	loadsForm = "a header line with the column load and, below, the queries of each minute"
)

// ReadLoads reads a CSV file of loads: a column load, the number of queries in
// each minute, one line for each. Further columns are passed over.
func ReadLoads(path string) ([]float64, error) {
	var loads []float64
	total := 0.0
	err := readArrivals(path, loadsForm, func(a *arrivalsFile) error {
		at, err := a.column("load")
		switch {
		case err != nil:
			return err
		case at < 0:
			return a.fault("no column load among %s; give the file %s", a.columns(), loadsForm)
		}
		return a.each(func(fields []string) error {
			load, err := a.number(fields, at, 0, maxQPS*60)
			loads = append(loads, load)
			total += load
			return err
		})
	})
	if err == nil && total == 0 {
		err = fmt.Errorf("%w: %s: no minute has a load; give at least one that has", ErrArrivals, path)
	}
	return loads, err
}

// arrivalsFile is a CSV file of arrivals that is being read.
type arrivalsFile struct {
	path  string
	form  string
	table *textfile.Table
	head  []string
}

// readArrivals reads the header of a file and leaves the rest to a function.
func readArrivals(path, form string, read func(*arrivalsFile) error) error {
	file, err := textfile.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrArrivals, err)
	}
	defer file.Close()
	a := &arrivalsFile{path: path, form: form, table: textfile.NewTable(file, maxTraceBytes)}
	head, err := a.table.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s is empty; give it %s", ErrArrivals, path, form)
	}
	if err != nil {
		return a.at(err)
	}
	a.head = slices.Clone(head)
	return read(a)
}

// at returns an error with the file and the line.
func (a *arrivalsFile) at(err error) error {
	return fmt.Errorf("%w: %w", ErrArrivals, &textfile.Fault{File: a.path, Line: a.table.Line(), Err: err})
}

func (a *arrivalsFile) fault(format string, args ...any) error {
	return a.at(fmt.Errorf(format, args...))
}

// maxShown is how much of a header is repeated.
const maxShown = 80

func (a *arrivalsFile) columns() string {
	text := strings.Join(a.head, ",")
	if len(text) > maxShown {
		text = text[:maxShown] + "..."
	}
	return strconv.Quote(text)
}

// column returns the position of the column that has one of the names, in
// upper or lower case, -1 if there is none.
func (a *arrivalsFile) column(names ...string) (int, error) {
	found := -1
	for i, h := range a.head {
		if !slices.Contains(names, strings.ToLower(h)) {
			continue
		}
		if found >= 0 {
			return -1, a.fault("columns %d and %d are both %s; rename one", found+1, i+1, strings.Join(names, " or "))
		}
		found = i
	}
	return found, nil
}

// each hands over the fields of every line below the header.
func (a *arrivalsFile) each(take func(fields []string) error) error {
	for n := 0; ; n++ {
		fields, err := a.table.Read()
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return fmt.Errorf("%w: %s has no line but its header; give it %s", ErrArrivals, a.path, a.form)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return a.at(err)
		case n >= MaxQueries:
			return a.fault("more than %d lines; cut the file", MaxQueries)
		case len(fields) != len(a.head):
			return a.fault("wrong number of fields: %d; every line must have as many as the header, %d", len(fields), len(a.head))
		}
		if err := take(fields); err != nil {
			return err
		}
	}
}

// number reads a field.
func (a *arrivalsFile) number(fields []string, at int, least, most float64) (float64, error) {
	x, err := strconv.ParseFloat(fields[at], 64)
	if err != nil || !within(x, least, most) {
		return 0, a.fault("column %s is %.40q; it must be a number from %v to %v", a.head[at], fields[at], least, most)
	}
	return x, nil
}

package sim

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/intake"
)

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
	table *intake.Table
	head  []string
}

// readArrivals reads the header of a file and leaves the rest to a function.
func readArrivals(path, form string, read func(*arrivalsFile) error) error {
	file, err := intake.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrArrivals, err)
	}
	defer file.Close()
	a := &arrivalsFile{path: path, form: form, table: intake.NewTable(file, maxTraceBytes)}
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
	return fmt.Errorf("%w: %w", ErrArrivals, &intake.Fault{File: a.path, Line: a.table.Line(), Err: err})
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

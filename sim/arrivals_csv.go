package sim

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxTraceBytes limits a file of arrivals.
const maxTraceBytes = 1 << 30

// ReadTimes reads a CSV file of arrival times: a column time_s, seconds since
// the start in ascending order. Further columns are passed over.
func ReadTimes(path string) ([]time.Duration, error) {
	var times []time.Duration
	err := readColumn(path, "time_s", "a header line with the column time_s and, below, seconds since the start", func(seconds float64) error {
		if seconds > maxTime.Seconds() {
			return fmt.Errorf("time %v is after %v; give seconds since the start, not the time of the clock", seconds, maxTime)
		}
		at := time.Duration(seconds * float64(time.Second))
		if n := len(times); n > 0 && at < times[n-1] {
			return fmt.Errorf("time %v comes before that of the line above; sort the lines", seconds)
		}
		times = append(times, at)
		return nil
	})
	return times, err
}

// ReadLoads reads a CSV file of loads: a column load, the number of queries in
// each minute, one line for each. Further columns are passed over.
func ReadLoads(path string) ([]float64, error) {
	var loads []float64
	total := 0.0
	err := readColumn(path, "load", "a header line with the column load and, below, the queries of each minute", func(load float64) error {
		loads = append(loads, load)
		total += load
		return nil
	})
	if err == nil && total == 0 {
		err = fmt.Errorf("%w: %s: no minute has a load; give at least one that has", ErrArrivals, path)
	}
	return loads, err
}

// readColumn hands the numbers of one column to a function.
func readColumn(path, column, form string, take func(float64) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrArrivals, err)
	}
	defer f.Close()
	limited := &io.LimitedReader{R: f, N: maxTraceBytes + 1}
	r := csv.NewReader(limited)
	r.ReuseRecord = true
	r.TrimLeadingSpace = true
	at := func(line int, err error) error { return fmt.Errorf("%w: %s:%d: %w", ErrArrivals, path, line, err) }
	head, err := r.Read()
	if err == io.EOF {
		return fmt.Errorf("%w: %s is empty; give it %s", ErrArrivals, path, form)
	}
	if err != nil {
		return at(1, parseError(err))
	}
	head[0] = strings.TrimPrefix(head[0], "\ufeff")
	k := slices.Index(head, column)
	if k < 0 {
		return at(1, fmt.Errorf("no column %s among %s; give the file %s", column, strings.Join(head, ","), form))
	}
	for line, n := 2, 0; ; line++ {
		record, err := r.Read()
		switch {
		case limited.N <= 0:
			return fmt.Errorf("%w: %s is larger than %d bytes; cut it", ErrArrivals, path, maxTraceBytes)
		case err == io.EOF && n == 0:
			return fmt.Errorf("%w: %s has no line but its header; give it %s", ErrArrivals, path, form)
		case err == io.EOF:
			return nil
		case err != nil:
			return at(line, parseError(err))
		case n >= MaxQueries:
			return at(line, fmt.Errorf("more than %d lines; cut the file", MaxQueries))
		}
		line, _ = r.FieldPos(k)
		x, err := strconv.ParseFloat(record[k], 64)
		if err != nil || !within(x, 0, maxQPS*60) {
			return at(line, fmt.Errorf("column %s is %.40q; it must be a number that is not negative", column, record[k]))
		}
		if err := take(x); err != nil {
			return at(line, err)
		}
		n++
	}
}

// parseError leaves out the line, which is told with the file.
func parseError(err error) error {
	var fault *csv.ParseError
	if errors.As(err, &fault) {
		return fmt.Errorf("%w; every line must have as many fields as the header", fault.Err)
	}
	return err
}

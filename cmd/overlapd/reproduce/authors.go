package reproduce

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/textfile"
)

const (
	maxAuthorsBytes = 1 << 20 // the size of a file
	authorsQueries  = 1000    // per run of the authors
	maxTail         = 1e6     // p99 over target that somebody may have measured
)

// measured is what the authors measured of one policy.
type measured struct {
	tail       float64 // p99 over the QoS target
	answered   float64 // queries of 1,000
	violations float64 // part of the queries, drops counted
}

// authorsPolicies are the policies of the authors' files, as they and as we
// call them.
var authorsPolicies = []struct{ column, policy string }{
	{"FCFS", "fcfs"}, {"SJF", "sjf"}, {"EDF", "edf"}, {"Abacus", "abacus"},
}

// authorsResults are by label of the co-location and by policy.
type authorsResults map[string]map[string]measured

// readAuthors reads a file of results; one that is not there holds none.
func readAuthors(path string) (authorsResults, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return parseAuthors(file, path)
}

// authorsColumns are the columns of such a file.
func authorsColumns() []string {
	columns := []string{"colocation"}
	for _, p := range authorsPolicies {
		columns = append(columns, p.column+"_tail", p.column+"_throughput", p.column+"_violation")
	}
	return columns
}

func parseAuthors(r io.Reader, name string) (authorsResults, error) {
	t := textfile.NewTable(r, maxAuthorsBytes)
	results, columns := authorsResults{}, authorsColumns()
	for n := 1; ; n++ {
		fields, err := t.Read()
		switch {
		case errors.Is(err, io.EOF) && len(results) == 0:
			return nil, fmt.Errorf("%s: %w: no results; its columns are %s", name, errData, strings.Join(columns, ","))
		case errors.Is(err, io.EOF):
			return results, nil
		case err == nil && n == 1:
			err = checkHeader(fields, columns)
		case err == nil:
			err = results.add(fields, columns)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w: %w", name, t.Line(), errData, err)
		}
	}
}

func checkHeader(fields, columns []string) error {
	for i, want := range columns {
		if i >= len(fields) {
			return fmt.Errorf("column %s is missing; the columns are %s", want, strings.Join(columns, ","))
		}
		if got := fields[i]; got != want {
			return fmt.Errorf("column %d is %.40q and must be %s", i+1, got, want)
		}
	}
	if len(fields) > len(columns) {
		return fmt.Errorf("column %d, %.40q, is one that results do not have; remove it", len(columns)+1, fields[len(columns)])
	}
	return nil
}

func (a authorsResults) add(fields, columns []string) error {
	if len(fields) != len(columns) {
		return fmt.Errorf("%d fields, not %d", len(fields), len(columns))
	}
	list, err := colocation(fields[0])
	if err != nil {
		return err
	}
	key := label(list)
	if a[key] != nil {
		return fmt.Errorf("%s stands twice in the file; remove one of the lines", key)
	}
	a[key] = map[string]measured{}
	for i, p := range authorsPolicies {
		var m measured
		for k, column := range []struct {
			into *float64
			most float64
		}{{&m.tail, maxTail}, {&m.answered, authorsQueries}, {&m.violations, 1}} {
			at := 1 + 3*i + k
			v, err := strconv.ParseFloat(fields[at], 64)
			if err != nil || math.IsNaN(v) || v < 0 || v > column.most {
				return fmt.Errorf("%s is %.40q, not a number from 0 to %v", columns[at], fields[at], column.most)
			}
			*column.into = v
		}
		a[key][p.policy] = m
	}
	return nil
}

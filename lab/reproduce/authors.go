package reproduce

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/overlapd/overlapd/internal/textfile"
)

// The limits of numbers in the authors' files.
const (
	// authorsQueries is the number of queries of each of the authors' runs.
	authorsQueries = 1000

	// maxTail is the largest plausible p99 over target.
	maxTail = 1e6
)

// measured is the authors' result for one policy.
type measured struct {
	// tail is the p99 over the QoS target.
	tail float64

	// answered is the number of queries answered, out of 1,000.
	answered float64

	// violations is the fraction of queries that violate their target, including drops.
	violations float64
}

// authorsPolicies are the policies of the authors' files, with the names of their columns and of
// our variants.
var authorsPolicies = []struct{ column, policy string }{
	{"FCFS", "fcfs-authors"}, {"SJF", "sjf-authors"}, {"EDF", "edf-authors"}, {"Abacus", "abacus-authors"},
}

// authorsResults are results by label of the co-location and by policy.
type authorsResults map[string]map[string]measured

// authorsColumns returns the columns of a file of results.
func authorsColumns() []string {
	columns := []string{"colocation"}
	for _, p := range authorsPolicies {
		columns = append(columns, p.column+"_tail", p.column+"_throughput", p.column+"_violation")
	}
	return columns
}

// authorsSheet is the format of these files.
var authorsSheet = textfile.Sheet{
	Form:    "the columns " + strings.Join(authorsColumns(), ","),
	MaxRows: 1 << 10, Unusable: errData, TooLarge: errData,
}

// readAuthors reads a file of results. It returns nil if the file does not exist.
func readAuthors(path string) (authorsResults, error) {
	results := authorsResults{}
	err := authorsSheet.ReadFile(path, func(t *textfile.Table) { t.Columns(authorsColumns()...) }, results.add)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return results, nil
}

// add adds a row of the file.
func (a authorsResults) add(t *textfile.Table) {
	list, err := colocation(t.Fields[0])
	if err != nil {
		t.Refuse(0, "%w", err)
		return
	}
	// Labels are normalized, because the files differ in how they write a co-location.
	key := label(list)
	if a[key] != nil {
		t.Fault("%s has two lines; remove one", key)
	}
	a[key] = map[string]measured{}
	for i, p := range authorsPolicies {
		// Each policy has three columns after the label.
		at := 1 + 3*i
		a[key][p.policy] = measured{tail: t.Number(at, 0, maxTail), answered: t.Number(at+1, 0, authorsQueries), violations: t.Number(at+2, 0, 1)}
	}
}

package reproduce

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/overlapd/overlapd/textfile"
)

const (
	authorsQueries = 1000 // per run of the authors
	maxTail        = 1e6  // p99 over target that somebody may have measured
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
	{"FCFS", "fcfs-authors"}, {"SJF", "sjf-authors"}, {"EDF", "edf-authors"}, {"Abacus", "abacus-authors"},
}

// authorsResults are by label of the co-location and by policy.
type authorsResults map[string]map[string]measured

// authorsColumns are the columns of such a file.
func authorsColumns() []string {
	columns := []string{"colocation"}
	for _, p := range authorsPolicies {
		columns = append(columns, p.column+"_tail", p.column+"_throughput", p.column+"_violation")
	}
	return columns
}

var authorsSheet = textfile.Sheet{
	Form:    "the columns " + strings.Join(authorsColumns(), ","),
	MaxRows: 1 << 10, Unusable: errData, TooLarge: errData,
}

// readAuthors reads a file of results; one that is not there holds none.
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

func (a authorsResults) add(t *textfile.Table) {
	list, err := colocation(t.Fields[0])
	if err != nil {
		t.Refuse(0, "%w", err)
		return
	}
	key := label(list)
	if a[key] != nil {
		t.Fault("%s stands twice in the file; remove one of the lines", key)
	}
	a[key] = map[string]measured{}
	for i, p := range authorsPolicies {
		at := 1 + 3*i
		a[key][p.policy] = measured{tail: t.Number(at, 0, maxTail), answered: t.Number(at+1, 0, authorsQueries), violations: t.Number(at+2, 0, 1)}
	}
}

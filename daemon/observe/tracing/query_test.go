package tracing

import "testing"

// Runs beyond the limit are counted.
func TestRunsAreLimited(t *testing.T) {
	var q Query
	for i := range maxRuns + 3 {
		q.Ran(Run{Round: uint64(i)})
	}
	if len(q.Runs) != maxRuns || q.LeftOut != 3 || q.Last(maxRuns-1) == nil || q.Last(maxRuns) != nil {
		t.Errorf("%d kept, %d left out", len(q.Runs), q.LeftOut)
	}
	q.Forget()
	if len(q.Runs) != 0 || cap(q.Runs) < maxRuns || q.LeftOut != 0 {
		t.Error("it is not empty")
	}
}

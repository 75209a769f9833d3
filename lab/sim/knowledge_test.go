package sim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

// TestKnowledgeUnderSJF serves queries of 10, 25 and 10 ms that wait for one of
// 10 ms, with 33 ms for each. The long one goes last where the order is known:
// who knows all drops it then, who does not runs it late. Who knows nothing runs
// it before the last.
func TestKnowledgeUnderSJF(t *testing.T) {
	for knows, want := range map[string][]string{
		KnowsAll:     {"0 at 10ms", "1 at 20ms", "3 at 30ms", "2 dropped at 30ms"},
		KnowsOrder:   {"0 at 10ms", "1 at 20ms", "3 at 30ms", "2 late at 55ms"},
		KnowsNothing: {"0 at 10ms", "1 at 20ms", "3 dropped at 35ms", "2 late at 45ms"},
	} {
		sc := plainScenario(Query{}, Query{At: ms}, Query{At: ms, Size: 4}, Query{At: 2 * ms})
		sc.Services[0].Target, sc.Policy, sc.Knows = 33*ms, "sjf", knows
		for _, plan := range []bool{false, true} {
			sc.Plan = plan
			_, answers := watch(t, sc)
			var got []string
			for _, a := range answers {
				how := ""
				switch {
				case a.Ended.Batch == 0:
					how = " dropped"
				case !a.InTime:
					how = " late"
				}
				got = append(got, fmt.Sprintf("%d%s at %v", a.Number, how, a.Ended.At))
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("knowing %q, planned %t: %s", knows, plan, d)
			}
		}
	}
}

// TestBeyondTrainingRunsAlone: what a predictor was not trained on takes the sum of its
// spans alone, so nothing is overlapped with batches larger than those, and nobody is
// later than under edf.
func TestBeyondTrainingRunsAlone(t *testing.T) {
	sc := busyScenario("overlap")
	sc.Predictor = formulaPredictor(t, sc.Device.(*formula), 1)
	for i := range sc.Predictor.Features.Models {
		m := &sc.Predictor.Features.Models[i]
		m.MaxSize, m.Costs = 4, m.Costs[:2]
	}
	rounds, _ := watch(t, sc)
	together, alone := 0, 0
	for _, r := range rounds {
		large := slices.ContainsFunc(r.Spans, func(s models.Span) bool { return s.Size > 4 })
		switch {
		case large && len(r.Spans) > 1:
			t.Fatalf("round %d overlaps %+v", r.Number, r.Spans)
		case large:
			alone++
		case len(r.Spans) > 1:
			together++
		}
	}
	if together == 0 || alone == 0 {
		t.Errorf("%d rounds of several small batches, %d of a large one", together, alone)
	}
	ours := run(t, sc).Violations
	sc.Policy = "edf"
	if edf := run(t, sc).Violations; ours > edf {
		t.Errorf("violations %v, under edf %v", ours, edf)
	}
}

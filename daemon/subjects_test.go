package daemon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
)

// While queries may come, batches that would hold one up for too long are not
// measured; the smallest always is.
func TestSubjectsWhileServing(t *testing.T) {
	b, _ := startLoop(t, 2, func(c *config.Config) {
		c.Policy, c.Profile.OnStart = "overlap", false
		c.Services[0].Target, c.Services[0].Sizes = 400*time.Millisecond, []int{2, 4, 8}
		c.Services[1].Target, c.Services[1].Sizes = time.Second, []int{1, 2}
	})
	sizes := func(measure bool) (found [][]int) {
		b.ask(func(l *loop) {
			l.prediction.measure = measure
			for service, perItem := range []int64{20e6, 60e6} { // of an operator, nanoseconds
				operators := make([]int64, l.specs[service].Operators)
				for size := 1; size <= 8; size *= 2 {
					for i := range operators {
						operators[i] = perItem * int64(size) / int64(len(operators))
					}
					if err := l.solo.SetOperators(models.ServiceID(service), size, 0, operators); err != nil {
						t.Error(err)
					}
				}
			}
			subjects, _ := l.subjects()
			for _, s := range subjects {
				found = append(found, s.Sizes)
			}
		})
		return found
	}
	// Half of the least target for two spans: 100 ms each.
	if d := cmp.Diff([][]int{{2, 4}, {1}}, sizes(false)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([][]int{{2, 4, 8}, {1, 2}}, sizes(true)); d != "" {
		t.Error(d)
	}
}

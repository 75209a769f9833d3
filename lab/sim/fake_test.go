package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Others are the policies that are not in package overlap, and what makes schedulers of all.
// The external tests set them, since what they are in imports this package.
var Others struct {
	Policies []string
	New      func(overlap.Config) (Scheduler, error)
}

// wholePolicies are those that a scenario may have whose services have no shares of the
// device.
func wholePolicies() []string {
	names := slices.Clone(Others.Policies)
	for _, p := range slices.Concat(overlap.Policies(), overlap.Comparisons()) {
		if p.Name != staticPolicy {
			names = append(names, p.Name)
		}
	}
	return names
}

// formula is a device that is calculated: an operator takes as long as its
// model says, in proportion to a half and half of the batch size, and a group
// the longest of its spans and a part of the others.
type formula struct {
	models []device.ModelInfo
	op     []time.Duration
	part   float64 // of the other spans that does not overlap
	spread float64
}

func newFormula(part, spread float64, op ...time.Duration) *formula {
	f := &formula{part: part, spread: spread, op: op}
	for i := range op {
		f.models = append(f.models, device.ModelInfo{Name: string(rune('a' + i)), Operators: 10, Sizes: []int{1, 4, 8, 16, 32}, SeqLens: []int{0}})
	}
	return f
}

func (f *formula) Models() []device.ModelInfo { return f.models }

func (f *formula) OperatorTimes(whole models.Span) []int64 {
	return device.OperatorTimes(f.Latency, whole)
}

func (f *formula) Latency(g models.Group) time.Duration {
	var sum, longest float64
	for _, s := range g.Spans {
		t := float64(f.op[s.Service]) * float64(s.Len()) * (0.5 + 0.5*float64(s.Size))
		sum += t
		longest = max(longest, t)
	}
	return time.Duration(longest + f.part*(sum-longest))
}

func (f *formula) Sample(g models.Group, r *rand.Rand) time.Duration {
	return time.Duration(float64(f.Latency(g)) * (1 + f.spread*min(max(r.NormFloat64(), -3), 3)))
}

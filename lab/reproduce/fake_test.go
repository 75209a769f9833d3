package reproduce

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
)

// fixed is a device on which an operator takes a millisecond for each of so
// many queries, and what runs together takes as long as the longest of it.
type fixed struct{ names []string }

const fixedOperators = 4

var _ sim.Device = fixed{}

func (f fixed) Models() []device.ModelInfo {
	var list []device.ModelInfo
	for _, n := range f.names {
		list = append(list, device.ModelInfo{Name: n, Operators: fixedOperators, Sizes: []int{1, 2}, SeqLens: []int{0, 8}})
	}
	return list
}

func (f fixed) Latency(g models.Group) (longest time.Duration) {
	for _, s := range g.Spans {
		longest = max(longest, time.Duration(s.Len()*s.Size)*time.Millisecond)
	}
	return longest
}

func (f fixed) OperatorTimes(whole models.Span) []int64 {
	return device.OperatorTimes(f.Latency, whole)
}

func (f fixed) Sample(g models.Group, _ *rand.Rand) time.Duration { return f.Latency(g) }

// writeFile writes a file of a test.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

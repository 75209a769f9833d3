package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// TestSizesAreAsLikely finds each size and sequence length about as often.
func TestSizesAreAsLikely(t *testing.T) {
	sc := busyScenario("fcfs")
	f := newFormula(1, 0, time.Microsecond)
	f.models[0].SeqLens = []int{8, 64}
	sc.Device, sc.Queries = f, 8000
	sc.Services = []Service{{Name: "a", Target: time.Second, Sizes: []int{4, 8, 16, 32}, SeqLens: []int{8, 64}}}
	queries, err := sc.Submissions()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[[2]int]int{}
	for _, q := range queries {
		counts[[2]int{q.Size, q.SeqLen}]++
	}
	if len(counts) != 8 {
		t.Fatalf("shapes %v, want 8", counts)
	}
	for shape, n := range counts {
		if n < 880 || n > 1120 { // four standard deviations around 1000
			t.Errorf("shape %v occurs %d times in 8000", shape, n)
		}
	}
}

// TestLeaving draws the share that leaves before the deadline, and has all
// others leave at their timeout.
func TestLeaving(t *testing.T) {
	c := clients{Leaving: 0.25, Timeout: 100 * ms}
	r := stream(1, forClients, 0)
	early := 0
	for i := range 4000 {
		at := time.Duration(i) * ms
		switch leaves := c.leaves(at, 50*ms, r); {
		case leaves > at && leaves <= at+50*ms:
			early++
		case leaves != at+100*ms:
			t.Fatalf("a client of %v leaves at %v", at, leaves)
		}
	}
	if early < 890 || early > 1110 {
		t.Errorf("%d of 4000 leave early, want about 1000", early)
	}
	if leaves := (&clients{}).leaves(ms, ms, r); leaves != 0 {
		t.Errorf("a client that stays leaves at %v", leaves)
	}
}

// TestStreamsDiffer draws from streams of other purposes, numbers and seeds.
func TestStreamsDiffer(t *testing.T) {
	var first []uint64
	for seed := range uint64(3) {
		for p := forTimes; p <= forFailing; p++ {
			for number := range 5 {
				first = append(first, stream(seed, p, number).Uint64())
			}
		}
	}
	n := len(first)
	slices.Sort(first)
	if len(slices.Compact(first)) != n {
		t.Error("two streams begin alike")
	}
}

// stuck is a device whose runs take no time.
type stuck struct{ *formula }

func (stuck) Sample(models.Group, *rand.Rand) time.Duration { return 0 }

// TestRunsTakeTime ends a run on a device that says it takes none.
func TestRunsTakeTime(t *testing.T) {
	sc := busyScenario("edf")
	sc.Device = stuck{newFormula(1, 0, ms, ms)}
	if r := run(t, sc); r.Answered+r.Dropped != sc.Queries {
		t.Errorf("got %+v", r)
	}
}

package selection

import (
	"math/rand/v2"
	"testing"
	"time"
)

// liveSet has policies for 10, 20, 40 and 80 queries a second, each of which selects the
// variant of its name.
func liveSet() *Set {
	s := new(Set)
	for i, name := range []string{"10", "20", "40", "80"} {
		s.Policies = append(s.Policies, &Policy{
			Variants: []Variant{{Name: name}}, Rate: float64(int(10) << i), slack: []float64{0}, choice: make([]action, 4),
		})
	}
	return s
}

func TestLiveFollowsTheLoad(t *testing.T) {
	const s = time.Second
	var l Live
	if name := l.Choose(1, s); name != "" || l.Policy() != nil {
		t.Fatalf("%q is selected without a policy", name)
	}
	l.Use(liveSet())
	now := time.Duration(0)
	for _, step := range []struct {
		rate   int // queries a second
		during time.Duration
		others float64
		want   string
	}{
		{5, 6 * s, 0, "10"},
		{35, 1 * s, 0, "40"},     // at once
		{15, 1500 * ms, 0, "40"}, // not yet
		{35, 1 * s, 0, "40"},     // it was nothing
		{15, 4 * s, 0, "20"},     // with patience
		{15, 2 * s, 0.5, "40"},   // half of the device is not there for it
		{15, 4 * s, 0, "20"},
		{15, 2 * s, 1, "80"},   // something is always left
		{1000, 1 * s, 0, "80"}, // beyond what there is a policy for
		{1, 15 * s, 0, "10"},
	} {
		l.Share(step.others)
		for end := now + step.during; now < end; now += s / time.Duration(step.rate) {
			l.Arrived(now)
		}
		if got := l.Choose(3, s); got != step.want {
			t.Errorf("at %v, after %v of %d/s beside %.1f: the policy for %s/s, want that for %s/s (%.1f/s)", now, step.during, step.rate, step.others, got, step.want, l.rate)
		}
	}
}

const ms = time.Millisecond

// TestLiveTakesChanceForNoLoad: of a Poisson process at 36 queries a second some windows have
// more than 40, and the policy for 80 is not for them. Half a second of twice as many is.
func TestLiveTakesChanceForNoLoad(t *testing.T) {
	var l Live
	l.Use(liveSet())
	random := rand.New(rand.NewPCG(1, 2))
	now, most := time.Duration(0), 0.0
	come := func(rate float64, during time.Duration) {
		for end := now + during; now < end; now += time.Duration(random.ExpFloat64() / rate * 1e9) {
			l.Arrived(now)
			most = max(most, l.rate)
		}
	}
	if come(3600, 100*ms); l.Choose(1, time.Second) != "80" {
		t.Errorf("at first for %s", l.Choose(1, time.Second))
	}
	if come(36, 10*time.Second); l.Choose(1, time.Second) != "40" {
		t.Errorf("for %s", l.Choose(1, time.Second))
	}
	most = 0
	if come(36, time.Minute); most > 50 {
		t.Errorf("a load of %.1f is seen", most)
	}
	if come(72, time.Second); l.Choose(1, time.Second) != "80" {
		t.Errorf("at twice the load for %s, %.1f", l.Choose(1, time.Second), l.rate)
	}
}

// Where there is no time, and where queries are to be dropped, the fastest answers.
func TestLiveWithoutTime(t *testing.T) {
	set := liveSet()
	set.Policies = set.Policies[:1]
	p := set.Policies[0]
	p.Variants, p.slack = []Variant{{Name: "fast"}, {Name: "slow"}}, []float64{0, 100}
	p.choice = []action{{Dropped, 1}, {1, 1}, {Dropped, 2}, {0, 2}}
	var l Live
	l.Use(set)
	for _, c := range []struct {
		waiting int
		slack   time.Duration
		want    string
	}{{1, -s10, ""}, {1, 99 * ms, ""}, {1, 100 * ms, "slow"}, {2, s10, "fast"}, {0, s10, "slow"}, {1000, s10, "fast"}} {
		if got := l.Choose(c.waiting, c.slack); got != c.want {
			t.Errorf("%d wait, slack %v: %q, want %q", c.waiting, c.slack, got, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { l.Arrived(0); l.Choose(3, s10) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

const s10 = 10 * time.Second

package planning

import (
	"errors"
	"math"
	"testing"
	"time"
)

// trial is a problem that is small enough to try every way: the search for a plan, what
// checks one without knowing the search, and the best objective of all ways, infinite if
// there is none.
type trial struct {
	find  func(Search) (*Placement, error)
	check func(*Placement)
	exact func() float64
	least bool // the least objective is the best, not the largest
}

// trials are the kinds of problems, with how many are tried, in short tests and with a
// solver, and of how many in ten the heuristic must find the best.
var trials = map[string]struct {
	make                       func(t *testing.T, seed uint64) trial
	seeds, short, solved, best int
}{
	"herd":      {herdTrial, 100, 60, 60, 9},
	"place":     {placeTrial, 100, 60, 60, 9},
	"partition": {partitionTrial, 20, 20, 20, 8},
}

// everyWay visits all lists of n numbers, the next of which is below what ways returns for
// those before it.
func everyWay(n int, ways func(before []int) int, visit func([]int)) {
	of := make([]int, 0, n)
	var next func()
	next = func() {
		if len(of) == n {
			visit(of)
			return
		}
		for i := range ways(of) {
			of = append(of, i)
			next()
			of = of[:len(of)-1]
		}
	}
	next()
}

// eachTrial searches for plans, and compares them with the best of all ways.
func eachTrial(t *testing.T, trial trial, how Search) (plan *Placement, exact float64) {
	t.Helper()
	plan, err := trial.find(how)
	if exact = trial.exact(); errors.Is(err, errNoPlan) {
		if !math.IsInf(exact, 0) {
			t.Errorf("%v, but there is one", err)
		}
		return nil, exact
	}
	if err != nil {
		t.Fatal(err)
	}
	trial.check(plan)
	return plan, exact
}

// TestPlanIsBetweenExactAndBound compares the heuristics with the best of all ways.
func TestPlanIsBetweenExactAndBound(t *testing.T) {
	for name, kind := range trials {
		if testing.Short() {
			kind.seeds = kind.short
		}
		best, tight, all, worst := 0, 0, 0, 1.0
		for seed := range kind.seeds {
			trial := kind.make(t, uint64(seed))
			plan, exact := eachTrial(t, trial, alone())
			if plan == nil {
				continue
			}
			low, high := plan.Objective, plan.Bound
			if trial.least {
				low, high = high, low
			}
			if low > exact*(1+1e-6) || exact > high*(1+1e-6) {
				t.Errorf("%s, seed %d: heuristic %v, exact %v, bound %v", name, seed, plan.Objective, exact, plan.Bound)
			}
			all++
			if near(plan.Objective, exact) {
				best++
			}
			if near(plan.Bound, exact) {
				tight++
			}
			worst = max(worst, plan.Objective/exact, exact/plan.Objective)
		}
		t.Logf("%s: of %d cases the heuristic finds the best in %d, and is off by a factor of %.4f at most; the bound is the best in %d", name, all, best, worst, tight)
		if 10*best < all*kind.best {
			t.Error("that is too few")
		}
	}
}

func TestPlanWithSolverIsExact(t *testing.T) {
	how := installed(t)
	for name, kind := range trials {
		for seed := range kind.solved {
			trial := kind.make(t, uint64(seed))
			if how.Limit = 20 * time.Second; trial.least {
				how.Limit = 4 * time.Second
			}
			const tolerance = 1e-5 // of solvers
			plan, exact := eachTrial(t, trial, how)
			if plan != nil && max(math.Abs(plan.Objective-exact), math.Abs(plan.Bound-exact)) > tolerance*max(1, exact) {
				t.Errorf("%s, seed %d: objective %v, bound %v, exact %v (%s)", name, seed, plan.Objective, plan.Bound, exact, plan.Note)
			}
		}
	}
}

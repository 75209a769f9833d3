package selection

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
)

// Limits of the search for a policy, and when it ends: values that are so near to each other,
// as a part of the largest accuracy, are equal.
const (
	firstSweeps = 200 // of the first rounds, doubled whenever they were too few
	maxSweeps   = 100_000
	evaluations = 20
	maxRounds   = 50
	precision   = 1e-9
)

// Policy says which variant runs the next batch, which has all queries that wait.
type Policy struct {
	Variants []Variant `json:"-"`    // that it chooses from, the fastest first
	Rate     float64   `json:"load"` // queries a second for all workers

	// Accuracy is the expected mean accuracy of the queries that are in time, Violations the
	// expected part of those answered that is late, or of all that is late or dropped. Both
	// weight a state by its queries, and count all of them as late when the first of them may
	// be (section 5.1). Slack is rounded down, so that in truth more are in time. Queries
	// beyond the longest queue are not counted.
	Accuracy   float64 `json:"accuracy"`
	Violations float64 `json:"violations"`

	States int `json:"states"` // including one for all empty queues and one for the full queue

	slack  []float64 // levels
	choice []action  // by length of the queue and level
}

// action is what is done in a state.
type action struct{ variant, batch int16 }

// Dropped stands for the variant of queries that are not answered.
const Dropped = -1

// Choose returns the index of the variant for a queue of n queries, whose first has so many
// milliseconds until it is late, and how many of them, the first ones, it has to answer. It is
// the fastest where no time is left, or, for a [Worker] that drops, [Dropped].
func (p *Policy) Choose(n int, slack float64) (variant, batch int) {
	levels := len(p.slack)
	n = min(max(n, 1), len(p.choice)/levels)
	a := p.choice[(n-1)*levels+levelOf(p.slack, slack)]
	return int(a.variant), int(a.batch)
}

// levelOf returns the last level that is no more than a slack, and the lowest if none is.
func levelOf(levels []float64, slack float64) int {
	low, high := 0, len(levels)
	for high-low > 1 {
		if middle := (low + high) / 2; levels[middle] <= slack {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// Solve returns the policy with which a query's expected accuracy is largest, where that of a
// query that is late is 0. The variants that it chooses from are the [Front].
//
// The value of a policy is a ratio, of the accuracy to the queries answered, each an average
// over batches. It is found by Dinkelbach's method: a round looks for the policy with the
// largest average of accuracy minus g, for each query, by value iteration, and then g is set
// to what that policy reaches, until it reaches no more.
func (w Worker) Solve(ctx context.Context) (*Policy, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	w.Variants = Front(w.Variants)
	s := newSolver(newChain(&w))
	if err := s.solve(ctx); err != nil {
		return nil, err
	}
	p := &Policy{Variants: w.Variants, Rate: w.Rate, States: len(s.value) + 2, slack: s.slack, choice: make([]action, len(s.value))}
	for i, r := range s.choice {
		p.choice[i] = action{int16(s.runs[r].variant), int16(s.runs[r].batch)}
	}
	sum := s.average()
	if p.Violations = 1 - sum.inTime/sum.queries; sum.inTime > 0 {
		p.Accuracy = sum.accuracy / sum.inTime
	}
	return p, nil
}

// solver is the search for a policy.
type solver struct {
	*chain
	goal        float64   // g, an accuracy
	value, next []float64 // of states, relative to a fresh one
	choice      []int     // run of each state
	share       []float64 // of batches that start in each state
}

func newSolver(c *chain) *solver {
	n := c.Queue * len(c.slack)
	s := &solver{chain: c, value: make([]float64, n), next: make([]float64, n), choice: make([]int, n), share: make([]float64, n)}
	for _, v := range c.Variants {
		s.goal = max(s.goal, v.Accuracy)
	}
	return s
}

func (s *solver) solve(ctx context.Context) error {
	most := s.goal
	s.share[s.fresh()] = 1
	sweeps := firstSweeps
	for range maxRounds {
		found, err := s.iterate(ctx, precision*most, sweeps)
		if err != nil {
			return err
		}
		settled, err := s.settle(ctx, sweeps)
		if err != nil {
			return err
		}
		sum := s.average()
		reached := sum.accuracy / sum.queries
		exact := found && settled
		if exact && math.Abs(reached-s.goal) <= precision*most {
			return nil
		}
		if s.goal = reached; !exact {
			sweeps = min(2*sweeps, maxSweeps)
		}
	}
	return fmt.Errorf("%w: the accuracy still changed after %d rounds", errWorker, maxRounds)
}

// iterate repeats value iteration until all values change by the same, and returns false if
// they do not after so many sweeps: where some states are rarely left, that may take very
// many, and the policy found so far is good enough to set the next goal. Between two sweeps,
// which look for the best run of each state, there are some with the runs found, which take
// less time and bring values on almost as far (modified policy iteration).
func (s *solver) iterate(ctx context.Context, tolerance float64, sweeps int) (bool, error) {
	for range sweeps / evaluations {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if s.sweep(s.best) <= tolerance {
			return true, nil
		}
		for range evaluations {
			if s.sweep(func(state int) float64 { return s.worth(state, s.choice[state]) }) <= tolerance {
				break
			}
		}
	}
	return false, nil
}

// sweep replaces the values of all states and returns how far apart their changes are.
func (s *solver) sweep(worth func(state int) float64) float64 {
	s.expect(s.value)
	each(len(s.value), func(state int) { s.next[state] = worth(state) })
	low, high, base := math.Inf(1), math.Inf(-1), s.next[s.fresh()]
	for i, v := range s.next {
		low, high = min(low, v-s.value[i]), max(high, v-s.value[i])
		s.next[i] = v - base
	}
	s.value, s.next = s.next, s.value
	return high - low
}

// best finds the run with the largest value in a state, and returns that.
func (s *solver) best(state int) float64 {
	n, level := s.split(state)
	best, choice := math.Inf(-1), s.byBatch[n][0]
	for b := n; b > 0 && (b == n || s.Variable); b-- {
		for _, r := range s.byBatch[b] {
			if !s.inTime(r, level) {
				break
			}
			if v := s.worth(state, r); v > best {
				best, choice = v, r
			}
		}
	}
	// Where nothing is in time, and with variable batches also where only a part is: to be done
	// with queries that are late anyway may save those behind them.
	if math.IsInf(best, -1) || s.Variable {
		late := s.byBatch[n][0]
		if s.Drop {
			late = s.dropped
		}
		if v := s.worth(state, late); v > best {
			best, choice = v, late
		}
	}
	s.choice[state] = choice
	return best
}

// worth is the value of a run in a state.
func (s *solver) worth(state, r int) float64 {
	n, level := s.split(state)
	if s.runs[r].batch < n {
		return s.reward(r, level) + s.carried(state, r, s.value, nil, 0)
	}
	return s.reward(r, level) + floats.Dot(s.phases[state], s.ahead[r])
}

// reward is that of section 4.1, for each query, less the goal.
func (s *solver) reward(r, level int) float64 {
	accuracy := 0.0
	if s.onTime(r, level) {
		accuracy = s.Variants[s.runs[r].variant].Accuracy
	}
	return float64(s.runs[r].batch) * (accuracy - s.goal)
}

// settle finds the share of batches that start in each state, by power iteration. It returns
// false if shares still change after so many sweeps.
func (s *solver) settle(ctx context.Context, sweeps int) (bool, error) {
	next := make([]float64, len(s.share))
	for range sweeps {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		clear(next)
		for i := range s.ahead {
			clear(s.ahead[i])
		}
		for state, q := range s.share {
			n, _ := s.split(state)
			if r := s.choice[state]; s.runs[r].batch < n {
				s.carried(state, r, nil, next, q)
			} else {
				floats.AddScaled(s.ahead[r], q, s.phases[state])
			}
		}
		s.spread(next)
		floats.Scale(1/floats.Sum(next), next)
		if s.share, next = next, s.share; floats.Distance(s.share, next, 1) <= precision {
			return true, nil
		}
	}
	return false, nil
}

// sums are averages over batches: of the queries in one, and of those in time and their
// accuracy.
type sums struct{ queries, inTime, accuracy float64 }

func (s *solver) average() (sum sums) {
	for state, q := range s.share {
		_, level := s.split(state)
		r := s.choice[state]
		q *= float64(s.runs[r].batch)
		sum.queries += q
		if s.onTime(r, level) {
			sum.inTime += q
			sum.accuracy += q * s.Variants[s.runs[r].variant].Accuracy
		}
	}
	return sum
}

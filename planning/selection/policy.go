package selection

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
)

// Limits of the search for a policy. It ends when values differ by less than precision times the
// largest accuracy. firstSweeps is the number of sweeps in the first rounds, doubled when they were
// too few.
const (
	firstSweeps = 200
	maxSweeps   = 100_000
	evaluations = 20
	maxRounds   = 50
	precision   = 1e-9
)

// Policy determines the variant and the size of the next batch for each queue.
type Policy struct {
	// Variants are the variants that the policy chooses from, the fastest first.
	Variants []Variant `json:"-"`

	// Rate is the load in queries a second for all workers.
	Rate float64 `json:"load"`

	// Accuracy is the expected mean accuracy of the queries in time. Violations is the expected
	// fraction of late queries of those answered or, if the worker drops queries, of late and
	// dropped ones of all. Both weight a state by its queries, and count all of them as late if the
	// first of them may be (section 5.1). Slack is rounded down, so that more queries are in time
	// than predicted. Queries beyond the longest queue are not counted.
	Accuracy   float64 `json:"accuracy"`
	Violations float64 `json:"violations"`

	// States includes one for all empty queues and one for the full queue.
	States int `json:"states"`

	// slack holds the levels. choice holds the actions by length of the queue and level.
	slack  []float64
	choice []action
}

// action is the decision for a state.
type action struct{ variant, batch int16 }

// Dropped stands in place of a variant if the queries are dropped.
const Dropped = -1

// Choose returns the index of the variant for a queue of n queries, whose first has the given slack
// in milliseconds, and the number of queries from the front of the queue that it answers. Without
// time left the variant is the fastest, or [Dropped] if the [Worker] drops queries.
func (p *Policy) Choose(n int, slack float64) (variant, batch int) {
	levels := len(p.slack)
	n = min(max(n, 1), len(p.choice)/levels)
	a := p.choice[(n-1)*levels+levelOf(p.slack, slack)]
	return int(a.variant), int(a.batch)
}

// levelOf returns the index of the last level that does not exceed a slack, or 0.
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

// Solve returns the policy with the largest expected accuracy of a query, where a late query has
// the accuracy 0. The policy chooses from the variants on the [Front].
//
// The value of a policy is a ratio of two averages over batches: the accuracy and the queries
// answered. Solve maximizes it by Dinkelbach's method. In each round, value iteration finds the
// policy with the largest average of accuracy minus g for each query. Then g becomes the ratio that
// this policy reaches, until it no longer changes.
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
	p := &Policy{Variants: w.Variants, Rate: w.Rate, States: len(s.value) + 2, slack: s.chain.slack, choice: make([]action, len(s.value))}
	for i, r := range s.choice {
		p.choice[i] = action{int16(s.chain.runs[r].variant), int16(s.chain.runs[r].batch)}
	}
	sum := s.average()
	if p.Violations = 1 - sum.inTime/sum.queries; sum.inTime > 0 {
		p.Accuracy = sum.accuracy / sum.inTime
	}
	return p, nil
}

// solver is the search for a policy on a chain.
type solver struct {
	chain *chain

	// goal is Dinkelbach's g, an accuracy.
	goal float64

	// value and next are the values of the states, relative to the fresh one.
	value, next []float64

	// choice is the run of each state.
	choice []int

	// share is the fraction of batches that start in each state.
	share []float64
}

// newSolver returns a search that starts from the largest accuracy as its goal.
func newSolver(c *chain) *solver {
	n := c.Queue * len(c.slack)
	s := &solver{chain: c, value: make([]float64, n), next: make([]float64, n), choice: make([]int, n), share: make([]float64, n)}
	for _, v := range c.Variants {
		s.goal = max(s.goal, v.Accuracy)
	}
	return s
}

// solve sets choice to the best run of each state, and share to the fractions that follow from it.
func (s *solver) solve(ctx context.Context) error {
	most := s.goal
	s.share[s.chain.fresh()] = 1
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

// iterate repeats value iteration until all values change by the same amount. It returns false if
// that needs more sweeps than given: if the worker rarely leaves some states, it may take a great
// many, and the policy found so far is good enough to set the next goal. Each sweep that looks for
// the best runs is followed by a few that keep the runs, which are cheaper and bring the values
// almost as far (modified policy iteration).
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

// sweep replaces the values of all states and returns the spread of their changes.
func (s *solver) sweep(worth func(state int) float64) float64 {
	s.chain.expect(s.value)
	each(len(s.value), func(state int) { s.next[state] = worth(state) })
	low, high, base := math.Inf(1), math.Inf(-1), s.next[s.chain.fresh()]
	for i, v := range s.next {
		low, high = min(low, v-s.value[i]), max(high, v-s.value[i])
		s.next[i] = v - base
	}
	s.value, s.next = s.next, s.value
	return high - low
}

// best sets the choice of a state to the run with the largest value, and returns that value.
func (s *solver) best(state int) float64 {
	n, level := s.chain.split(state)
	best, choice := math.Inf(-1), s.chain.byBatch[n][0]
	for b := n; b > 0 && (b == n || s.chain.Variable); b-- {
		for _, r := range s.chain.byBatch[b] {
			if !s.chain.inTime(r, level) {
				break
			}
			if v := s.worth(state, r); v > best {
				best, choice = v, r
			}
		}
	}
	// No run is in time, or, with variable batches, only runs of a part of the queue. In the second
	// case it may still pay to finish the late queries first, to save those behind them.
	if math.IsInf(best, -1) || s.chain.Variable {
		late := s.chain.byBatch[n][0]
		if s.chain.Drop {
			late = s.chain.dropped
		}
		if v := s.worth(state, late); v > best {
			best, choice = v, late
		}
	}
	s.choice[state] = choice
	return best
}

// worth returns the value of a run in a state.
func (s *solver) worth(state, r int) float64 {
	n, level := s.chain.split(state)
	if s.chain.runs[r].batch < n {
		return s.reward(r, level) + s.chain.carried(state, r, s.value, nil, 0)
	}
	return s.reward(r, level) + floats.Dot(s.chain.phases[state], s.chain.ahead[r])
}

// reward returns the reward of section 4.1 summed over the queries of a run, less the goal for
// each.
func (s *solver) reward(r, level int) float64 {
	accuracy := 0.0
	if s.chain.onTime(r, level) {
		accuracy = s.chain.Variants[s.chain.runs[r].variant].Accuracy
	}
	return float64(s.chain.runs[r].batch) * (accuracy - s.goal)
}

// settle computes the fraction of batches that start in each state, by power iteration. It returns
// false if the fractions still change after the given number of sweeps.
func (s *solver) settle(ctx context.Context, sweeps int) (bool, error) {
	next := make([]float64, len(s.share))
	for range sweeps {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		clear(next)
		for i := range s.chain.ahead {
			clear(s.chain.ahead[i])
		}
		for state, q := range s.share {
			n, _ := s.chain.split(state)
			if r := s.choice[state]; s.chain.runs[r].batch < n {
				s.chain.carried(state, r, nil, next, q)
			} else {
				floats.AddScaled(s.chain.ahead[r], q, s.chain.phases[state])
			}
		}
		s.chain.spread(next)
		floats.Scale(1/floats.Sum(next), next)
		if s.share, next = next, s.share; floats.Distance(s.share, next, 1) <= precision {
			return true, nil
		}
	}
	return false, nil
}

// sums are averages over batches: the queries in a batch, those in time, and the accuracy summed
// over those in time.
type sums struct{ queries, inTime, accuracy float64 }

// average returns the averages under the current choices.
func (s *solver) average() (sum sums) {
	for state, q := range s.share {
		_, level := s.chain.split(state)
		r := s.choice[state]
		q *= float64(s.chain.runs[r].batch)
		sum.queries += q
		if s.chain.onTime(r, level) {
			sum.inTime += q
			sum.accuracy += q * s.chain.Variants[s.chain.runs[r].variant].Accuracy
		}
	}
	return sum
}

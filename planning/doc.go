// Package planning decides by optimization what is loaded where, offline or every few
// minutes, never for a query.
//
//   - [Greedy] puts the services of one host on its devices by their memory alone.
//   - [Place] spreads the services of one host over its devices (Shepherd, section 4,
//     with each device a worker of its own).
//   - [Herd] forms serving groups of many equal devices (Shepherd, section 4).
//   - [Partition] divides services among sub-clusters (Symphony, appendix A).
//   - Pipelines take batches over devices of several classes (PPipe, section 3).
//
// Each has a heuristic of its own and a bound that no plan can exceed. Where a solver of
// mixed integer linear programs is installed, CBC or HiGHS, it is run as a process for
// what lies between the two, within a time limit. Its answer is checked before it is
// believed, and where it fails the heuristic's plan stands.
//
// A [Placement] is what comes out, and a file.
package planning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// errNoPlan is wrapped by errors that say why there is no plan, or why none was found.
var errNoPlan = errors.New("no plan")

// Service is a service as planning sees it.
type Service struct {
	Name  string `json:"name"`
	Model string `json:"model,omitempty"` // that it was planned with, "" for any

	// Memory is what its model takes on each device that it is loaded on, Working what a
	// batch of it needs besides while it runs, in MiB.
	Memory  float64 `json:"memory_mib"`
	Working float64 `json:"working_mib,omitempty"`

	// Rate is requests a second. Load is how many devices of speed 1 these keep busy: Rate
	// over the most that one device answers in time (Shepherd's n).
	Rate float64 `json:"rate"`
	Load float64 `json:"load"`

	// A batch of b takes Alpha·b + Beta milliseconds on a device of speed 1. The target
	// and the largest batch limit b, where they are not 0.
	Alpha    float64 `json:"alpha_ms,omitempty"`
	Beta     float64 `json:"beta_ms,omitempty"`
	Target   float64 `json:"target_ms,omitempty"`
	MaxBatch int     `json:"max_batch,omitempty"`

	// Devices are the names of those that a plan has it run on; for [Greedy], of those
	// that it must be on.
	Devices []string `json:"devices,omitempty"`

	// Pipelines are the ways of its batches over Devices that a plan of pipelines has, and
	// Hash and Operators are those of the model whose operators they divide.
	Pipelines []Pipeline `json:"pipelines,omitempty"`
	Hash      string     `json:"hash,omitempty"`
	Operators int        `json:"operators,omitempty"`

	// Blocks is what a plan of pipelines is made of.
	Blocks Blocks `json:"-"`
}

// Blocks is what pipelines of a model are planned by: its operators in a few blocks of
// about equal time (PPipe, section 5.2).
type Blocks struct {
	Ends []int // for each block the operator that it ends before

	// Times are microseconds by class of devices, share - 1, batch - 1 and block: of a batch
	// on one of so many equal parts of a device, all of which are busy.
	Times map[string][][][]float64
	Moves []float64 // microseconds by block: of what is alive behind it for one query, over an idle link

	// Margin is the part of the target that a plan leaves free. Fill is how many requests
	// come in a second while a batch waits until it is full, 0 for as many as the plan
	// without partitions answers.
	Margin float64
	Fill   float64
}

// Device is a device, or a sub-cluster of equal ones.
type Device struct {
	Name   string  `json:"name"`
	Memory float64 `json:"memory_mib"`
	Speed  float64 `json:"speed"` // work that it does while one of speed 1 does 1

	// Class is the same for devices on which everything takes equally long, and Link, from
	// 1, for those that share what carries intermediates to and from other devices. Each
	// device of link 0 has its own.
	Class string `json:"class,omitempty"`
	Link  int    `json:"link,omitempty"`

	// Load is the part of its time that a plan's services keep it busy for, Group its
	// serving group from 1, 0 where a plan has no groups.
	Load  float64 `json:"load"`
	Group int     `json:"group,omitempty"`
}

// Search is how a plan is searched for.
type Search struct {
	// Solver is the program that solves mixed integer linear programs, "none" for none, or
	// "" for the one that OVERLAPD_SOLVER names, or else the first that is found.
	Solver string

	Limit    time.Duration      // of all of it
	Progress func(doing string) // is called with what is being done, and may be nil
}

// search is a Search under way.
type search struct {
	Search
	ctx             context.Context
	solver          *solver
	began, deadline time.Time
	by, note        string // of the plan: Solver and Note
}

// begin checks what a plan is to be made for.
func (s Search) begin(ctx context.Context, services []Service, devices []Device) (*search, error) {
	faults := faultsOf(services, devices)
	if !slices.ContainsFunc(services, func(s Service) bool { return s.Load > 0 }) {
		faults = append(faults, errors.New("no service has a load above 0; give some"))
	}
	largest := 0.0
	for _, d := range devices {
		largest = max(largest, d.Memory)
	}
	for _, s := range services {
		if !atMost(s.needs(), largest) {
			faults = append(faults, fmt.Errorf("service %s needs %.0f MiB, and no device has more than %.0f; give larger devices or leave it out", s.Name, s.needs(), largest))
		}
	}
	found, err := findSolver(s.Solver)
	if err != nil {
		faults = append(faults, err)
	}
	now := time.Now()
	return &search{Search: s, ctx: ctx, solver: found, began: now, deadline: now.Add(s.Limit), by: heuristic}, listFaults(errNoPlan, faults)
}

// over reports whether the search has no time left, or nobody waits for it.
func (s *search) over() bool {
	return s != nil && (s.ctx.Err() != nil || time.Now().After(s.deadline))
}

func (s *search) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// ask has the solver work on a program for the time that is left. It returns nil if that
// found no solution, which the note then says, unless it says that there is none.
func (s *search) ask(p *program, start []float64) *answer {
	s.say("asking %s about %d variables", s.solver.name, len(p.variables))
	a, err := s.solver.solve(s.ctx, p, start, time.Until(s.deadline))
	if err == nil && a.x == nil && !a.infeasible {
		err = fmt.Errorf("%s found nothing better in its time, and not that there is nothing", s.solver.name)
	}
	if err != nil {
		s.note = err.Error()
		return nil
	}
	return a
}

// Limits of searches for a burst tolerance.
const (
	halvings     = 80   // of what is between bounds
	climbs       = 10   // of what is between the best and its bound
	attempts     = 200  // at random, for one burst tolerance
	mostOverload = 1000 // beyond it no least overload is looked for
	overloadStep = 1.02 // by how much devices may be overloaded more when no plan was found
	negligible   = 1e-6 // difference, relative or as part of an average
)

// climb looks for something of a larger value than the best: it tries the bound, bisects,
// and then tries for anything that is better.
func climb[T any](s *search, best T, bound float64, value func(T) float64, find func(aim float64) (T, bool)) T {
	high := bound
	for step := 0; step <= climbs && value(best) < bound*(1-epsilon) && !s.over(); step++ {
		aim := (value(best) + high) / 2
		switch step {
		case 0:
			aim = bound
		case climbs:
			aim = value(best) * (1 + negligible)
		}
		if better, ok := find(aim); !ok {
			high = aim
		} else if best = better; step == climbs {
			step--
		}
	}
	return best
}

// greatest bisects for the greatest value up to high that may be, or one a little above.
func greatest(high float64, may func(float64) bool) float64 {
	low := 0.0
	if may(high) {
		return high
	}
	for range halvings {
		if middle := (low + high) / 2; may(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// leastOverload sets how busy devices may be to 1, or to the least for which a plan is
// found. It finds none where there is none however busy they may be.
func leastOverload[T any](load *float64, sum, devices float64, find func() (T, bool)) (T, bool) {
	*load = infinite
	found, ok := find()
	for next := max(1, sum/devices); ok && next < mostOverload*(1+sum); next *= overloadStep {
		*load = next
		if better, fits := find(); fits {
			return better, true
		}
	}
	*load = infinite
	return found, ok
}

// epsilon is the relative error that sums of loads, memory and rates may have.
const epsilon = 1e-9

// atMost reports whether a ≤ b but for rounding.
func atMost(a, b float64) bool { return a <= b+epsilon*max(1, math.Abs(b)) }

// whole returns the least whole number of devices that are x.
func whole(x float64) int { return int(math.Ceil(x - epsilon*max(1, x))) }

// part returns a number as a part of an average, 0 where that is 0.
func part(v, average float64) float64 {
	if average == 0 {
		return 0
	}
	return v / average
}

// falling returns the numbers below n by falling keys, and by themselves where these are
// equal.
func falling(n int, key func(i int) float64) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key(b), key(a)) })
	return order
}

// needs is what a device needs for the service where several services run at a time.
func (s *Service) needs() float64 { return s.Memory + s.Working }

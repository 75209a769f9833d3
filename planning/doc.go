// Package planning decides by optimization which services are loaded on which devices. It runs
// offline or every few minutes, never for a query.
//
//   - [Greedy] places the services of one host on its devices by their memory alone.
//   - [Place] spreads the services of one host over its devices (Shepherd, section 4, with each
//     device a worker of its own).
//   - [Herd] forms serving groups of many equal devices (Shepherd, section 4).
//   - [Partition] divides services among sub-clusters (Symphony, section 4.4 and appendix A).
//   - [Pipe] and [PipeShared] plan pipelines over devices of several classes (PPipe, section 3),
//     and [Chains] those of PPipe's baseline.
//
// Each has its own heuristic and a bound that no plan can exceed. Where a solver of mixed integer
// linear programs is installed, CBC or HiGHS, a process runs it to close the gap between the two,
// within a time limit. The package checks the solver's answer. If the solver fails or its answer is
// invalid, the heuristic's plan stays.
//
// The result is a [Placement], which can be written to a file and read again.
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

// errNoPlan is wrapped by errors that report why there is no plan, or why none was found.
var errNoPlan = errors.New("no plan")

// Service describes a service for planning, and its part of a plan.
type Service struct {
	// Name identifies the service within the plan.
	Name string `json:"name"`

	// Model is the model that the service was planned with. "" fits any model.
	Model string `json:"model,omitempty"`

	// Memory is the memory of the model on each device that loads it. Working is the additional
	// memory of a running batch. Both are in MiB.
	Memory  float64 `json:"memory_mib"`
	Working float64 `json:"working_mib,omitempty"`

	// Rate is in requests a second. Load is the number of devices of speed 1 that this rate keeps
	// busy: the rate over the highest rate that one device answers in time (Shepherd's n, section
	// 4).
	Rate float64 `json:"rate"`
	Load float64 `json:"load"`

	// A batch of b takes Alpha·b + Beta milliseconds on a device of speed 1. Target, in
	// milliseconds, and MaxBatch limit b unless they are 0.
	Alpha    float64 `json:"alpha_ms,omitempty"`
	Beta     float64 `json:"beta_ms,omitempty"`
	Target   float64 `json:"target_ms,omitempty"`
	MaxBatch int     `json:"max_batch,omitempty"`

	// Devices are the names of the devices that the service runs on. For [Greedy] they are those
	// that it must run on.
	Devices []string `json:"devices,omitempty"`

	// Pipelines are the service's pipelines over Devices, in a plan of pipelines. Hash and
	// Operators identify the model whose operators they divide.
	Pipelines []Pipeline `json:"pipelines,omitempty"`
	Hash      string     `json:"hash,omitempty"`
	Operators int        `json:"operators,omitempty"`

	// Blocks is the input for planning pipelines.
	Blocks Blocks `json:"-"`
}

// Blocks holds the operators of a model grouped into a few blocks of about equal time, the unit in
// which pipelines are planned (PPipe, section 5.2).
type Blocks struct {
	// Ends holds the operator that each block ends before.
	Ends []int

	// Times holds the latencies of blocks in microseconds, by class of devices, share - 1, batch -
	// 1 and block. With a share of n the device is divided into n equal parts, all of them busy.
	Times map[string][][][]float64

	// Moves holds, for each block, the microseconds that moving the intermediates behind it takes
	// for one query over an idle link.
	Moves []float64

	// Margin is the fraction of the target that a plan leaves free. Fill is the rate in requests a
	// second at which a batch is assumed to fill. 0 stands for the rate that a plan without
	// pipelines sustains.
	Margin float64
	Fill   float64
}

// Device is a device, or a sub-cluster of equal devices.
type Device struct {
	// Name identifies the device within the plan. Memory is in MiB.
	Name   string  `json:"name"`
	Memory float64 `json:"memory_mib"`

	// Speed is the work of the device while a device of speed 1 does a work of 1.
	Speed float64 `json:"speed"`

	// Class is equal for devices on which all latencies are equal. Link, from 1, is equal for
	// devices that share the link that moves intermediates to and from other devices. Each device
	// of link 0 has a link of its own.
	Class string `json:"class,omitempty"`
	Link  int    `json:"link,omitempty"`

	// Load is the fraction of its time for which the plan's services keep the device busy. Group is
	// its serving group, from 1, or 0 in a plan without groups.
	Load  float64 `json:"load"`
	Group int     `json:"group,omitempty"`
}

// Search holds the options of a search for a plan.
type Search struct {
	// Solver is the path of a program that solves mixed integer linear programs, or "none". If it
	// is "", the environment variable OVERLAPD_SOLVER names the program, and without that the first
	// one found is used.
	Solver string

	// Limit bounds the time of the whole search.
	Limit time.Duration

	// Progress, unless nil, receives a description of each step of the search.
	Progress func(doing string)
}

// search is a Search in progress.
type search struct {
	Search
	ctx             context.Context
	solver          *solver
	began, deadline time.Time

	// by and note become the Solver and the Note of the plan.
	by, note string
}

// begin checks the input of a plan and starts the clock of its search.
func (s Search) begin(ctx context.Context, services []Service, devices []Device) (*search, error) {
	faults := faultsOf(services, devices)
	if !slices.ContainsFunc(services, func(s Service) bool { return s.Load > 0 }) {
		faults = append(faults, errors.New("no service has a load above 0; give at least one a rate above 0"))
	}
	// A service that no device can hold alone has no plan, whatever the search.
	largest := 0.0
	for _, d := range devices {
		largest = max(largest, d.Memory)
	}
	for _, s := range services {
		if !atMost(s.needs(), largest) {
			faults = append(faults, fmt.Errorf("service %s needs %.0f MiB, but no device has more than %.0f; add larger devices or remove the service", s.Name, s.needs(), largest))
		}
	}
	found, err := findSolver(s.Solver)
	if err != nil {
		faults = append(faults, err)
	}
	now := time.Now()
	return &search{Search: s, ctx: ctx, solver: found, began: now, deadline: now.Add(s.Limit), by: heuristic}, listFaults(errNoPlan, faults)
}

// over reports whether the time limit has passed or the caller has cancelled the search.
func (s *search) over() bool {
	return s != nil && (s.ctx.Err() != nil || time.Now().After(s.deadline))
}

// say reports a step of the search as progress.
func (s *search) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// ask runs the solver on a program for the remaining time. It returns nil and sets the note if the
// solver failed, or found neither a solution nor that there is none.
func (s *search) ask(p *program, start []float64) *answer {
	s.say("asking %s about %d variables", s.solver.name, len(p.variables))
	a, err := s.solver.solve(s.ctx, p, start, time.Until(s.deadline))
	if err == nil && a.x == nil && !a.infeasible {
		err = fmt.Errorf("%s found neither a better plan in its time nor a proof that there is none", s.solver.name)
	}
	if err != nil {
		s.note = err.Error()
		return nil
	}
	return a
}

// Limits of searches for a burst tolerance.
const (
	// halvings is the number of steps of a bisection.
	halvings = 80

	// climbs is the number of steps of climb.
	climbs = 10

	// attempts is the number of attempts of Place for one burst tolerance, more random from one to
	// the next.
	attempts = 200

	// mostOverload limits the search for the least overload, as a multiple of 1 plus the load.
	mostOverload = 1000

	// overloadStep is the factor between two levels of overload that are tried.
	overloadStep = 1.02

	// negligible is a difference that does not count, relative or as a fraction of an average.
	negligible = 1e-6
)

// climb searches for an element of a larger value than the best. It calls find first for the bound,
// then for values found by bisection, and last for any larger value, as long as there is one.
func climb[T any](s *search, best T, bound float64, value func(T) float64, find func(aim float64) (T, bool)) T {
	high := bound
	for step := 0; step <= climbs && value(best) < bound*(1-epsilon) && !s.over(); step++ {
		// The first step tries the bound, and the last asks for any improvement. An improvement in
		// the last step repeats it.
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

// greatest returns the greatest value up to high that may allows, or a slightly larger one, by
// bisection.
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

// leastOverload sets load, the limit of how busy devices may be, to 1 or to the least value above
// it for which find succeeds. It fails if find fails without a limit.
func leastOverload[T any](load *float64, sum, devices float64, find func() (T, bool)) (T, bool) {
	// Without a limit only memory matters. If even that fails, no overload helps.
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

// epsilon is the relative error allowed in sums of loads, memory and rates.
const epsilon = 1e-9

// atMost reports whether a ≤ b, apart from rounding.
func atMost(a, b float64) bool { return a <= b+epsilon*max(1, math.Abs(b)) }

// whole returns x rounded up to a whole number of devices, apart from rounding errors.
func whole(x float64) int { return int(math.Ceil(x - epsilon*max(1, x))) }

// part returns v as a fraction of an average, or 0 if the average is 0.
func part(v, average float64) float64 {
	if average == 0 {
		return 0
	}
	return v / average
}

// falling returns the numbers below n in the order of falling keys. Numbers with equal keys stay in
// ascending order.
func falling(n int, key func(i int) float64) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key(b), key(a)) })
	return order
}

// needs returns the memory that the service needs on a device that runs several services at a time.
func (s *Service) needs() float64 { return s.Memory + s.Working }

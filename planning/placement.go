package planning

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/internal/textfile"
)

// Placement is a plan: which services run on which devices.
type Placement struct {
	Format string `json:"format"`

	// Kind is the kind of the search, which determines the objective: the lowest burst tolerance
	// ("place", "herd"), the imbalance ("partition"), or the lowest ratio of what a service answers
	// to its rate ("pipeline"). No plan has a better objective than Bound.
	Kind      string  `json:"kind"`
	Objective float64 `json:"objective"`
	Bound     float64 `json:"bound"`

	// Solver is the program that found the plan or proved it optimal, "exact search" if this
	// package did, or "heuristic".
	Solver string `json:"solver"`

	// Seconds is the time of the search, and Made the time at which it ended.
	Seconds float64   `json:"seconds"`
	Made    time.Time `json:"made"`

	// Note is the reason why an installed solver did not help.
	Note string `json:"note,omitempty"`

	Devices  []Device  `json:"devices"`
	Services []Service `json:"services"`
}

// The errors of reading and comparing a plan, each wrapped with the cause.
var (
	errForeign = errors.New("not a placement plan")
	errDamaged = errors.New("damaged placement plan")
	errOther   = errors.New("the plan is for another configuration")
)

// The remedies that complete these errors.
const (
	planRemedy = "make a plan with overlapd plan placement"
	pipeRemedy = "make a plan with overlapd plan pipeline"
)

// placementKind is the format and the limits of a file with a plan.
var placementKind = textfile.Kind[Placement]{
	Format:   "overlapd-placement/1",
	MaxBytes: 256 << 20,
	Foreign:  errForeign,
	Damaged:  errDamaged,
	Faults:   (*Placement).faults,
	Remedy:   planRemedy,
}

// ReadPlacement reads a plan and checks that it is consistent. [Placement.Fits] compares it with
// the actual services and devices.
func ReadPlacement(path string) (*Placement, error) { return placementKind.ReadFile(path) }

// WriteFile checks the plan and writes it atomically.
func (p *Placement) WriteFile(path string) error { return placementKind.WriteFile(path, p) }

// Values of Solver and Kind. A plan has the solver heuristic if no solver contributed to it.
const (
	heuristic     = "heuristic"
	exactSearch   = "exact search"
	kindPartition = "partition"
	kindPipeline  = "pipeline"
)

// finish completes a plan and checks it as one that is read.
func (s *search) finish(p *Placement) (*Placement, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	p.Format, p.Solver, p.Note = placementKind.Format, s.by, s.note
	p.Made, p.Seconds = time.Now().UTC().Truncate(time.Second), time.Since(s.began).Seconds()
	if err := placementKind.Check(p); err != nil {
		return nil, fmt.Errorf("the search made an invalid plan, which is a defect; report it: %w", err)
	}
	return p, nil
}

// faults returns the contradictions in a plan.
func (p *Placement) faults() []error {
	faults := faultsOf(p.Services, p.Devices)
	if !(p.Objective >= 0 && p.Bound >= 0 && p.Seconds >= 0) {
		faults = append(faults, fmt.Errorf("objective %v, bound %v and seconds %v; give numbers from 0", p.Objective, p.Bound, p.Seconds))
	}
	// Sum the memory that each device needs. Stop once there are more faults than an error lists.
	at, need, working := map[string]int{}, make([]float64, len(p.Devices)), make([]float64, len(p.Devices))
	for d, device := range p.Devices {
		at[device.Name] = d
	}
	faults = append(faults, p.pipelineFaults()...)
	for _, s := range p.Services {
		if len(faults) > textfile.MaxFaults {
			return faults
		}
		if len(s.Devices) == 0 {
			faults = append(faults, fmt.Errorf("service %.40q has no devices; give it some", s.Name))
		}
		seen := map[int]bool{}
		for _, name := range s.Devices {
			d, known := at[name]
			if !known || seen[d] {
				if faults = append(faults, fmt.Errorf("service %.40q runs on device %.40q, which does not exist or is listed twice", s.Name, name)); len(faults) > textfile.MaxFaults {
					return faults
				}
				continue
			}
			seen[d] = true
			need[d] += s.Memory
			// A device of a sub-cluster runs one batch at a time, so the largest working memory
			// counts.
			if working[d] += s.Working; p.Kind == kindPartition {
				working[d] = max(working[d]-s.Working, s.Working)
			}
		}
	}
	for d, device := range p.Devices {
		if need := need[d] + working[d]; !atMost(need, device.Memory) && len(faults) <= textfile.MaxFaults {
			faults = append(faults, fmt.Errorf("device %.40q has %.0f MiB, but its services need %.0f", device.Name, device.Memory, need))
		}
	}
	return faults
}

// wrong reports whether a number is invalid in a plan: negative, too large or NaN.
func wrong(v float64) bool { return !(v >= 0 && v <= maxNumber) }

// faultsOf returns the faults of services and devices without regard to a plan.
func faultsOf(services []Service, devices []Device) (faults []error) {
	if len(services) == 0 || len(devices) == 0 {
		faults = append(faults, fmt.Errorf("%d services and %d devices; give at least one of each", len(services), len(devices)))
	}
	seen := map[string]bool{}
	for _, s := range services {
		if len(faults) > textfile.MaxFaults {
			return faults
		}
		if s.Name == "" || seen[s.Name] {
			faults = append(faults, fmt.Errorf("service %.40q has no name of its own; give it one", s.Name))
		}
		if seen[s.Name] = true; slices.ContainsFunc([]float64{s.Memory, s.Working, s.Rate, s.Load, s.Alpha, s.Beta}, wrong) {
			faults = append(faults, fmt.Errorf("service %.40q has an invalid memory, rate, load or time; give numbers from 0 to %.0e", s.Name, maxNumber))
		}
	}
	clear(seen)
	for _, d := range devices {
		if len(faults) > textfile.MaxFaults {
			return faults
		}
		if d.Name == "" || seen[d.Name] {
			faults = append(faults, fmt.Errorf("device %.40q has no name of its own; give it one", d.Name))
		}
		if seen[d.Name] = true; wrong(d.Memory) || wrong(d.Load) || wrong(d.Speed) || d.Speed == 0 {
			faults = append(faults, fmt.Errorf("device %.40q has an invalid memory, load or speed; give numbers from 0, and a speed above 0", d.Name))
		}
	}
	return faults
}

// maxFaults is the most faults that one error lists.
const maxFaults = 10

// listFaults returns an error of the given kind that lists the faults, or nil without faults.
func listFaults(kind error, faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], fmt.Errorf("and %d more", more))
	}
	return fmt.Errorf("%w: %w", kind, errors.Join(faults...))
}

// Fits returns an error unless the plan is for these services and devices. They must have the names
// and the models of the plan. No service may need more memory than planned, and no device may have
// less.
func (p *Placement) Fits(services []Service, devices []Device) error {
	// Compare by names that include the kind, so that a service and a device may have the same
	// name.
	names := func(services []Service, devices []Device) map[string]float64 {
		memory := map[string]float64{}
		for _, s := range services {
			// A service fits if its memory is at most the planned one, so it is compared negated.
			memory["service "+s.Name] = -s.needs()
		}
		for _, d := range devices {
			memory["device "+d.Name] = d.Memory
		}
		return memory
	}
	planned, given := names(p.Services, p.Devices), names(services, devices)
	var faults []error
	for _, s := range services {
		at := slices.IndexFunc(p.Services, func(o Service) bool { return o.Name == s.Name && o.Model != "" && s.Model != "" && o.Model != s.Model })
		if at >= 0 {
			faults = append(faults, fmt.Errorf("service %s has the model %s, but the plan is for %s", s.Name, s.Model, p.Services[at].Model))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(planned)) {
		if now, there := given[name]; !there {
			faults = append(faults, fmt.Errorf("the plan has %s, which does not exist", name))
		} else if !atMost(planned[name], now) {
			faults = append(faults, fmt.Errorf("%s has or needs %.0f MiB, but the plan assumes %.0f", name, math.Abs(now), math.Abs(planned[name])))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, there := planned[name]; !there {
			faults = append(faults, fmt.Errorf("the plan has no %s", name))
		}
	}
	if err := listFaults(errOther, faults); err != nil {
		remedy := planRemedy
		if p.Kind == kindPipeline {
			remedy = pipeRemedy
		}
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return nil
}

// Imbalance returns (max − min)/average of the rates and of the static memory over the devices
// (Symphony, appendix A.2). A service on several devices puts an equal part of its rate on each.
func (p *Placement) Imbalance() (rate, memory float64) {
	at := map[string]int{}
	for d, device := range p.Devices {
		at[device.Name] = d
	}
	rates, memories := make([]float64, len(p.Devices)), make([]float64, len(p.Devices))
	for _, s := range p.Services {
		for _, name := range s.Devices {
			rates[at[name]] += s.Rate / float64(len(s.Devices))
			memories[at[name]] += s.Memory
		}
	}
	factor := func(values []float64) float64 {
		return part(slices.Max(values)-slices.Min(values), stats.Mean(values))
	}
	return factor(rates), factor(memories)
}

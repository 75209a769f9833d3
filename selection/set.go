package selection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/textfile"
)

// How the loads of a set are found: neighbours differ in their expected accuracy by at most
// maxGap of the most accurate variant's (section 6), or, where all are nearly as accurate,
// of nearness times what they differ by. Policies are bounded, and so is by what part of the
// highest load two may differ.
const (
	maxGap      = 0.01
	nearness    = 5
	maxPolicies = 100
	leastStep   = 1e-3
)

// Set is the policies of a worker for several loads, and what they were made for.
type Set struct {
	Worker // Rate is the highest load

	Made time.Time `json:"made"`

	// Note says why the set ends at a lower load, or has larger gaps, than it should.
	Note string `json:"note,omitempty"`

	Policies []*Policy `json:"policies"` // at least one, by ascending Rate
}

// At returns the policy for the lowest load that is at least rate, or the one for the highest
// load of all. It neither fails nor allocates.
func (s *Set) At(rate float64) *Policy {
	last := len(s.Policies) - 1
	return s.Policies[sort.Search(last, func(i int) bool { return s.Policies[i].Rate >= rate })]
}

// SolveSet returns the policies of a worker for loads from low to high queries a second: for
// both, and for so many between them that the expected accuracies of neighbours differ by at
// most 1 % of the most accurate variant's, and 5 % of what variants differ by. If no variant
// bears the highest load, the set ends at what one bears, or at the most arrivals within a
// target, and its note says so. Progress, unless it is nil, is called with the number of
// policies after each and the largest gap left, as a part of what it is compared with.
func (w Worker) SolveSet(ctx context.Context, low, high float64, progress func(policies int, gap float64)) (*Set, error) {
	w.Rate = low
	if err := w.check(); err != nil {
		return nil, err
	}
	s := &Set{Worker: w, Made: time.Now().UTC().Truncate(time.Second)}
	peak, best := w.peak()
	switch {
	case peak == 0:
		return nil, fmt.Errorf("%w: no variant answers a query within %v ms; give a larger target or a faster variant", errWorker, w.Target)
	case low > peak:
		return nil, fmt.Errorf("%w: %v queries a second are more than any variant bears, %s bears %s; give lower loads or more workers", errWorker, low, best, stats.Digits(4, peak))
	case !(high >= low):
		return nil, fmt.Errorf("%w: loads from %v to %v; give the lower one first", errWorker, low, high)
	case high > peak:
		s.Note = fmt.Sprintf("the policies end at %s queries a second: %s bears so many, and no variant bears more; ", stats.Digits(4, peak), best)
		high = peak
	}
	if most := maxArrivals * 1000 / w.Target; high > most {
		s.Note = fmt.Sprintf("the policies end at %s queries a second, %d within a target; ", stats.Digits(4, most), maxArrivals)
		high = most
	}
	s.Rate = high
	for next := slices.Compact([]float64{low, high}); len(next) > 0; {
		w.Rate = next[0]
		p, err := w.Solve(ctx)
		if err != nil {
			return nil, fmt.Errorf("at %v queries a second: %w", w.Rate, err)
		}
		s.Policies = append(s.Policies, p)
		slices.SortFunc(s.Policies, func(a, b *Policy) int { return cmp.Compare(a.Rate, b.Rate) })
		gap, middle := s.gap()
		if progress != nil {
			progress(len(s.Policies), gap)
		}
		switch next = next[1:]; {
		case len(next) > 0 || gap <= maxGap:
		case len(s.Policies) < maxPolicies && middle > 0:
			next = []float64{middle}
		default:
			s.Note += fmt.Sprintf("policies for neighbouring loads differ by up to %.2g %% of the largest accuracy", 100*gap)
		}
	}
	s.Note = strings.TrimSuffix(s.Note, "; ")
	return s, nil
}

// peak returns the most queries a second that all workers can answer in time with one
// variant, and its name. A query may wait for the batch before its own, which takes as long,
// so a batch may take half of the target, or, if it has one query, all.
func (w *Worker) peak() (peak float64, name string) {
	for _, v := range Front(w.Variants) {
		for i, l := range v.Latency[:min(len(v.Latency), w.Queue)] {
			if rate := 1000 * float64((i+1)*w.Workers) / l; l <= w.Target && (2*l <= w.Target || i == 0) && rate > peak {
				peak, name = rate, v.Name
			}
		}
	}
	return peak, name
}

// gap returns the largest difference between the accuracies of neighbours, as a part of what
// maxGap is of, and the load in the middle between the two that differ most and are not
// too near to each other; 0 if all are.
func (s *Set) gap() (gap, middle float64) {
	least, most := math.Inf(1), 0.0
	for _, v := range Front(s.Variants) {
		least, most = min(least, v.Accuracy), max(most, v.Accuracy)
	}
	if near := nearness * (most - least); near > 0 {
		most = min(most, near)
	}
	open := 0.0
	for i, p := range s.Policies[1:] {
		before := s.Policies[i]
		d := math.Abs(p.Accuracy-before.Accuracy) / most
		if gap = max(gap, d); d > max(open, maxGap) && p.Rate-before.Rate > leastStep*s.Rate {
			open, middle = d, (p.Rate+before.Rate)/2
		}
	}
	return gap, middle
}

// Fits returns an error that lists what differs between a worker and the one that the set was
// made for: the device, the target, how many workers there are, and the variants, whatever
// their order. An empty device and an empty hash fit any. Latencies are not compared.
func (s *Set) Fits(w *Worker) error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	differ := func(what string, ours, theirs any) {
		if ours != theirs {
			bad("%s is %v, and they are for %v", what, ours, theirs)
		}
	}
	if w.Device != s.Device && w.Device != "" && s.Device != "" {
		ours, theirs := models.DevicesDiffer(w.Device, s.Device)
		differ("the device", ours, theirs)
	}
	differ("the target in ms", w.Target, s.Target)
	differ("the number of workers", w.Workers, s.Workers)
	differ("the number of variants", len(w.Variants), len(s.Variants))
	for _, theirs := range s.Variants {
		ours := w.variant(theirs.Name)
		if ours == nil {
			bad("there is no variant %s, which they have", theirs.Name)
			continue
		}
		differ("the accuracy of "+theirs.Name, ours.Accuracy, theirs.Accuracy)
		if ours.Hash != theirs.Hash && ours.Hash != "" && theirs.Hash != "" {
			has, had := models.ModelsDiffer(ours.Hash, theirs.Hash)
			bad("variant %s has %s, and they were made with %s", theirs.Name, has, had)
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %w; %s", errOther, errors.Join(faults...), setRemedy)
	}
	return nil
}

// drift is the factor by which a latency may change before policies are solved again.
const drift = 1.2

// Drifted reports whether a worker needs other policies: the set does not fit it, or a variant
// takes more or less time than it did. A batch that only one of the two has, or that is longer
// than the queue, is not compared.
func (s *Set) Drifted(w *Worker) bool {
	if s.Fits(w) != nil {
		return true
	}
	return slices.ContainsFunc(s.Variants, func(then Variant) bool {
		now := w.variant(then.Name).Latency
		for n, before := range then.Latency[:min(len(then.Latency), len(now), s.Queue)] {
			if ratio := now[n] / before; ratio > drift || ratio < 1/drift {
				return true
			}
		}
		return false
	})
}

// variant returns the variant of a name, nil if there is none.
func (w *Worker) variant(name string) *Variant {
	if i := slices.IndexFunc(w.Variants, func(v Variant) bool { return v.Name == name }); i >= 0 {
		return &w.Variants[i]
	}
	return nil
}

var (
	errForeign = errors.New("not a file of policies")
	errDamaged = errors.New("damaged file of policies")
	errOther   = errors.New("the policies are for something else")
)

const setRemedy = "make new ones with overlapd plan selection"

// maxChoices is how many choices a file may have in all, which take 4 bytes each in memory.
const maxChoices = 4 << 20

// setFile is a set as it is in a file. All policies have the same levels of slack. What one
// chooses is a list of three numbers for each run of equal choices: its length, the variant, by
// its place on the front, and the batch. Choices are in the order of the levels for a queue of
// one query, then of two and so on.
type setFile struct {
	Format string `json:"format"`
	*Set
	Slack   []float64 `json:"slack_ms"`
	Choices [][]int   `json:"choices"`
}

var setKind = textfile.Kind[setFile]{
	Format:   "overlapd-selection/1",
	MaxBytes: 64 << 20,
	Foreign:  errForeign,
	Damaged:  errDamaged,
	Faults:   (*setFile).faults,
	Remedy:   setRemedy,
}

// ReadSet reads the policies for a worker from a regular file. What it returns is whole, with a
// choice of a variant that is there for every queue and every slack, and fits the worker:
// whoever follows it need not check an index.
func ReadSet(path string, w *Worker) (*Set, error) {
	f, err := setKind.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := f.set()
	if err := s.Fits(w); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// WriteFile writes the set to a file, whole or not at all.
func (s *Set) WriteFile(path string) error {
	f := &setFile{Format: setKind.Format, Set: s, Slack: s.Policies[0].slack}
	for _, p := range s.Policies {
		var runs []int
		for i, a := range p.choice {
			if i == 0 || a != p.choice[i-1] {
				runs = append(runs, 0, int(a.variant), int(a.batch))
			}
			runs[len(runs)-3]++
		}
		f.Choices = append(f.Choices, runs)
	}
	return setKind.WriteFile(path, f)
}

// set returns the set of a file without faults.
func (f *setFile) set() *Set {
	front := Front(f.Variants)
	for i, p := range f.Policies {
		p.Variants, p.slack, p.choice = front, f.Slack, f.choices(i, front)
	}
	return f.Set
}

// choices returns what a policy chooses, nil if that is not possible.
func (f *setFile) choices(policy int, front []Variant) (list []action) {
	runs, all := f.Choices[policy], f.Queue*len(f.Slack)
	for ; len(runs) >= 3 && len(list) < all; runs = runs[3:] {
		length, variant, batch, queue := runs[0], runs[1], runs[2], len(list)/len(f.Slack)+1
		dropped := variant == Dropped && f.Drop
		if length < 1 || length > all-len(list) || batch < 1 || batch > queue ||
			!dropped && (variant < 0 || variant >= len(front) || batch > len(front[variant].Latency)) {
			return nil
		}
		list = append(list, slices.Repeat([]action{{int16(variant), int16(batch)}}, length)...)
	}
	if len(runs) > 0 || len(list) < all {
		return nil
	}
	return list
}

// faults returns what contradicts itself in a file. Where something is not there, what depends
// on it is not looked at.
func (f *setFile) faults() (faults []error) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if f.Set == nil || len(f.Policies) == 0 || len(f.Policies) > maxPolicies || len(f.Choices) != len(f.Policies) {
		bad("it must have 1 to %d policies, and choices for each", maxPolicies)
		return faults
	}
	f.Rate = f.Policies[len(f.Policies)-1].Rate
	if err := f.check(); err != nil {
		return append(faults, err)
	}
	rate := 0.0
	for _, p := range f.Policies {
		if p.Rate <= rate || p.Accuracy < 0 || p.Violations < 0 || p.Violations > 1 {
			bad("the policy for %v queries a second must be for more than the one before, with an accuracy from 0 and violations from 0 to 1", p.Rate)
		}
		rate = p.Rate
	}
	names := map[string]bool{}
	for _, v := range f.Variants {
		if v.Name == "" || names[v.Name] {
			bad("variant %.40q has no name of its own", v.Name)
		}
		names[v.Name] = true
	}
	if n := len(f.Slack) * f.Queue * len(f.Policies); n == 0 || n > maxChoices {
		bad("there are %d choices; there must be 1 to %d", n, maxChoices)
		return faults
	}
	for i, slack := range f.Slack {
		if len(faults) > textfile.MaxFaults {
			return faults
		}
		if i == 0 && slack != 0 || i > 0 && slack <= f.Slack[i-1] || slack > f.Target {
			bad("level %d of slack is %v ms; levels must rise from 0 to the target at most", i, slack)
		}
	}
	for i := range f.Choices {
		if len(faults) == 0 && f.choices(i, Front(f.Variants)) == nil {
			bad("policy %d: its choices must be one for each queue of 1 to %d and each level of slack, of variants that are there and batches that they can have", i+1, f.Queue)
		}
	}
	return faults
}

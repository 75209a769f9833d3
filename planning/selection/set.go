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

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
)

// How SolveSet chooses the loads of a set. Neighbouring policies differ in their expected accuracy
// by at most maxGap of the most accurate variant's (section 6). If the accuracies of all variants
// are close, maxGap is relative to nearness times their difference instead. The number of policies
// is limited, and the loads of two neighbours differ by at least leastStep of the highest load.
const (
	maxGap      = 0.01
	nearness    = 5
	maxPolicies = 100
	leastStep   = 1e-3
)

// Set is the policies of a worker for several loads.
type Set struct {
	// Worker is the worker that the policies were made for. Its Rate is the highest load.
	Worker

	// Made is the time at which the policies were computed.
	Made time.Time `json:"made"`

	// Note is the reason why the set ends at a lower load than requested, or has larger gaps than
	// maxGap.
	Note string `json:"note,omitempty"`

	// Policies has at least one element and is ordered by ascending Rate.
	Policies []*Policy `json:"policies"`
}

// At returns the policy for the lowest load that is at least rate, or else the one for the highest
// load. It does not allocate.
func (s *Set) At(rate float64) *Policy {
	last := len(s.Policies) - 1
	return s.Policies[sort.Search(last, func(i int) bool { return s.Policies[i].Rate >= rate })]
}

// SolveSet returns the policies of a worker for loads from low to high queries a second. It adds
// policies between the two until the expected accuracies of neighbours differ by at most 1 % of the
// most accurate variant's and 5 % of the difference between the variants. If no variant sustains
// the highest load, or if it exceeds the limit of arrivals within a target, the set ends at a lower
// load and its Note gives the reason. SolveSet calls progress, unless it is nil, after each policy,
// with the number of policies and the largest remaining gap.
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
		return nil, fmt.Errorf("%w: %v queries a second are too many: the most that a variant sustains (%s) is %s; give lower loads or more workers", errWorker, low, best, stats.Digits(4, peak))
	case !(high >= low):
		return nil, fmt.Errorf("%w: loads from %v to %v are in the wrong order; give the lower one first", errWorker, low, high)
	case high > peak:
		s.Note = fmt.Sprintf("the policies end at %s queries a second, the most that a variant sustains (%s); ", stats.Digits(4, peak), best)
		high = peak
	}
	if most := maxArrivals * 1000 / w.Target; high > most {
		s.Note = fmt.Sprintf("the policies end at %s queries a second, which is the limit of %d queries within the target; ", stats.Digits(4, most), maxArrivals)
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

// peak returns the highest rate in queries a second that all workers can answer in time with one
// variant, and the variant's name. A query may wait for the batch before its own, which takes as
// long. So a batch may take half of the target or, if it is a single query, all of it.
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

// gap returns the largest difference in accuracy between neighbours, as a fraction of the base of
// maxGap. It also returns the load halfway between the two neighbours that differ most, among those
// that differ by more than maxGap and whose loads are at least leastStep apart. middle is 0 if
// there are none.
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

// Fits returns an error that lists the differences between a worker and the one that the set was
// made for: the device, the target, the number of workers, and the variants in any order. An empty
// device or hash fits any. Latencies are not compared; see [Set.Drifted].
func (s *Set) Fits(w *Worker) error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	differ := func(what string, ours, theirs any) {
		if ours != theirs {
			bad("%s is %v, but the policies are for %v", what, ours, theirs)
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
			bad("variant %s of the policies does not exist", theirs.Name)
			continue
		}
		differ("the accuracy of "+theirs.Name, ours.Accuracy, theirs.Accuracy)
		if ours.Hash != theirs.Hash && ours.Hash != "" && theirs.Hash != "" {
			has, had := models.ModelsDiffer(ours.Hash, theirs.Hash)
			bad("variant %s has %s, but the policies were made with %s", theirs.Name, has, had)
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %w; %s", errOther, errors.Join(faults...), setRemedy)
	}
	return nil
}

// drift is the factor by which a latency may change before the policies are computed again.
const drift = 1.2

// Drifted reports whether a worker needs other policies: the set does not fit it, or the latency of
// a variant changed by more than drift. It compares the batches that both the set and the worker
// have, up to the longest queue.
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

// variant returns the variant with a name, or nil.
func (w *Worker) variant(name string) *Variant {
	if i := slices.IndexFunc(w.Variants, func(v Variant) bool { return v.Name == name }); i >= 0 {
		return &w.Variants[i]
	}
	return nil
}

// The errors of reading a set, each wrapped with the cause.
var (
	errForeign = errors.New("not a file of policies")
	errDamaged = errors.New("damaged file of policies")
	errOther   = errors.New("the policies are for something else")
)

// setRemedy completes the errors of files that cannot be used.
const setRemedy = "make new ones with overlapd plan selection"

// maxChoices is the largest number of choices that a file may have for all policies together. Each
// takes 4 bytes of memory.
const maxChoices = 4 << 20

// setFile is a set in its file format. All policies have the same levels of slack. The choices of a
// policy are run-length encoded: three numbers for each run of equal choices, its length, the
// variant's index on the front, and the batch. They are ordered by length of the queue, and then by
// level.
type setFile struct {
	Format string `json:"format"`
	*Set
	Slack   []float64 `json:"slack_ms"`
	Choices [][]int   `json:"choices"`
}

// setKind is the format and the limits of a file of policies.
var setKind = textfile.Kind[setFile]{
	Format:   "overlapd-selection/1",
	MaxBytes: 64 << 20,
	Foreign:  errForeign,
	Damaged:  errDamaged,
	Faults:   (*setFile).faults,
	Remedy:   setRemedy,
}

// ReadSet reads the policies for a worker from a regular file and checks that they fit the worker.
// Every queue and slack has a choice of an existing variant, so the caller need not check an index.
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

// WriteFile writes the set to a file atomically.
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

// choices decodes the choices of a policy. It returns nil if they are invalid.
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

// faults returns the contradictions in a file. It does not check what depends on a missing part.
func (f *setFile) faults() (faults []error) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if f.Set == nil || len(f.Policies) == 0 || len(f.Policies) > maxPolicies || len(f.Choices) != len(f.Policies) {
		bad("give 1 to %d policies, and choices for each", maxPolicies)
		return faults
	}
	f.Rate = f.Policies[len(f.Policies)-1].Rate
	if err := f.check(); err != nil {
		return append(faults, err)
	}
	rate := 0.0
	for _, p := range f.Policies {
		if p.Rate <= rate || p.Accuracy < 0 || p.Violations < 0 || p.Violations > 1 {
			bad("the policy for %v queries a second is out of order or out of range; order policies by load, with an accuracy of at least 0 and violations from 0 to 1", p.Rate)
		}
		rate = p.Rate
	}
	names := map[string]bool{}
	for _, v := range f.Variants {
		if v.Name == "" || names[v.Name] {
			bad("variant %.40q has no name or one that another variant has; give each a name of its own", v.Name)
		}
		names[v.Name] = true
	}
	if n := len(f.Slack) * f.Queue * len(f.Policies); n == 0 || n > maxChoices {
		bad("%d choices; give 1 to %d", n, maxChoices)
		return faults
	}
	for i, slack := range f.Slack {
		if len(faults) > textfile.MaxFaults {
			return faults
		}
		if i == 0 && slack != 0 || i > 0 && slack <= f.Slack[i-1] || slack > f.Target {
			bad("level %d of slack is %v ms; let levels rise from 0 to at most the target", i, slack)
		}
	}
	for i := range f.Choices {
		if len(faults) == 0 && f.choices(i, Front(f.Variants)) == nil {
			bad("policy %d has invalid choices; give one for each queue of 1 to %d queries and each level of slack, with an existing variant and a batch that it can run", i+1, f.Queue)
		}
	}
	return faults
}

package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

// report is what was found. What no step got to is absent.
type report struct {
	Format    string    `json:"format"`
	Rehearsal bool      `json:"rehearsal"` // on the CPU: nothing here is about a GPU
	Program   string    `json:"program"`   // the hash of overlapd
	Graphs    bool      `json:"graphs"`    // as -graphs says
	GPU       string    `json:"gpu"`       // as it was named
	Device    string    `json:"device"`
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"` // of all calls, with what comes before their first steps
	Seed      uint64    `json:"seed"`

	Steps    []stepResult   `json:"steps"`
	Verdicts []verdict      `json:"verdicts"`
	Facts    []facts        `json:"facts,omitempty"`
	Outputs  []outputRow    `json:"outputs,omitempty"`
	Bits     []bitsRow      `json:"bits,omitempty"`
	Sizes    []sizesRow     `json:"sizes,omitempty"`
	Wake     []wakeRow      `json:"wake,omitempty"`
	Cuts     []cutRow       `json:"cuts,omitempty"`
	Choices  []choice       `json:"choices,omitempty"`
	Looks    []look         `json:"looks,omitempty"`
	Pairs    []pairRow      `json:"pairs,omitempty"`
	Profile  []profileRow   `json:"profile,omitempty"`
	Load     []loadSetting  `json:"load,omitempty"`
	Turns    []turnRow      `json:"turns,omitempty"`
	Policies []policyResult `json:"policies,omitempty"`
	Mixed    []mixedRow     `json:"mixed,omitempty"`
	Soak     []soakRow      `json:"soak,omitempty"`
}

// stepResult is how a step went; why it failed is in the log of its test.
type stepResult struct {
	Name    string  `json:"name"`
	Failed  bool    `json:"failed"`
	Skipped bool    `json:"skipped"`
	NotRun  int     `json:"not_run"` // measurements, where time ran out
	Seconds float64 `json:"seconds"`
	Budget  float64 `json:"budget_seconds"`
}

// look is what was seen of one assumption, by its number in docs/gpu-assumptions.md.
type look struct {
	Step   string `json:"step"`
	ID     string `json:"id"`
	Answer string `json:"answer"` // holds, misses or see
	Saw    string `json:"saw"`
}

// What is wanted of a GPU.
const (
	wantCut    = 5.0 // percent that cutting costs at most
	wantGain   = 1.3 // of some pair
	wantSpread = 6.0 // percent, of a pair; the paper has 4.5 % (section 5.4)
	wantMAPE   = 6.0 // percent
	wantChange = 10. // percent of a run that a change of the batch size costs at most
	wantLeak   = 4.  // KiB that a run leaves behind at most
)

// The answers of a verdict.
const (
	pass        = "PASS"
	miss        = "MISS"
	notMeasured = "not measured"
)

// verdict is one thing that is wanted, and what was found.
type verdict struct {
	Name   string  `json:"name"`
	Answer string  `json:"answer"`
	Got    string  `json:"got"`
	Want   string  `json:"want"`
	Number float64 `json:"number,omitempty"` // that was found
	Limit  float64 `json:"limit,omitempty"`  // that it was compared with
}

func (v *verdict) found(number, limit float64, holds bool, format string, args ...any) {
	v.Number, v.Limit, v.Answer, v.Got = number, limit, miss, fmt.Sprintf(format, args...)
	if holds {
		v.Answer = pass
	}
}

// judge compares what was found up to now with what is wanted.
func (r *report) judge() []verdict {
	list := []struct {
		name, want string
		judge      func(*verdict)
	}{
		{"outputs", "all models within their tolerance of the CPU", func(v *verdict) {
			judgeAll(v, r.Outputs, r.notRun("outputs"), func(o outputRow) bool { return o.Within })
		}},
		{"bits", "all models cut give what they give whole on the same device, bit for bit", func(v *verdict) {
			judgeAll(v, r.Bits, r.notRun("bits"), func(b bitsRow) bool { return b.Equal })
		}},
		{"sizes", fmt.Sprintf("a change of the batch size costs at most %.0f %% of a run", wantChange), r.judgeSizes},
		{"cuts", fmt.Sprintf("cutting costs at most %.0f %%, at the chosen granularity", wantCut), r.judgeCuts},
		{"pairs", fmt.Sprintf("some pair at least %.1f times faster together", wantGain), r.judgePairs},
		{"spread", fmt.Sprintf("pairs spread by at most %.0f %% of their latency", wantSpread), r.judgeSpread},
		{"prediction", fmt.Sprintf("groups kept aside are predicted within %.0f %%", wantMAPE), r.judgeProfile},
		{"violations", "fewer under overlap than under anything else, at each load", r.judgeViolations},
		{"goodput", "more under overlap than under anything else, at each load", r.judgeGoodput},
		{"mixed", fmt.Sprintf("groups are predicted within %.0f %% where batch sizes change", wantMAPE), r.judgeMixed},
		{"soak", fmt.Sprintf("a run leaves at most %.0f KiB behind", wantLeak), r.judgeSoak},
	}
	verdicts := make([]verdict, len(list))
	for i, w := range list {
		verdicts[i] = verdict{Name: w.name, Want: w.want, Answer: notMeasured}
		w.judge(&verdicts[i])
	}
	return verdicts
}

// notRun returns how many measurements of a step its time did not suffice for.
func (r *report) notRun(name string) int {
	for _, s := range r.Steps {
		if s.Name == name {
			return s.NotRun
		}
	}
	return 0
}

// judgeAll wants something of all models. Where some have not run, it can only miss.
func judgeAll[T any](v *verdict, list []T, notRun int, holds func(T) bool) {
	held := 0
	for _, row := range list {
		if holds(row) {
			held++
		}
	}
	n := len(list)
	if n == 0 {
		return
	}
	v.found(float64(held), float64(n), held == n, "%d of %d models", held, n)
	if notRun > 0 {
		v.Got += fmt.Sprintf(", %d not run", notRun)
		if held == n {
			v.Answer = notMeasured
		}
	}
}

func (r *report) judgeCuts(v *verdict) {
	if n := len(r.Choices); n < 3 {
		v.Got = fmt.Sprintf("%d of 3 services", n)
		return
	}
	worst := slices.MaxFunc(r.Choices, func(a, b choice) int { return cmp.Compare(a.Worst, b.Worst) })
	v.found(100*(worst.Worst-1), wantCut, worst.Worst <= cutLimit, "%+.1f %% at worst, %s in %d segments", 100*(worst.Worst-1), worst.Model, worst.Segments)
}

func (r *report) judgePairs(v *verdict) {
	if len(r.Pairs) > 0 {
		best := slices.MaxFunc(r.Pairs, func(a, b pairRow) int { return cmp.Compare(a.Gain, b.Gain) })
		v.found(best.Gain, wantGain, best.Gain >= wantGain, "%.2f times, %s and %s, batch %d, MPS %t", best.Gain, best.A, best.B, best.Batch, best.MPS)
	}
}

func (r *report) judgeSpread(v *verdict) {
	steady := slices.DeleteFunc(slices.Clone(r.Pairs), func(p pairRow) bool { return p.Rounds < steadyRounds })
	if len(steady) > 0 {
		worst := slices.MaxFunc(steady, func(a, b pairRow) int { return cmp.Compare(a.Spread, b.Spread) })
		v.found(100*worst.Spread, wantSpread, 100*worst.Spread <= wantSpread, "%.1f %% at worst, %s and %s, batch %d, %d runs", 100*worst.Spread, worst.A, worst.B, worst.Batch, worst.Rounds)
	}
}

func (r *report) judgeProfile(v *verdict) {
	for _, p := range r.Profile {
		if p.Rows > 0 {
			v.found(p.MAPE, wantMAPE, p.MAPE <= wantMAPE, "%.1f %%, from %d groups", p.MAPE, p.Rows)
		}
	}
}

// rivals returns what overlap made of a load, and the best of the others: the
// least violations and the most goodput. It is false if overlap or all others had no
// turn.
func (r *report) rivals(offered float64) (overlap policyResult, violations, goodput float64, ok bool) {
	rivals := 0
	violations = 1
	for _, p := range r.Policies {
		switch {
		case p.Turns == 0 || p.Offered != offered:
		case p.Policy == overlapping:
			overlap = p
		default:
			rivals++
			violations, goodput = min(violations, p.Violations), max(goodput, p.Goodput)
		}
	}
	return overlap, violations, goodput, overlap.Turns > 0 && rivals > 1
}

// judgeViolations judges the first load at which overlap misses, or else the last one.
func (r *report) judgeViolations(v *verdict) {
	for _, l := range r.Load {
		if overlap, best, _, ok := r.rivals(l.Offered); ok && v.Answer != miss {
			v.found(100*overlap.Violations, 100*best, overlap.Violations < best, "%.1f %% against %.1f %% at load %.2f", 100*overlap.Violations, 100*best, l.Offered)
		}
	}
}

// judgeGoodput judges the first load at which overlap misses, or else the last one.
func (r *report) judgeGoodput(v *verdict) {
	for _, l := range r.Load {
		if overlap, _, best, ok := r.rivals(l.Offered); ok && v.Answer != miss {
			v.found(overlap.Goodput, best, overlap.Goodput > best, "%.0f/s against %.0f/s at load %.2f", overlap.Goodput, best, l.Offered)
		}
	}
}

func (r *report) judgeSizes(v *verdict) {
	usual := slices.DeleteFunc(slices.Clone(r.Sizes), func(row sizesRow) bool { return row.Way != "" })
	if len(usual) > 0 {
		worst := slices.MaxFunc(usual, func(a, b sizesRow) int { return cmp.Compare(a.changePercent(), b.changePercent()) })
		v.found(worst.changePercent(), wantChange, worst.changePercent() <= wantChange, "%+.1f %% at worst, %s, batch %d after %d", worst.changePercent(), worst.Model, worst.Batch, worst.Other)
	}
}

func (r *report) judgeMixed(v *verdict) {
	if len(r.Mixed) > 0 {
		worst := slices.MaxFunc(r.Mixed, func(a, b mixedRow) int { return cmp.Compare(a.MAPE, b.MAPE) })
		v.found(worst.MAPE, wantMAPE, worst.MAPE <= wantMAPE, "%.1f %% at worst, %d groups of %d spans", worst.MAPE, worst.Rounds, worst.Spans)
	}
}

func (r *report) judgeSoak(v *verdict) {
	if len(r.Soak) > 0 {
		worst := slices.MaxFunc(r.Soak, func(a, b soakRow) int { return cmp.Compare(a.leak(), b.leak()) })
		v.found(worst.leak(), wantLeak, worst.leak() <= wantLeak, "%.2f KiB at worst, %s, %d runs", worst.leak(), worst.Service, worst.Runs)
	}
}

// TestJudge sees each verdict pass, miss and be left open at its limit.
func TestJudge(t *testing.T) {
	three := func(worst float64) []choice { return []choice{{Worst: 1}, {Worst: worst}, {Worst: 1}} }
	late := func(step string) []stepResult { return []stepResult{{Name: step, Failed: true, NotRun: 3}} }
	load := []loadSetting{{}}
	policies := func(overlap policyResult) []policyResult {
		overlap.Policy, overlap.Turns = overlapping, 1
		return []policyResult{overlap, {Policy: timeSlicing, Turns: 1, Violations: .3, Goodput: 50}, {Policy: "edf", Turns: 1, Violations: .2, Goodput: 60}}
	}
	for _, c := range []struct {
		name             string
		passes, misses   report
		neither          report
		passing, missing float64
	}{
		{"outputs", report{Outputs: []outputRow{{Within: true}}}, report{Outputs: []outputRow{{Within: true}, {}}, Steps: late("outputs")}, report{}, 1, 1},
		{"cuts", report{Choices: three(1.05)}, report{Choices: three(1.125)}, report{Choices: three(1)[:2]}, 5, 12.5},
		{"pairs", report{Pairs: []pairRow{{Gain: 1.1}, {Gain: 1.3}}}, report{Pairs: []pairRow{{Gain: 1.25}}}, report{}, 1.3, 1.25},
		{"spread", report{Pairs: []pairRow{{Rounds: steadyRounds, Spread: .06}}}, report{Pairs: []pairRow{{Rounds: steadyRounds, Spread: .0625}}}, report{Pairs: []pairRow{{Rounds: 2, Spread: 1}}}, 6, 6.25},
		{"prediction", report{Profile: []profileRow{{Rows: 9, MAPE: 6}}}, report{Profile: []profileRow{{Rows: 9, MAPE: 6.5}}}, report{Profile: []profileRow{{Measured: 9}}}, 6, 6.5},
		{"violations", report{Load: load, Policies: policies(policyResult{Violations: .1875})}, report{Load: load, Policies: policies(policyResult{Violations: .25})}, report{Load: load, Policies: policies(policyResult{})[:2]}, 18.75, 25},
		{"goodput", report{Load: load, Policies: policies(policyResult{Goodput: 61})}, report{Load: load, Policies: policies(policyResult{Goodput: 60})}, report{}, 61, 60},
		{"bits", report{Bits: []bitsRow{{Equal: true}}}, report{Bits: []bitsRow{{Equal: true}, {}}}, report{Bits: []bitsRow{{Equal: true}}, Steps: late("bits")}, 1, 1},
		{"sizes", report{Sizes: []sizesRow{{AloneMS: 2, AfterMS: 2}, {AloneMS: 2, AfterMS: 2.125}, {Way: "off the ladder", AloneMS: 2, AfterMS: 9}}}, report{Sizes: []sizesRow{{AloneMS: 2, AfterMS: 2}, {AloneMS: 2, AfterMS: 3}}}, report{}, 6.25, 50},
		{"mixed", report{Mixed: []mixedRow{{MAPE: 5}, {MAPE: 6}}}, report{Mixed: []mixedRow{{MAPE: 7}, {MAPE: 5}}}, report{}, 6, 7},
		{"soak", report{Soak: []soakRow{{Runs: 100, GrownMiB: .25}}}, report{Soak: []soakRow{{Runs: 1, GrownMiB: -1}, {Runs: 1024, GrownMiB: 100}}}, report{}, 2.56, 100},
	} {
		for want, r := range map[string]*report{pass: &c.passes, miss: &c.misses, notMeasured: &c.neither} {
			number := map[string]float64{pass: c.passing, miss: c.missing}[want]
			list := r.judge()
			at := slices.IndexFunc(list, func(v verdict) bool { return v.Name == c.name })
			v := list[at]
			if off := max(v.Number-number, number-v.Number); v.Answer != want || off > 1e-9 && want != notMeasured {
				t.Errorf("%s: got %+v, want %s with %v", c.name, v, want, number)
			}
		}
	}
}

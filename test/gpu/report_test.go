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
	Format           string    `json:"format"`
	Rehearsal        bool      `json:"rehearsal"` // on the CPU: nothing here is about a GPU
	Device           string    `json:"device"`
	Started          time.Time `json:"started"`
	Seconds          float64   `json:"seconds"` // of the steps
	PreparingSeconds float64   `json:"preparing_seconds"`
	Seed             uint64    `json:"seed"`

	Steps    []stepResult   `json:"steps"`
	Verdicts []verdict      `json:"verdicts"`
	Facts    []facts        `json:"facts,omitempty"`
	Outputs  []outputRow    `json:"outputs,omitempty"`
	Cuts     []cutRow       `json:"cuts,omitempty"`
	Choices  []choice       `json:"choices,omitempty"`
	Sessions []sessionRow   `json:"sessions,omitempty"`
	Variants []variantRow   `json:"variants,omitempty"`
	Looks    []look         `json:"looks,omitempty"`
	Pairs    []pairRow      `json:"pairs,omitempty"`
	Repeat   []repeatRow    `json:"repeat,omitempty"`
	Profile  []profileRow   `json:"profile,omitempty"`
	Load     []loadSetting  `json:"load,omitempty"`
	Turns    []turnRow      `json:"turns,omitempty"`
	Policies []policyResult `json:"policies,omitempty"`
}

// stepResult is how a step went; why it failed is in the log of its test.
type stepResult struct {
	Name    string  `json:"name"`
	Failed  bool    `json:"failed"`
	Skipped bool    `json:"skipped"`
	Seconds float64 `json:"seconds"`
	Budget  float64 `json:"budget_seconds"`
}

// look is what was seen of one assumption, by its number in docs/gpu-assumptions.md.
type look struct {
	ID     string `json:"id"`
	Answer string `json:"answer"` // holds, misses or see
	Saw    string `json:"saw"`
}

// What is wanted of a GPU.
const (
	wantCut    = 5.0  // percent that cutting costs at most
	wantGain   = 1.3  // of some pair
	wantSpread = 6.0  // percent, of a fixed group; the paper has 4.5 % (section 5.4)
	wantMAPE   = 6.0  // percent
	wantTime   = 180. // seconds of measuring
	wantWhole  = 480. // seconds of everything, with what comes before the first step
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
		{"outputs", "all models within their tolerance of the CPU", r.judgeOutputs},
		{"cuts", fmt.Sprintf("cutting costs at most %.0f %%, at the chosen granularity", wantCut), r.judgeCuts},
		{"pairs", fmt.Sprintf("some pair at least %.1f times faster together", wantGain), r.judgePairs},
		{"repeat", fmt.Sprintf("a fixed group spreads by at most %.0f %% of its latency", wantSpread), r.judgeRepeat},
		{"prediction", fmt.Sprintf("groups kept aside are predicted within %.0f %%", wantMAPE), r.judgeProfile},
		{"measuring", fmt.Sprintf("at most %.0f s of measuring for the predictor", wantTime), r.judgeMeasuring},
		{"violations", "fewer under overlap than under fcfs and edf, at the same load", r.judgeViolations},
		{"goodput", "more under overlap than under fcfs and edf, at the same load", r.judgeGoodput},
		{"time", fmt.Sprintf("less than %.0f s for the whole check", wantWhole), func(v *verdict) {
			if whole := r.PreparingSeconds + r.Seconds; len(r.Steps) > 0 {
				v.found(whole, wantWhole, whole < wantWhole, "%.0f s, %.0f of them before the first step", whole, r.PreparingSeconds)
			}
		}},
	}
	verdicts := make([]verdict, len(list))
	for i, w := range list {
		verdicts[i] = verdict{Name: w.name, Want: w.want, Answer: notMeasured}
		w.judge(&verdicts[i])
	}
	return verdicts
}

func (r *report) judgeOutputs(v *verdict) {
	within := 0
	for _, o := range r.Outputs {
		if o.Within {
			within++
		}
	}
	if n := len(r.Outputs); n > 0 {
		v.found(float64(within), float64(n), within == n, "%d of %d models", within, n)
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

func (r *report) judgeRepeat(v *verdict) {
	for _, p := range r.Repeat {
		if p.Runs < repeats {
			v.Got = fmt.Sprintf("%d of %d runs, spread %.1f %% up to then", p.Runs, repeats, 100*p.Spread)
			return
		}
		v.found(100*p.Spread, wantSpread, 100*p.Spread <= wantSpread, "%.1f %% in %d runs", 100*p.Spread, p.Runs)
	}
}

func (r *report) judgeProfile(v *verdict) {
	for _, p := range r.Profile {
		if p.Rows > 0 {
			v.found(p.MAPE, wantMAPE, p.MAPE <= wantMAPE, "%.1f %%, from %d groups", p.MAPE, p.Rows)
		}
	}
}

func (r *report) judgeMeasuring(v *verdict) {
	for _, p := range r.Profile {
		v.found(p.MeasureSeconds, wantTime, p.MeasureSeconds <= wantTime, "%.0f s for %d measurements", p.MeasureSeconds, p.Measured)
	}
}

// rivals returns what the policies of the acceptance made of the load, false if one
// of them had no turn.
func (r *report) rivals() (overlap, fcfs, edf policyResult, ok bool) {
	by := map[string]policyResult{}
	for _, p := range r.Policies {
		by[p.Policy] = p
	}
	overlap, fcfs, edf = by["overlap"], by["fcfs"], by["edf"]
	return overlap, fcfs, edf, overlap.Turns > 0 && fcfs.Turns > 0 && edf.Turns > 0
}

func (r *report) judgeViolations(v *verdict) {
	if overlap, fcfs, edf, ok := r.rivals(); ok {
		limit := 100 * min(fcfs.Violations, edf.Violations)
		v.found(100*overlap.Violations, limit, 100*overlap.Violations < limit, "%.1f %% against %.1f and %.1f %%",
			100*overlap.Violations, 100*fcfs.Violations, 100*edf.Violations)
	}
}

func (r *report) judgeGoodput(v *verdict) {
	if overlap, fcfs, edf, ok := r.rivals(); ok {
		limit := max(fcfs.Goodput, edf.Goodput)
		v.found(overlap.Goodput, limit, overlap.Goodput > limit, "%.0f/s against %.0f and %.0f/s", overlap.Goodput, fcfs.Goodput, edf.Goodput)
	}
}

// TestJudge sees each verdict pass, miss and be left open at its limit.
func TestJudge(t *testing.T) {
	three := func(worst float64) []choice { return []choice{{Worst: 1}, {Worst: worst}, {Worst: 1}} }
	policies := func(overlap policyResult) []policyResult {
		overlap.Policy, overlap.Turns = "overlap", 1
		return []policyResult{overlap, {Policy: "fcfs", Turns: 1, Violations: .3, Goodput: 50}, {Policy: "edf", Turns: 1, Violations: .2, Goodput: 60}}
	}
	for _, c := range []struct {
		name             string
		passes, misses   report
		neither          report
		passing, missing float64
	}{
		{"outputs", report{Outputs: []outputRow{{Within: true}}}, report{Outputs: []outputRow{{Within: true}, {}}}, report{}, 1, 1},
		{"cuts", report{Choices: three(1.05)}, report{Choices: three(1.125)}, report{Choices: three(1)[:2]}, 5, 12.5},
		{"pairs", report{Pairs: []pairRow{{Gain: 1.1}, {Gain: 1.3}}}, report{Pairs: []pairRow{{Gain: 1.25}}}, report{}, 1.3, 1.25},
		{"repeat", report{Repeat: []repeatRow{{Runs: repeats, Spread: .06}}}, report{Repeat: []repeatRow{{Runs: repeats, Spread: .0625}}}, report{Repeat: []repeatRow{{Runs: 2}}}, 6, 6.25},
		{"prediction", report{Profile: []profileRow{{Rows: 9, MAPE: 6}}}, report{Profile: []profileRow{{Rows: 9, MAPE: 6.5}}}, report{Profile: []profileRow{{Measured: 9}}}, 6, 6.5},
		{"measuring", report{Profile: []profileRow{{MeasureSeconds: 180}}}, report{Profile: []profileRow{{MeasureSeconds: 181}}}, report{}, 180, 181},
		{"violations", report{Policies: policies(policyResult{Violations: .1875})}, report{Policies: policies(policyResult{Violations: .25})}, report{Policies: policies(policyResult{})[:2]}, 18.75, 25},
		{"goodput", report{Policies: policies(policyResult{Goodput: 61})}, report{Policies: policies(policyResult{Goodput: 60})}, report{}, 61, 60},
		{"time", report{Steps: make([]stepResult, 1), PreparingSeconds: 9, Seconds: 470}, report{Steps: make([]stepResult, 1), PreparingSeconds: 10, Seconds: 470}, report{}, 479, 480},
	} {
		for want, r := range map[string]*report{pass: &c.passes, miss: &c.misses, notMeasured: &c.neither} {
			number := map[string]float64{pass: c.passing, miss: c.missing}[want]
			list := r.judge()
			at := slices.IndexFunc(list, func(v verdict) bool { return v.Name == c.name })
			if v := list[at]; v.Answer != want || max(v.Number-number, number-v.Number) > 1e-9 {
				t.Errorf("%s: got %+v, want %s with %v", c.name, v, want, number)
			}
		}
	}
}

package gpucheck

import (
	"fmt"
	"slices"
	"time"
)

// What is wanted of a GPU.
const (
	wantCut    = 5.0  // percent that cutting costs at most
	wantGain   = 1.3  // of some pair
	wantSpread = 0.06 // of a fixed group; the paper has 4.5 % (section 5.4)
	wantMAPE   = 6.0  // percent
	wantTime   = 180  // seconds of measuring

	// WantWhole is what everything together may take, with what comes before the
	// first step and after the last one.
	WantWhole = 8 * time.Minute
)

// The answers of a verdict.
const (
	Pass        = "PASS"
	Miss        = "MISS"
	NotMeasured = "not measured"
)

// Verdict is one thing that is wanted, and what was found.
type Verdict struct {
	What   string   `json:"what"`
	Want   string   `json:"want"`
	Got    string   `json:"got"` // in words; says why if nothing was measured
	Answer string   `json:"answer"`
	Number *float64 `json:"number,omitempty"` // that was found, nil if nothing was measured
	Limit  *float64 `json:"limit,omitempty"`  // that it is compared with, nil if that was to be measured
	Unit   string   `json:"unit"`
}

// judge compares what was found up to now with what is wanted.
func (r *Report) judge() {
	r.Verdicts = []Verdict{
		r.judgeOutputs(), r.judgeCuts(), r.judgePairs(), r.judgeRepeat(), r.judgeProfile(), r.judgeMeasuring(),
		r.judgeViolations(), r.judgeGoodput(), r.judgeTime(),
	}
}

// wanted begins a verdict whose limit is known beforehand.
func wanted(what, unit string, limit float64, want string) Verdict {
	return Verdict{What: what, Want: want, Answer: NotMeasured, Limit: &limit, Unit: unit}
}

// found completes a verdict of something that was measured.
func (v Verdict) found(number float64, holds bool, format string, args ...any) Verdict {
	v.Got, v.Answer, v.Number = fmt.Sprintf(format, args...), Miss, &number
	if holds {
		v.Answer = Pass
	}
	return v
}

// missing says why there is nothing to judge.
func (v Verdict) missing(format string, args ...any) Verdict {
	v.Got = fmt.Sprintf(format, args...)
	return v
}

func (r *Report) judgeOutputs() Verdict {
	v := wanted("outputs against the CPU", "models within their tolerance", float64(len(r.Outputs)), "all within their tolerance")
	if len(r.Outputs) == 0 {
		v.Limit = nil
		return v
	}
	within := 0
	for _, o := range r.Outputs {
		if o.Within {
			within++
		}
	}
	return v.found(float64(within), within == len(r.Outputs), "%d of %d models", within, len(r.Outputs))
}

func (r *Report) judgeCuts() Verdict {
	v := wanted("what cutting costs, at the chosen granularity", "%", wantCut, fmt.Sprintf("at most %.0f %%", wantCut))
	switch n := len(r.Choices); {
	case n == 0:
		return v
	case n < services:
		return v.missing("%d of %d services", n, services)
	}
	worst := slices.MaxFunc(r.Choices, func(a, b Choice) int { return compare(a.Worst, b.Worst) })
	cost := 100 * (worst.Worst - 1)
	return v.found(cost, worst.Worst <= cutLimit, "%+.1f %% at worst, %s in %d segments", cost, worst.Model, worst.Segments)
}

func (r *Report) judgePairs() Verdict {
	v := wanted("two services together against one after the other", "times faster", wantGain, fmt.Sprintf("some pair at least %.1f times faster", wantGain))
	if len(r.Pairs) == 0 {
		return v
	}
	best := slices.MaxFunc(r.Pairs, func(a, b PairRow) int { return compare(a.Gain, b.Gain) })
	return v.found(best.Gain, best.Gain >= wantGain, "%.2f times, %s and %s, batch %d, MPS %s", best.Gain, best.A, best.B, best.Batch, yes(best.MPS))
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (r *Report) judgeRepeat() Verdict {
	v := wanted("spread of a fixed group", "%", 100*wantSpread, fmt.Sprintf("at most %.0f %% of its latency", 100*wantSpread))
	if r.Repeat == nil {
		return v
	}
	if r.Repeat.Runs < repeats {
		return v.missing("%d of %d runs, spread %.1f %% up to then", r.Repeat.Runs, repeats, 100*r.Repeat.Spread)
	}
	return v.found(100*r.Repeat.Spread, r.Repeat.Spread <= wantSpread, "%.1f %% in %d runs", 100*r.Repeat.Spread, r.Repeat.Runs)
}

func (r *Report) judgeProfile() Verdict {
	v := wanted("predictor's error on groups kept aside", "%", wantMAPE, fmt.Sprintf("at most %.0f %%", wantMAPE))
	switch p := r.Profile; {
	case p == nil:
		return v
	case p.Rows == 0:
		return v.missing("%d measurements, and no predictor", p.Measured)
	default:
		return v.found(p.MAPE, p.MAPE <= wantMAPE, "%.1f %%, from %d groups", p.MAPE, p.Rows)
	}
}

func (r *Report) judgeMeasuring() Verdict {
	v := wanted("time of measuring for the predictor", "s", wantTime, fmt.Sprintf("at most %d s", wantTime))
	if r.Profile == nil {
		return v
	}
	p := r.Profile
	return v.found(p.MeasureSeconds, p.MeasureSeconds <= wantTime, "%.0f s for %d measurements", p.MeasureSeconds, p.Measured)
}

// rivals returns what the policies of the acceptance made of the load, nil if one
// of them had no turn.
func (r *Report) rivals() (overlap, fcfs, edf *PolicyResult) {
	overlap, fcfs, edf = r.policy("overlap"), r.policy("fcfs"), r.policy("edf")
	if overlap == nil || fcfs == nil || edf == nil {
		return nil, nil, nil
	}
	return overlap, fcfs, edf
}

func (r *Report) judgeViolations() Verdict {
	v := Verdict{What: "violations under overlap, at the same load", Want: "fewer than under fcfs and edf", Answer: NotMeasured, Unit: "% of requests"}
	overlap, fcfs, edf := r.rivals()
	if overlap == nil {
		return v
	}
	limit := 100 * min(fcfs.Violations, edf.Violations)
	v.Limit = &limit
	return v.found(100*overlap.Violations, 100*overlap.Violations < limit, "%.1f %% against %.1f and %.1f %%",
		100*overlap.Violations, 100*fcfs.Violations, 100*edf.Violations)
}

func (r *Report) judgeGoodput() Verdict {
	v := Verdict{What: "goodput under overlap, at the same load", Want: "more than under fcfs and edf", Answer: NotMeasured, Unit: "requests a second"}
	overlap, fcfs, edf := r.rivals()
	if overlap == nil {
		return v
	}
	limit := max(fcfs.Goodput, edf.Goodput)
	v.Limit = &limit
	return v.found(overlap.Goodput, overlap.Goodput > limit, "%.0f/s against %.0f and %.0f/s", overlap.Goodput, fcfs.Goodput, edf.Goodput)
}

func (r *Report) judgeTime() Verdict {
	limit := WantWhole.Seconds()
	v := wanted("time of the whole check", "s", limit, fmt.Sprintf("less than %.0f s", limit))
	if len(r.Steps) == 0 {
		return v
	}
	whole := r.PreparingSeconds + r.Seconds
	return v.found(whole, whole < limit, "%.0f s, %.0f of them before the first step", whole, r.PreparingSeconds)
}

func (r *Report) policy(name string) *PolicyResult {
	for i := range r.Policies {
		if r.Policies[i].Policy == name {
			return &r.Policies[i]
		}
	}
	return nil
}

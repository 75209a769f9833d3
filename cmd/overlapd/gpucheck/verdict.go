package gpucheck

import (
	"fmt"
	"slices"
)

// What is wanted of a GPU.
const (
	wantGain   = 1.3  // of some pair
	wantSpread = 0.06 // of a fixed group; the paper has 4.5 % (section 5.4)
	wantMAPE   = 6.0  // percent
	wantTime   = 180  // seconds of measuring
)

// The answers of a verdict.
const (
	Holds       = "holds"
	Misses      = "misses"
	NotMeasured = "not measured"
)

// Verdict is one thing that is wanted, and what was found.
type Verdict struct {
	What   string `json:"what"`
	Want   string `json:"want"`
	Got    string `json:"got"`
	Answer string `json:"answer"`
}

// judge compares what was found up to now with what is wanted.
func (r *Report) judge() {
	r.Verdicts = []Verdict{r.judgeOutputs(), r.judgeCuts(), r.judgePairs(), r.judgeRepeat(), r.judgeProfile(), r.judgePolicies()}
}

// found completes a verdict of something that was measured.
func (v Verdict) found(holds bool, format string, args ...any) Verdict {
	v.Got, v.Answer = fmt.Sprintf(format, args...), Misses
	if holds {
		v.Answer = Holds
	}
	return v
}

func (r *Report) judgeOutputs() Verdict {
	v := Verdict{"outputs against the CPU", "all within their tolerance", "", NotMeasured}
	if len(r.Outputs) == 0 {
		return v
	}
	within := 0
	for _, o := range r.Outputs {
		if o.Within {
			within++
		}
	}
	return v.found(within == len(r.Outputs), "%d of %d models", within, len(r.Outputs))
}

func (r *Report) judgeCuts() Verdict {
	v := Verdict{"what cutting costs, at the chosen granularity", "at most 5 %", "", NotMeasured}
	worst := 0.0
	for _, c := range r.Choices {
		worst = max(worst, c.Worst)
	}
	if worst == 0 {
		return v
	}
	return v.found(worst <= cutLimit, "%+.1f %% at worst", 100*(worst-1))
}

func (r *Report) judgePairs() Verdict {
	v := Verdict{"two services together against one after the other", fmt.Sprintf("some pair at least %.1f times faster", wantGain), "", NotMeasured}
	if len(r.Pairs) == 0 {
		return v
	}
	best := slices.MaxFunc(r.Pairs, func(a, b PairRow) int { return compare(a.Gain, b.Gain) })
	return v.found(best.Gain >= wantGain, "%.2f times, %s and %s, batch %d", best.Gain, best.A, best.B, best.Batch)
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
	v := Verdict{"spread of a fixed group", fmt.Sprintf("at most %.0f %% of its latency", 100*wantSpread), "", NotMeasured}
	if r.Repeat == nil {
		return v
	}
	return v.found(r.Repeat.Spread <= wantSpread, "%.1f %% in %d runs", 100*r.Repeat.Spread, r.Repeat.Runs)
}

func (r *Report) judgeProfile() Verdict {
	v := Verdict{"predictor's error on groups kept aside", fmt.Sprintf("at most %.0f %%, from at most %d s of measuring", wantMAPE, wantTime), "", NotMeasured}
	if r.Profile == nil {
		return v
	}
	p := r.Profile
	if p.Rows == 0 {
		v.Got = fmt.Sprintf("%d measurements, and no predictor", p.Measured)
		return v
	}
	return v.found(p.MAPE <= wantMAPE && p.MeasureSeconds <= wantTime, "%.1f %%, from %.0f s and %d groups", p.MAPE, p.MeasureSeconds, p.Rows)
}

func (r *Report) judgePolicies() Verdict {
	v := Verdict{"overlap against fcfs and edf", "fewer violations and more goodput than both", "", NotMeasured}
	overlap, fcfs, edf := r.policy("overlap"), r.policy("fcfs"), r.policy("edf")
	if overlap == nil || fcfs == nil || edf == nil {
		return v
	}
	fewer := overlap.Violations < min(fcfs.Violations, edf.Violations)
	more := overlap.Goodput > max(fcfs.Goodput, edf.Goodput)
	return v.found(fewer && more, "violations %.1f %% against %.1f and %.1f, goodput %.0f/s against %.0f and %.0f",
		100*overlap.Violations, 100*fcfs.Violations, 100*edf.Violations, overlap.Goodput, fcfs.Goodput, edf.Goodput)
}

func (r *Report) policy(name string) *PolicyResult {
	for i := range r.Policies {
		if r.Policies[i].Policy == name {
			return &r.Policies[i]
		}
	}
	return nil
}

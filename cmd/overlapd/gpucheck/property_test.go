package gpucheck

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cmd/overlapd/load"
)

// drawReport makes up what a check may have measured, or not.
func drawReport(t *rapid.T) *Report {
	r := measured()
	ms := rapid.Float64Range(0.01, 1000)
	for i := range r.Cuts {
		r.Cuts[i].CutMS, r.Cuts[i].DeviceMS, r.Cuts[i].WholeMS = ms.Draw(t, "cut"), ms.Draw(t, "device"), ms.Draw(t, "whole")
		r.Cuts[i].Ratio = r.Cuts[i].CutMS / r.Cuts[i].WholeMS
	}
	for i := range r.Pairs {
		r.Pairs[i].SequentialMS, r.Pairs[i].TogetherMS = ms.Draw(t, "sequential"), ms.Draw(t, "together")
		r.Pairs[i].Gain = r.Pairs[i].SequentialMS / r.Pairs[i].TogetherMS
	}
	r.Choices = choose(r.Cuts, []Model{{Name: "m"}})
	r.Repeat.Spread = rapid.Float64Range(0, 1).Draw(t, "spread")
	r.Outputs[0].Within = rapid.Bool().Draw(t, "within")
	if rapid.Bool().Draw(t, "nothing of pairs") {
		r.Pairs = nil
	}
	if rapid.Bool().Draw(t, "nothing of repeats") {
		r.Repeat = nil
	}
	return r
}

// TestReportHolds: whatever was measured, the tables are even, verdicts are one of
// three answers, and each follows from the numbers that it names.
func TestReportHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawReport(t)
		r.judge()
		r.Assumed = r.derived()
		for _, table := range append(r.tables(), r.verdictTable(), r.stepTable()) {
			for _, row := range table.Rows {
				if len(row) != len(table.Head) {
					t.Fatalf("%s: %q under %q", table.Title, row, table.Head)
				}
			}
		}
		for _, v := range r.Verdicts {
			if !slices.Contains([]string{Pass, Miss, NotMeasured}, v.Answer) || (v.Answer == NotMeasured) != (v.Number == nil) {
				t.Fatalf("%+v", v)
			}
		}
		best := 0.0
		for _, p := range r.Pairs {
			best = max(best, p.Gain)
		}
		if v := r.judgePairs(); len(r.Pairs) > 0 && (v.Answer == Pass) != (best >= wantGain) {
			t.Fatalf("the best pair gains %g: %+v", best, v)
		}
		if v := r.judgeRepeat(); r.Repeat != nil && (v.Answer == Pass) != (r.Repeat.Spread <= wantSpread) {
			t.Fatalf("spread %g: %+v", r.Repeat.Spread, v)
		}
		for _, l := range r.Assumed {
			if l.Saw == "" || strings.Contains(l.Saw, "%!") || strings.Contains(l.Saw, "NaN") || strings.Contains(l.Saw, "Inf") {
				t.Fatalf("%+v", l)
			}
		}
		if text := string(r.markdown()); strings.Contains(text, "NaN") || strings.Contains(text, "%!") {
			t.Fatalf("the text has no numbers somewhere:\n%s", text)
		}
	})
}

// TestChoiceIsBest: no other way of cutting is better than the chosen one, by the
// rule that the table names.
func TestChoiceIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rows []CutRow
		for _, wanted := range rapid.SliceOfNDistinct(rapid.IntRange(0, 64), 1, 6, rapid.ID).Draw(t, "wanted") {
			for _, batch := range []int{1, 8} {
				segments := wanted
				if wanted == 0 {
					segments = 100
				}
				rows = append(rows, CutRow{Model: "m", Batch: batch, Wanted: wanted, Segments: segments, Ratio: rapid.Float64Range(0.9, 1.3).Draw(t, "ratio")})
			}
		}
		list := choose(rows, []Model{{Name: "m"}, {Name: "absent"}})
		if len(list) != 1 {
			t.Fatalf("%+v", list)
		}
		chosen, worst := list[0], map[int]float64{}
		for _, r := range rows {
			worst[r.Segments] = max(worst[r.Segments], r.Ratio)
		}
		if chosen.Worst != worst[chosen.Segments] || chosen.Within != (chosen.Worst <= cutLimit) {
			t.Fatalf("%+v of %v", chosen, worst)
		}
		for segments, ratio := range worst {
			switch {
			case ratio <= cutLimit && (!chosen.Within || segments > chosen.Segments):
				t.Fatalf("%d segments at %g are better than %+v", segments, ratio, chosen)
			case !chosen.Within && ratio < chosen.Worst:
				t.Fatalf("%d segments at %g cost less than %+v", segments, ratio, chosen)
			}
		}
	})
}

// TestSpreadIsRight compares with sums that are taken otherwise.
func TestSpreadIsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Float64Range(0.1, 100), 1, 200).Draw(t, "times")
		r := spread(slices.Clone(times))
		mean, square := 0.0, 0.0
		for _, x := range times {
			mean += x
			square += x * x
		}
		n := float64(len(times))
		mean /= n
		variance := max(square/n-mean*mean, 0) * n / max(n-1, 1)
		if math.Abs(r.MeanMS-mean) > 1e-6*mean || math.Abs(r.StdMS*r.StdMS-variance) > 1e-6*(1+square/n) {
			t.Fatalf("%+v, mean %g, variance %g", r, mean, variance)
		}
		least, most := slices.Min(times), slices.Max(times)
		if r.Runs != len(times) || r.MedianMS < least || r.MedianMS > most || r.P1MS > r.P99MS || r.P1MS < least || r.P99MS > most {
			t.Fatalf("%+v of %g to %g", r, least, most)
		}
	})
}

// TestSettingFits: turns of all policies fit into the time that is left, unless it
// is too short for any.
func TestSettingFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := withPairs(DefaultOptions())
		for i := range c.report.Pairs {
			c.report.Pairs[i].AloneAMS = rapid.Float64Range(0.05, 200).Draw(t, "alone")
			c.report.Pairs[i].AloneBMS = rapid.Float64Range(0.05, 200).Draw(t, "alone")
		}
		left := time.Duration(rapid.IntRange(1, 300).Draw(t, "left")) * time.Second
		s := c.setting(left)
		if s.Rate > c.MaxRate || s.Offered > c.LoadFactor*(1+1e-9) || s.Rounds < 1 || s.Turn < leastTurn.Seconds() || s.Turn > c.Turn.Seconds() {
			t.Fatalf("%+v", s)
		}
		spent := time.Duration(s.Rounds*len(c.Policies)) * (time.Duration(s.Turn*1e9) + turnWarmup + turnSlack)
		if s.Turn > leastTurn.Seconds() && spent > left+time.Millisecond {
			t.Fatalf("%d rounds of %v s take %v of %v", s.Rounds, s.Turn, spent, left)
		}
		for _, m := range c.Services {
			if s.TargetMS[m.Name] < s.AloneMS[m.Name] {
				t.Fatalf("the target of %s is below what it takes alone: %+v", m.Name, s)
			}
		}
	})
}

// TestSumUpIsWeighted: violations of a policy are those of all of its requests.
func TestSumUpIsWeighted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var turns []Turn
		bad, all, reasons := map[string]float64{}, map[string]int64{}, map[string]int64{}
		for range rapid.IntRange(0, 20).Draw(t, "turns") {
			turn := Turn{
				Policy: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "policy"), Requests: rapid.Int64Range(0, 1000).Draw(t, "requests"),
				Violations: rapid.Float64Range(0, 1).Draw(t, "violations"), Errors: map[string]int64{"late": rapid.Int64Range(0, 9).Draw(t, "late")},
			}
			turns = append(turns, turn)
			bad[turn.Policy] += turn.Violations * float64(turn.Requests)
			all[turn.Policy] += turn.Requests
			reasons[turn.Policy] += turn.Errors["late"]
		}
		for _, p := range sumUp([]string{"a", "b", "never"}, turns) {
			if p.Requests != all[p.Policy] || p.Errors["late"] != reasons[p.Policy] || p.Turns == 0 {
				t.Fatalf("%+v", p)
			}
			if math.Abs(p.Violations*float64(max(p.Requests, 1))-bad[p.Policy]) > 1e-6*(1+bad[p.Policy]) {
				t.Fatalf("%+v, %g are bad", p, bad[p.Policy])
			}
		}
	})
}

// TestNewTurnCounts: what is not answered in time is a violation.
func TestNewTurnCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.Int64Range(1, 10000).Draw(t, "requests")
		good := rapid.Int64Range(0, requests).Draw(t, "good")
		seconds := rapid.Float64Range(0.5, 60).Draw(t, "seconds")
		goodput := float64(good) / seconds
		turn := newTurn(&load.Result{Duration: seconds, Load: load.Load{Requests: requests, Goodput: &goodput}}, 3)
		if want := 1 - float64(good)/float64(requests); math.Abs(turn.Violations-want) > 1e-9 || turn.Round != 3 || turn.Goodput != goodput {
			t.Fatalf("%+v, want %g", turn, want)
		}
	})
}

// TestLastLines keeps the end of what was said.
func TestLastLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,8}`), 1, 3*tailLines).Draw(t, "lines")
		got := strings.Split(lastLines(strings.Join(lines, "\n")+"\n\n"), " | ")
		if want := lines[max(0, len(lines)-tailLines):]; !slices.Equal(got, want) {
			t.Fatalf("%q of %q", got, lines)
		}
	})
}

// TestFaultsAreCounted: each reason is told once, with how often it occurred.
func TestFaultsAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f faults
		count := map[string]int{}
		for i, reason := range rapid.SliceOfN(rapid.SampledFrom([]string{"no memory", "no GPU", "no time"}), 0, 30).Draw(t, "reasons") {
			f.add(fmt.Sprint("model ", i), fmt.Errorf("%s", reason))
			count[reason]++
		}
		err := f.err()
		if (err == nil) != (len(count) == 0) {
			t.Fatalf("got %v of %v", err, count)
		}
		if err == nil {
			return
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(count) {
			t.Fatalf("%d reasons in %q", len(count), lines)
		}
		for _, line := range lines {
			what, reason, _ := strings.Cut(line, ": ")
			if n := count[reason]; n > 1 != strings.HasSuffix(what, fmt.Sprintf(" and %d more", n-1)) {
				t.Fatalf("%q occurred %d times", line, n)
			}
		}
	})
}

package gpucheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// table is one table of a report, the same in the page and in the short text.
type table struct {
	Title  string
	Note   string
	Head   []string
	Rows   [][]string
	anchor string
}

// Anchor names the table's place in the page.
func (t table) Anchor() string { return t.anchor }

// tables returns what was found, without what was not got to.
func (r *Report) tables() []table {
	var list []table
	for _, t := range []table{
		r.outputTable(), r.cutTable(), r.choiceTable(), r.sessionTable(), r.variantTable(), r.pairTable(), r.repeatTable(), r.profileTable(), r.policyTable(), r.lookTable(),
	} {
		if len(t.Rows) > 0 {
			list = append(list, t)
		}
	}
	return list
}

func (t *table) row(format string, args ...any) {
	t.Rows = append(t.Rows, strings.Split(fmt.Sprintf(format, args...), "|"))
}

func (r *Report) outputTable() table {
	t := table{
		anchor: "outputs", Title: "Outputs against the CPU's",
		Note: "The cut model on the device, the whole one on the CPU, the same inputs, batch 1. Tolerance is of the largest difference relative to the largest value of an output.",
		Head: strings.Split("model|precision|elements|largest value|max abs|max rel|relative to largest|tolerance|", "|"),
	}
	for _, o := range r.Outputs {
		answer := "within"
		switch {
		case o.Error != "":
			t.row("%s|%s|–|–|–|–|–|%.0e|failed", o.Model, o.Precision, o.Tolerance)
			continue
		case !o.Within:
			answer = "beyond"
		}
		t.row("%s|%s|%d|%.4g|%.2e|%.2e|%.2e|%.0e|%s", o.Model, o.Precision, o.Elements, o.Largest, o.MaxAbs, o.MaxRel, o.RelToMax, o.Tolerance, answer)
	}
	return t
}

// operators says in words into how many operators a model was to be cut.
func operators(wanted int) string {
	if wanted == 0 {
		return "every node"
	}
	return fmt.Sprint(wanted)
}

func (r *Report) cutTable() table {
	t := table{
		anchor: "cuts", Title: "Cut against whole",
		Note: "Both run in turns in one process; medians. Ratio is cut / whole.",
		Head: strings.Split("model|batch|wanted|segments|rounds|whole ms|cut ms|on the GPU ms|ratio", "|"),
	}
	for _, c := range r.Cuts {
		t.row("%s|%d|%s|%d|%d|%.3f|%.3f|%.3f|%.3f", c.Model, c.Batch, operators(c.Wanted), c.Segments, c.Rounds, c.WholeMS, c.CutMS, c.DeviceMS, c.Ratio)
	}
	return t
}

func (r *Report) choiceTable() table {
	t := table{
		anchor: "choices", Title: "Chosen granularity",
		Note: "The finest that costs at most 5 % with every batch, else the one that costs least. All below runs with it.",
		Head: strings.Split("model|wanted|segments|worst ratio|", "|"),
	}
	for _, c := range r.Choices {
		answer := "within 5 %"
		if !c.Within {
			answer = "none within 5 %"
		}
		t.row("%s|%s|%d|%.3f|%s", c.Model, operators(c.Wanted), c.Segments, c.Worst, answer)
	}
	return t
}

func (r *Report) sessionTable() table {
	t := table{
		anchor: "sessions", Title: "Time and memory of each segment",
		Note: "Each model in a process of its own, after a few runs. Memory is resident memory of the process; each is what a segment adds to the whole model, below 0 where cutting saves some. GPU memory is what the worker counts on: weights, intermediates, libraries and context.",
		Head: strings.Split("model|wanted|segments|load ms|whole|each ms|MiB|whole|each KiB|GPU MiB counted|taken", "|"),
	}
	for _, s := range r.Sessions {
		t.row("%s|%s|%d|%.0f|%.0f|%.2f|%.0f|%.0f|%.0f|%.0f|%.0f", s.Model, operators(s.Wanted), s.Segments, s.LoadMS, s.WholeLoadMS, s.EachMS,
			float64(s.RSSBytes)/(1<<20), float64(s.WholeRSSBytes)/(1<<20), float64(s.EachBytes)/(1<<10), float64(s.DeviceBytes)/(1<<20), float64(s.TakenBytes)/(1<<20))
	}
	return t
}

func (r *Report) variantTable() table {
	t := table{
		anchor: "variants", Title: "Other ways of running a model",
		Note: "Batch 1, medians: what the usual way loses against ways that cost processor time, or time at the start.",
		Head: strings.Split("model|way|segments|ms|on the GPU ms|load ms", "|"),
	}
	for _, v := range r.Variants {
		t.row("%s|%s|%d|%.3f|%.3f|%.0f", v.Model, v.Variant, v.Segments, v.CutMS, v.DeviceMS, v.LoadMS)
	}
	return t
}

func (r *Report) pairTable() table {
	t := table{
		anchor: "pairs", Title: "Two services together",
		Note: "Each in a worker of its own; medians of turns. Gain is one after the other / together.",
		Head: strings.Split("services|batch|MPS|rounds|first ms|second ms|one after the other ms|together ms|gain", "|"),
	}
	for _, p := range r.Pairs {
		t.row("%s, %s|%d|%s|%d|%.3f|%.3f|%.3f|%.3f|%.2f", p.A, p.B, p.Batch, yes(p.MPS), p.Rounds, p.AloneAMS, p.AloneBMS, p.SequentialMS, p.TogetherMS, p.Gain)
	}
	return t
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (r *Report) repeatTable() table {
	t := table{
		anchor: "repeat", Title: "One group, again and again",
		Note: "Spread is the standard deviation by the mean; the paper has 4.5 % of the latency (section 5.4).",
		Head: strings.Split("group|batch|MPS|runs|median ms|mean ms|p1 ms|p99 ms|spread", "|"),
	}
	if p := r.Repeat; p != nil {
		t.row("%s|%d|%s|%d|%.3f|%.3f|%.3f|%.3f|%.1f %%", p.Group, p.Batch, yes(p.MPS), p.Runs, p.MedianMS, p.MeanMS, p.P1MS, p.P99MS, 100*p.Spread)
	}
	return t
}

func (r *Report) profileTable() table {
	t := table{
		anchor: "profile", Title: "Profile and predictor",
		Note: "Groups are sampled as the scheduler forms them; the error is that of groups kept aside.",
		Head: strings.Split("measuring s|measured|drift|groups|training s|error", "|"),
	}
	if p := r.Profile; p != nil && p.Rows == 0 {
		t.row("%.0f|%d|%+.1f %%|–|–|no predictor", p.MeasureSeconds, p.Measured, p.DriftPercent)
	} else if p != nil {
		t.row("%.0f|%d|%+.1f %%|%d|%.0f|%.1f %%", p.MeasureSeconds, p.Measured, p.DriftPercent, p.Rows, p.TrainSeconds, p.MAPE)
	}
	return t
}

func (r *Report) policyTable() table {
	t := table{
		anchor: "load", Title: "Load under each policy",
		Head: strings.Split("policy|turns|requests|violations|goodput/s|p99 / target|errors", "|"),
	}
	if l := r.Load; l != nil {
		t.Note = fmt.Sprintf("Open loop, Poisson, %.0f requests a second on all services together: work for %.0f %% of the device, one batch after another. %d turns of %.1f s for each policy, one policy after the other, the same arrivals for all in a round. Violations are late, dropped and refused requests; p99 is that of the service that is worst off, median of the turns.",
			l.Rate, 100*l.Offered, l.Rounds, l.Turn)
		if r.Profile == nil || r.Profile.Rows == 0 {
			t.Note += " There is no predictor: nothing runs together on a guess, so this is no comparison."
		}
	}
	for _, p := range r.Policies {
		t.row("%s|%d|%d|%.1f %%|%.1f|%.2f|%s", p.Policy, p.Turns, p.Requests, 100*p.Violations, p.Goodput, p.P99, counts(p.Errors))
	}
	return t
}

// counts names what was counted, sorted.
func counts(by map[string]int64) string {
	var words []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		words = append(words, fmt.Sprintf("%d %s", by[reason], reason))
	}
	return strings.Join(words, ", ")
}

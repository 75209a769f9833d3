package gpucheck

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
)

// turnShare is the part of a step that its measurements may spend on runs, the
// rest being for loading models.
const turnShare = 0.3

// OutputRow tells how far the outputs of one model are from the CPU's.
type OutputRow struct {
	Model     string  `json:"model"`
	Precision string  `json:"precision"`
	Tolerance float64 `json:"tolerance"` // of the largest difference relative to the largest value
	Within    bool    `json:"within"`
	Error     string  `json:"error,omitempty"` // why there is nothing to compare

	cutcost.Deviation
}

// Tolerances of outputs, relative to the largest value of an output. Sums of some
// thousand products differ in their last digits with their order; half precision
// has 11 bits, and errors add up over the layers.
const (
	toleranceFP32 = 1e-3
	toleranceFP16 = 2e-2
)

// compareOutputs runs each model cut on the device and whole on the CPU.
func (c *check) compareOutputs(ctx context.Context) error {
	var faults faults
	for _, m := range c.Models {
		row := OutputRow{Model: m.Name, Precision: "fp32", Tolerance: toleranceFP32}
		if strings.HasSuffix(m.Name, "-fp16") {
			row.Precision, row.Tolerance = "fp16", toleranceFP16
		}
		r, err := c.probe(ctx, m, cutcost.ProbeSpec{Mode: cutcost.ModeApart, Batch: 1})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			row.Error = err.Error()
			faults.add(m.Name, err)
		default:
			row.Deviation = *r.Deviation
			row.Within = row.RelToMax <= row.Tolerance && row.NotFinite == 0
		}
		c.keep(func(r *Report) { r.Outputs = append(r.Outputs, row) })
	}
	return faults.err()
}

// CutRow compares a cut model with the whole one.
type CutRow struct {
	Model    string  `json:"model"`
	Batch    int     `json:"batch"`
	Wanted   int     `json:"wanted"` // operators, 0 for one at every node
	Segments int     `json:"segments"`
	Rounds   int     `json:"rounds"`
	WholeMS  float64 `json:"whole_ms"` // medians
	CutMS    float64 `json:"cut_ms"`
	DeviceMS float64 `json:"device_ms"` // of the cut one between events, 0 on the CPU
	Ratio    float64 `json:"ratio"`
}

// measureCuts runs each service cut and whole in turns, for each batch and
// granularity, and chooses how each is cut from then on.
func (c *check) measureCuts(ctx context.Context) error {
	n := len(c.Batches) * len(c.Granularities) * len(c.Services)
	each := time.Duration(float64(timeLeft(ctx)) * turnShare / float64(n))
	defer func() { c.keep(func(r *Report) { r.Choices = choose(r.Cuts, c.Services) }) }()
	var faults faults
	for _, batch := range c.Batches {
		for _, wanted := range c.Granularities {
			for _, m := range c.Services {
				r, err := c.probe(ctx, m, cutcost.ProbeSpec{Mode: cutcost.ModeTime, Batch: batch, Target: wanted, Duration: each})
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					faults.add(fmt.Sprintf("%s, batch %d, %d operators", m.Name, batch, wanted), err)
					continue
				}
				row := CutRow{
					Model: m.Name, Batch: batch, Wanted: wanted, Segments: r.Segments, Rounds: r.Rounds,
					WholeMS: r.WholeMS, CutMS: r.CutMS, DeviceMS: r.DeviceMS, Ratio: r.CutMS / r.WholeMS,
				}
				c.keep(func(r *Report) { r.Cuts = append(r.Cuts, row) })
			}
		}
	}
	return faults.err()
}

// cutLimit is what cutting may cost, as a ratio.
const cutLimit = 1 + wantCut/100

// Choice is how a model is cut from then on: the finest way that costs at most
// 5 % with every batch, else the one that costs least. Ways that were measured with
// fewer batches than others, since time ran out, are not chosen.
type Choice struct {
	Model    string  `json:"model"`
	Wanted   int     `json:"wanted"`
	Segments int     `json:"segments"`
	Batches  int     `json:"batches"`     // that it was measured with
	Worst    float64 `json:"worst_ratio"` // over the batches
	Within   bool    `json:"within"`
}

// choose returns the choice of each model that was measured.
func choose(rows []CutRow, list []Model) []Choice {
	var choices []Choice
	for _, m := range list {
		ways := map[int]*Choice{}
		var order []int
		for _, r := range rows {
			if r.Model != m.Name {
				continue
			}
			w := ways[r.Wanted]
			if w == nil {
				w = &Choice{Model: m.Name, Wanted: r.Wanted, Segments: r.Segments}
				ways[r.Wanted], order = w, append(order, r.Wanted)
			}
			w.Batches++
			w.Worst = max(w.Worst, r.Ratio)
			w.Within = w.Worst <= cutLimit
		}
		var best *Choice
		for _, wanted := range order {
			if w := ways[wanted]; best == nil || w.better(best) {
				best = w
			}
		}
		if best != nil {
			choices = append(choices, *best)
		}
	}
	return choices
}

func (w *Choice) better(than *Choice) bool {
	if w.Batches != than.Batches {
		return w.Batches > than.Batches
	}
	if w.Within != than.Within {
		return w.Within
	}
	if w.Within {
		return w.Segments > than.Segments
	}
	return w.Worst < than.Worst
}

// cut returns how many operators a model is cut into, 0 for what suits the device
// where nothing was chosen.
func (c *check) cut(model string) int {
	for _, choice := range c.report.Choices {
		if choice.Model == model {
			return choice.Segments // at every node there are as many
		}
	}
	return 0
}

// SessionRow tells what the sessions of a cut model cost beside the whole model.
type SessionRow struct {
	Model         string  `json:"model"`
	Wanted        int     `json:"wanted"`
	Segments      int     `json:"segments"`
	LoadMS        float64 `json:"load_ms"`
	WholeLoadMS   float64 `json:"whole_load_ms"`
	EachMS        float64 `json:"each_ms"` // of loading, by segment
	RSSBytes      int64   `json:"rss_bytes"`
	WholeRSSBytes int64   `json:"whole_rss_bytes"`
	DeviceBytes   int64   `json:"device_bytes"` // of a GPU's memory, with the context and libraries; 0 on the CPU
	TakenBytes    int64   `json:"taken_bytes"`  // of a GPU's memory, from when the context was there; 0 on the CPU
	EachBytes     int64   `json:"each_bytes"`   // of resident memory beyond the whole model's, by segment; below 0 if the cut one needs less
}

// measureSessions loads each service whole and cut, each in a process of its own.
func (c *check) measureSessions(ctx context.Context) error {
	var faults faults
	for _, m := range c.Services {
		whole, err := c.probe(ctx, m, cutcost.ProbeSpec{Mode: cutcost.ModeWhole, Batch: 1})
		if err != nil {
			faults.add(m.Name+", whole", err)
			continue
		}
		for _, wanted := range c.Granularities {
			cut, err := c.probe(ctx, m, cutcost.ProbeSpec{Mode: cutcost.ModeCut, Batch: 1, Target: wanted})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				faults.add(fmt.Sprintf("%s, %d operators", m.Name, wanted), err)
				continue
			}
			row := sessionRow(m.Name, wanted, &whole, &cut)
			c.keep(func(r *Report) { r.Sessions = append(r.Sessions, row) })
		}
	}
	return faults.err()
}

func sessionRow(model string, wanted int, whole, cut *cutcost.ProbeResult) SessionRow {
	n := max(cut.Segments, 1)
	row := SessionRow{
		Model: model, Wanted: wanted, Segments: cut.Segments,
		LoadMS: cut.LoadMS, WholeLoadMS: whole.LoadMS, EachMS: cut.LoadMS / float64(n),
		RSSBytes: cut.RSSBytes, WholeRSSBytes: whole.RSSBytes, EachBytes: (cut.RSSBytes - whole.RSSBytes) / int64(n),
	}
	if cut.Device != nil {
		row.DeviceBytes, row.TakenBytes = cut.Device.Sum(), cut.Device.Taken
	}
	return row
}

// probe does one measurement in a process of its own.
func (c *check) probe(ctx context.Context, m Model, spec cutcost.ProbeSpec) (cutcost.ProbeResult, error) {
	spec.Path, spec.CacheDir, spec.Threads, spec.Seed = m.Path, c.CacheDir, c.Threads, int64(c.Seed)
	spec.SeqLen = c.SeqLen
	c.placeProbe(&spec)
	c.Progress(fmt.Sprintf("  %s, batch %d, %d operators: %s", m.Name, spec.Batch, spec.Target, spec.Mode))
	return cutcost.RunProbe(ctx, append(c.Command[:len(c.Command):len(c.Command)], "bench", "probe"), spec)
}

// timeLeft returns how long a step may go on.
func timeLeft(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return maxBudget
	}
	return max(time.Until(end), 0)
}

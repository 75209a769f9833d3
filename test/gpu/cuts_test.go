package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/segments/probe"
	"github.com/overlapd/overlapd/segments/wire"
)

const (
	// turnShare is the part of a step that its measurements may spend on runs, the
	// rest being for loading models.
	turnShare = 0.3

	// Tolerances of outputs, relative to the largest value of an output. Sums of
	// some thousand products differ in their last digits with their order; half
	// precision has 11 bits, and errors add up over the layers.
	toleranceFP32 = 1e-3
	toleranceFP16 = 2e-2

	// cutLimit is what cutting may cost, as a ratio.
	cutLimit = 1 + wantCut/100

	// hostShare is how much longer a span may take for the host than for the
	// device: beyond it, waking up and launching matter.
	hostShare = 0.2

	// slower is how much slower the usual way may be than one that costs more.
	slower = 0.1

	// closeRuns is how long the models of the step close run: more than a hundred times.
	closeRuns = 3 * time.Second
)

// probe does one measurement of a model in a process of its own.
func (c *check) probe(ctx context.Context, model string, spec probe.Spec) (r probe.Result, err error) {
	spec.CacheDir, spec.Threads, spec.Seed, spec.SeqLen, spec.Device = c.cache, 1, seed, c.seqLen, c.device
	if !c.rehearsal() {
		spec.CUDA.Device = c.gpu
	}
	if spec.Path, err = c.model(model); err == nil {
		r, err = probe.Run(ctx, []string{c.program, "bench", "probe"}, spec)
	}
	if err != nil && ctx.Err() == nil {
		c.t.Errorf("%s, batch %d, %d operators: %v", model, spec.Batch, spec.Target, err)
	}
	return r, err
}

// outputRow is the distance of one model's outputs from the CPU's.
type outputRow struct {
	Model     string  `json:"model"`
	Tolerance float64 `json:"tolerance"` // of the largest difference relative to the largest value
	Within    bool    `json:"within"`
	probe.Deviation
}

// compareOutputs runs each model cut on the device and whole on the CPU.
func (c *check) compareOutputs(ctx context.Context) error {
	apart, failed, worst := 0, 0, 0.0
	for c.rest = len(c.models); c.rest > 0; c.rest-- {
		m := c.models[len(c.models)-c.rest]
		row := outputRow{Model: m, Tolerance: toleranceFP32}
		if strings.HasSuffix(m, "-fp16") {
			row.Tolerance = toleranceFP16
		}
		r, err := c.probe(ctx, m, probe.Spec{Mode: probe.ModeApart, Batch: 1})
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			failed++
		} else {
			row.Deviation = *r.Deviation
			if row.Within = row.RelToMax <= row.Tolerance && row.NotFinite == 0; !row.Within {
				apart++
			}
			worst = max(worst, row.RelToMax)
			if d := r.Device; d != nil {
				c.see([]string{"E10", "E11"}, "see", "%s: MiB taken besides the context %d, weights %d, intermediates %d, %d sessions", m, d.Taken>>20, d.Weights>>20, d.Intermediates>>20, d.Sessions)
			}
		}
		keep(c, &c.mu.Outputs, row)
	}
	ran := len(c.models) - c.rest - failed
	if ran+failed > 0 {
		loads := fmt.Sprintf("%d models ran cut at every node, %d failed", ran, failed)
		c.expect([]string{"C1", "C2", "C11", "E2"}, ran > 0, "%s", loads)
		c.settle([]string{"C3", "E3", "E4"}, failed, "%s", loads)
		c.settle([]string{"C5", "E1", "E5", "E6", "E7", "E8", "E9", "E21"}, apart,
			"%d of %d that ran are within their tolerance, the worst is off by %.1e of the largest value", ran-apart, ran, worst)
	}
	return ctx.Err()
}

// closeSessions runs models whose Concat takes pinned memory of the host, until more is
// outstanding than a session keeps, and ends them: a session that closes too early aborts
// its process.
func (c *check) closeSessions(ctx context.Context) error {
	models := []string{"inception_v3-fp16", "inception_v3"}
	if c.rehearsal() {
		models = c.services[:1]
	}
	for c.rest = len(models); c.rest > 0; c.rest-- {
		m := models[len(models)-c.rest]
		r, err := c.probe(ctx, m, probe.Spec{Mode: probe.ModeTime, Batch: 1, Target: wire.DefaultCUDATarget, Duration: closeRuns})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.expect([]string{"E27"}, err == nil, "%s closed %d sessions after %d runs: %v", m, r.Segments, r.Rounds, err)
	}
	return nil
}

// bitsRow says whether a model gives the same cut and whole, both on the device.
type bitsRow struct {
	Model    string `json:"model"`
	Segments int    `json:"segments"`
	Equal    bool   `json:"equal"`
}

// compareBits runs each model cut and whole on the device. Where the two differ, cuDNN
// or cuBLAS has chosen another way for the same operator, such as TF32, or a wait is
// missing.
func (c *check) compareBits(ctx context.Context) error {
	for c.rest = len(c.models); c.rest > 0; c.rest-- {
		m := c.models[len(c.models)-c.rest]
		r, err := c.probe(ctx, m, probe.Spec{Mode: probe.ModeTime, Batch: 1})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			keep(c, &c.mu.Bits, bitsRow{m, r.Segments, r.Equal})
			c.expect([]string{"E26"}, r.Equal, "%s in %d segments gives the same as whole: %t", m, r.Segments, r.Equal)
		}
	}
	return nil
}

// cutRow compares a cut model with the whole one. Times are medians.
type cutRow struct {
	Model    string  `json:"model"`
	Batch    int     `json:"batch"`
	Wanted   int     `json:"wanted"` // operators, 0 for one at every node
	Segments int     `json:"segments"`
	Rounds   int     `json:"rounds"`
	WholeMS  float64 `json:"whole_ms"`
	CutMS    float64 `json:"cut_ms"`
	DeviceMS float64 `json:"device_ms"` // of the cut one between events, 0 on the CPU
	Ratio    float64 `json:"ratio"`
}

// measureCuts runs each service cut and whole in turns, and chooses how each is cut from
// then on. Each way is measured with all batches before the next one.
func (c *check) measureCuts(ctx context.Context) error {
	c.rest = len(c.batches) * len(c.cuts) * len(c.services)
	each := time.Duration(float64(timeLeft(ctx)) * turnShare / float64(c.rest))
	each = min(each, time.Duration(c.rounds)*50*time.Millisecond)
	defer func() {
		for _, choice := range choose(c.mu.Cuts, c.services, len(c.cuts)*len(c.batches)) {
			keep(c, &c.mu.Choices, choice)
		}
	}()
	for _, wanted := range c.cuts {
		for _, m := range c.services {
			for _, batch := range c.batches {
				r, err := c.probe(ctx, m, probe.Spec{
					Mode: probe.ModeTime, Batch: batch, Target: wanted, Duration: each, CUDA: c.cudaSpec(), // as it is served
				})
				if ctx.Err() != nil {
					return ctx.Err()
				}
				c.rest--
				if err != nil {
					continue
				}
				row := cutRow{m, batch, wanted, r.Segments, r.Rounds, r.WholeMS, r.CutMS, r.DeviceMS, r.CutMS / r.WholeMS}
				keep(c, &c.mu.Cuts, row)
				c.expectCut(&row)
			}
		}
	}
	return nil
}

func (c *check) expectCut(r *cutRow) {
	if r.Batch != 1 {
		return
	}
	over := r.CutMS - r.DeviceMS
	c.expect([]string{"E1", "E17"}, over >= 0 && over <= hostShare*r.CutMS, "%s, %d segments: %.3f ms for the host, %.3f ms between events", r.Model, r.Segments, r.CutMS, r.DeviceMS)
	if r.Wanted >= 16 && r.Wanted <= 64 {
		c.expect([]string{"E16"}, r.Ratio <= cutLimit, "%s, %d segments, batch 1: %.3f of the whole", r.Model, r.Segments, r.Ratio)
	}
}

// choice is how a model is cut from then on.
type choice struct {
	Model    string  `json:"model"`
	Wanted   int     `json:"wanted"`
	Segments int     `json:"segments"`
	Batches  int     `json:"batches"`     // that it was measured with
	Worst    float64 `json:"worst_ratio"` // over the batches
}

// choose returns for each model the finest way of cutting that costs at most 5 % with every
// batch, else, if all rows are there, the one that costs least: of a few ways all may be
// dear, and what suits the device is better then. Ways that were measured with fewer batches
// than others, since time ran out, are not chosen.
func choose(rows []cutRow, models []string, all int) (choices []choice) {
	for _, m := range models {
		var ways []choice
		measured := 0
		for _, r := range rows {
			if r.Model != m {
				continue
			}
			at := slices.IndexFunc(ways, func(w choice) bool { return w.Wanted == r.Wanted })
			if at < 0 {
				at, ways = len(ways), append(ways, choice{Model: m, Wanted: r.Wanted, Segments: r.Segments})
			}
			measured++
			ways[at].Batches++
			ways[at].Worst = max(ways[at].Worst, r.Ratio)
		}
		if len(ways) == 0 {
			continue
		}
		if best := slices.MinFunc(ways, compareChoices); best.Worst <= cutLimit || measured == all {
			choices = append(choices, best)
		}
	}
	return choices
}

// compareChoices returns less than 0 if a is better.
func compareChoices(a, b choice) int {
	within := a.Worst <= cutLimit
	switch {
	case a.Batches != b.Batches:
		return b.Batches - a.Batches
	case within != (b.Worst <= cutLimit):
		return map[bool]int{true: -1, false: 1}[within]
	case within:
		return b.Segments - a.Segments
	case a.Worst < b.Worst:
		return -1
	}
	return 1
}

// cutOf returns into how many operators a model is cut, 0 for what suits the device
// where nothing was chosen.
func (c *check) cutOf(model string) int {
	for _, choice := range c.mu.Choices {
		if choice.Model == model {
			return choice.Segments // at every node there are as many
		}
	}
	return 0
}

// TestOutputsEndEarly: where time ends after the first model, what it shows is recorded.
func TestOutputsEndEarly(t *testing.T) {
	c, _ := withFakes(t)
	dir := t.TempDir()
	c.base, c.models, c.program = dir, []string{"tiny_add", "tiny_mlp", "tiny_cnn"}, filepath.Join(dir, "probe")
	script := "#!/bin/sh\nif grep -q tiny_add; then echo '{\"deviation\":{\"rel_to_max\":1e-6}}'; else exec sleep 60; fi\n"
	if err := os.WriteFile(c.program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	c.kept = end
	if err := c.compareOutputs(ctx); !errors.Is(err, context.Canceled) || c.rest != 2 || len(c.mu.Outputs) != 1 {
		t.Errorf("%d models have not run, %+v, %v", c.rest, c.mu.Outputs, err)
	}
	if got := c.answers(); got["C1"] != "holds" || got["C5"] != "see" || got["E3"] != "see" {
		t.Errorf("%v", got)
	}
}

// TestChoose holds the choice of a cut to what it promises, of any measurements.
func TestChoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ratio := rapid.Float64Range(0.9, 1.2)
		var rows []cutRow
		worst := map[int]float64{}
		batches := rapid.IntRange(1, 3).Draw(t, "batches")
		for _, wanted := range rapid.SliceOfNDistinct(rapid.IntRange(1, 100), 1, 6, rapid.ID[int]).Draw(t, "wanted") {
			for batch := range batches {
				r := cutRow{Model: "m", Batch: batch, Wanted: wanted, Segments: wanted, Ratio: ratio.Draw(t, "ratio")}
				rows, worst[wanted] = append(rows, r), max(worst[wanted], r.Ratio)
			}
		}
		rows = append(rows, cutRow{Model: "m", Batch: batches, Wanted: 1000, Segments: 1000, Ratio: 1}) // with one batch only
		if batches == 1 {
			rows = rows[:len(rows)-1]
		}
		if few := choose(rows, []string{"m"}, len(rows)+1); len(few) > 0 && few[0].Worst > cutLimit {
			t.Fatalf("%+v is chosen though not all ways were measured", few)
		}
		got := choose(rows, []string{"m", "absent"}, len(rows))[0]
		for wanted, cost := range worst {
			within := got.Worst <= cutLimit
			if cost <= cutLimit && (!within || got.Segments < wanted) || !within && cost < got.Worst || got.Worst != worst[got.Wanted] {
				t.Fatalf("%+v is worse than %d, which costs %v", got, wanted, cost)
			}
		}
	})
}

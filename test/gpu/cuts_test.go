package gpu

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
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

	// What the worker counts for a session, and for the context of a process, in MiB.
	countedSession = 40
	countedContext = 512
)

// probe does one measurement of a model in a process of its own.
func (c *check) probe(ctx context.Context, model string, spec cutcost.ProbeSpec) (cutcost.ProbeResult, error) {
	spec.Path, spec.CacheDir, spec.Threads, spec.Seed, spec.SeqLen, spec.Device = c.paths[model], c.cache, 1, seed, c.seqLen, c.device
	if !c.rehearsal() {
		spec.GPU = c.gpu
	}
	r, err := cutcost.RunProbe(ctx, []string{c.program, "bench", "probe"}, spec)
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
	cutcost.Deviation
}

// compareOutputs runs each model cut on the device and whole on the CPU.
func (c *check) compareOutputs(ctx context.Context) error {
	ran, apart, worst := 0, 0, 0.0
	for _, m := range c.models {
		row := outputRow{Model: m, Tolerance: toleranceFP32}
		if strings.HasSuffix(m, "-fp16") {
			row.Tolerance = toleranceFP16
		}
		r, err := c.probe(ctx, m, cutcost.ProbeSpec{Mode: cutcost.ModeApart, Batch: 1})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			ran++
			row.Deviation = *r.Deviation
			if row.Within = row.RelToMax <= row.Tolerance && row.NotFinite == 0; !row.Within {
				apart++
			}
			worst = max(worst, row.RelToMax)
		}
		keep(c, &c.mu.Outputs, row)
	}
	loads := fmt.Sprintf("%d models of %d ran cut at every node", ran, len(c.models))
	c.expect([]string{"C1", "C2", "C11", "E2"}, ran > 0, "%s", loads)
	c.expect([]string{"C3", "E3", "E4"}, ran == len(c.models), "%s", loads)
	c.expect([]string{"C5", "E1", "E5", "E6", "E7", "E8", "E9", "E21"}, ran > 0 && apart == 0,
		"%d of %d that ran are within their tolerance, the worst is off by %.1e of the largest value", ran-apart, ran, worst)
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
	for _, m := range c.models {
		r, err := c.probe(ctx, m, cutcost.ProbeSpec{Mode: cutcost.ModeTime, Batch: 1})
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

// measureCuts runs each service cut and whole in turns, for each batch and
// granularity, and chooses how each is cut from then on.
func (c *check) measureCuts(ctx context.Context) error {
	each := time.Duration(float64(timeLeft(ctx)) * turnShare / float64(len(c.batches)*len(c.cuts)*len(c.services)))
	each = min(each, time.Duration(c.rounds)*50*time.Millisecond)
	defer func() {
		for _, choice := range choose(c.mu.Cuts, c.services) {
			keep(c, &c.mu.Choices, choice)
		}
	}()
	for _, batch := range c.batches {
		for _, wanted := range c.cuts {
			for _, m := range c.services {
				r, err := c.probe(ctx, m, cutcost.ProbeSpec{Mode: cutcost.ModeTime, Batch: batch, Target: wanted, Duration: each})
				if ctx.Err() != nil {
					return ctx.Err()
				}
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
	if r.Wanted == 0 {
		c.see([]string{"E21"}, "see", "%s at every node, %d segments: %.3f of the whole", r.Model, r.Segments, r.Ratio)
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

// choose returns for each model that was measured the finest way of cutting that
// costs at most 5 % with every batch, else the one that costs least. Ways that were
// measured with fewer batches than others, since time ran out, are not chosen.
func choose(rows []cutRow, models []string) (choices []choice) {
	for _, m := range models {
		var ways []choice
		for _, r := range rows {
			if r.Model != m {
				continue
			}
			at := slices.IndexFunc(ways, func(w choice) bool { return w.Wanted == r.Wanted })
			if at < 0 {
				at, ways = len(ways), append(ways, choice{Model: m, Wanted: r.Wanted, Segments: r.Segments})
			}
			ways[at].Batches++
			ways[at].Worst = max(ways[at].Worst, r.Ratio)
		}
		if len(ways) > 0 {
			choices = append(choices, slices.MinFunc(ways, compareChoices))
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

// sessionRow is what the sessions of a cut model cost beside the whole model.
type sessionRow struct {
	Model         string  `json:"model"`
	Wanted        int     `json:"wanted"`
	Segments      int     `json:"segments"`
	LoadMS        float64 `json:"load_ms"`
	WholeLoadMS   float64 `json:"whole_load_ms"`
	RSSBytes      int64   `json:"rss_bytes"`
	WholeRSSBytes int64   `json:"whole_rss_bytes"`
	DeviceBytes   int64   `json:"device_bytes"` // of a GPU's memory, as it is counted, with the context and libraries
	TakenBytes    int64   `json:"taken_bytes"`  // of a GPU's memory, from when the context was there
}

// measureSessions loads each service whole and cut, each in a process of its own.
func (c *check) measureSessions(ctx context.Context) error {
	for _, m := range c.services {
		whole, err := c.probe(ctx, m, cutcost.ProbeSpec{Mode: cutcost.ModeWhole, Batch: 1})
		if err != nil && ctx.Err() == nil {
			continue
		}
		for _, wanted := range c.cuts {
			cut, err := c.probe(ctx, m, cutcost.ProbeSpec{Mode: cutcost.ModeCut, Batch: 1, Target: wanted})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				continue
			}
			row := sessionRow{Model: m, Wanted: wanted, Segments: cut.Segments, LoadMS: cut.LoadMS, WholeLoadMS: whole.LoadMS, RSSBytes: cut.RSSBytes, WholeRSSBytes: whole.RSSBytes}
			if cut.Device != nil {
				row.DeviceBytes, row.TakenBytes = cut.Device.Sum(), cut.Device.Taken
			}
			keep(c, &c.mu.Sessions, row)
		}
		c.expectMemory(m)
	}
	return nil
}

// expectMemory compares the memory that sessions take with what is counted for them.
func (c *check) expectMemory(model string) {
	var coarsest *sessionRow
	for i := range c.mu.Sessions {
		if s := &c.mu.Sessions[i]; s.Model == model && s.TakenBytes > 0 && (coarsest == nil || s.Segments < coarsest.Segments) {
			coarsest = s
		}
	}
	for _, s := range c.mu.Sessions {
		if s.Model != model || s.TakenBytes == 0 {
			continue
		}
		taken, counted := float64(s.TakenBytes)/(1<<20), float64(s.DeviceBytes)/(1<<20)-countedContext
		c.see([]string{"E11"}, "see", "%s, %d segments: %.0f MiB of the GPU taken beside the context, %.0f counted", s.Model, s.Segments, taken, counted)
		if s.Segments > coarsest.Segments {
			each := float64(s.TakenBytes-coarsest.TakenBytes) / float64(s.Segments-coarsest.Segments) / (1 << 20)
			c.expect([]string{"E10"}, each <= countedSession, "%s: %.1f MiB for each segment from %d to %d, %d are counted", s.Model, each, coarsest.Segments, s.Segments, countedSession)
		}
	}
}

// variantRow is one way of running a model. Times are medians.
type variantRow struct {
	Model    string  `json:"model"`
	Variant  string  `json:"variant"`
	Segments int     `json:"segments"`
	CutMS    float64 `json:"cut_ms"`
	DeviceMS float64 `json:"device_ms"` // between events; 0 on the CPU
	LoadMS   float64 `json:"load_ms"`
}

// measureVariants runs the first service in ways that cost more, to see what the
// usual one loses.
func (c *check) measureVariants(ctx context.Context) error {
	const operators = 24
	ways := []struct {
		name string
		id   string // the assumption that the way would refute
		spec cutcost.ProbeSpec
	}{
		{"as usual", "", cutcost.ProbeSpec{}},
		{"with threads that spin", "E17", cutcost.ProbeSpec{Spin: true}},
		{"with EXHAUSTIVE convolutions", "E19", cutcost.ProbeSpec{ConvSearch: "EXHAUSTIVE"}},
	}
	if c.rehearsal() {
		ways = ways[:2] // the CPU has no choice of convolutions
	}
	each := min(time.Duration(float64(timeLeft(ctx))*turnShare/float64(len(ways))), time.Duration(c.rounds)*50*time.Millisecond)
	usual := 0.0
	for _, w := range ways {
		w.spec.Mode, w.spec.Batch, w.spec.Target, w.spec.Duration = cutcost.ModeTime, 1, operators, each
		r, err := c.probe(ctx, c.services[0], w.spec)
		if err != nil {
			return err
		}
		keep(c, &c.mu.Variants, variantRow{c.services[0], w.name, r.Segments, r.CutMS, r.DeviceMS, r.LoadMS})
		if w.id == "" {
			usual = r.CutMS
		} else {
			c.expect([]string{w.id}, usual <= (1+slower)*r.CutMS, "%s: %.3f ms, usual %.3f ms", w.name, r.CutMS, usual)
		}
	}
	return nil
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
		got := choose(rows, []string{"m", "absent"})[0]
		for wanted, cost := range worst {
			within := got.Worst <= cutLimit
			if cost <= cutLimit && (!within || got.Segments < wanted) || !within && cost < got.Worst || got.Worst != worst[got.Wanted] {
				t.Fatalf("%+v is worse than %d, which costs %v", got, wanted, cost)
			}
		}
	})
}

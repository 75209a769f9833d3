package gpucheck

import (
	"context"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
)

// Ways of running a model.
const (
	usualVariant = "as usual"
	spinning     = "with threads that spin"
	exhaustive   = "with EXHAUSTIVE convolutions"
)

// variantOperators is into how many operators the model is cut.
const variantOperators = 24

// VariantRow is one way of running a model. Times are medians.
type VariantRow struct {
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
	ways := []struct {
		name   string
		change func(*cutcost.ProbeSpec)
	}{
		{usualVariant, func(*cutcost.ProbeSpec) {}},
		{spinning, func(s *cutcost.ProbeSpec) { s.Spin = true }},
		{exhaustive, func(s *cutcost.ProbeSpec) { s.ConvSearch = "EXHAUSTIVE" }},
	}
	each := time.Duration(float64(timeLeft(ctx)) * turnShare / float64(len(ways)))
	m := c.Services[0]
	var faults faults
	for _, w := range ways {
		if w.name == exhaustive && c.rehearsal() {
			continue // the CPU has no such choice
		}
		spec := cutcost.ProbeSpec{Mode: cutcost.ModeTime, Batch: 1, Target: variantOperators, Duration: each}
		w.change(&spec)
		r, err := c.probe(ctx, m, spec)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			faults.add(m.Name+" "+w.name, err)
			continue
		}
		row := VariantRow{m.Name, w.name, r.Segments, r.CutMS, r.DeviceMS, r.LoadMS}
		c.keep(func(r *Report) { r.Variants = append(r.Variants, row) })
	}
	return faults.err()
}

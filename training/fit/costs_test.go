package fit

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// loss is what slopes gives the gradient of.
func (f *costFit) loss() float64 {
	f.update()
	sum := 0.0
	for i := range f.rows {
		r := &f.rows[i]
		var longest, work, powers float64
		for _, s := range r.spans {
			micros, busy := 0.0, 0.0
			for _, h := range s.shares {
				for o := s.start; o < s.end; o++ {
					micros += h.weight * f.micros[h.at+o]
					busy += h.weight * f.work[h.at+o]
				}
			}
			longest = max(longest, micros)
			powers += math.Pow(micros, 16)
			work += busy
		}
		base := longest
		if len(r.spans) > 1 {
			base = math.Pow(powers+math.Pow(work, 16), 1./16)
		}
		off := math.Log(base) - r.log
		sum += math.Sqrt(off*off + costCorner*costCorner)
	}
	return (sum + f.penalties()) / float64(len(f.rows))
}

// penalties is what addPriors gives the gradient of.
func (f *costFit) penalties() float64 {
	sum := 0.0
	for i := range f.deviation {
		sum += f.priors.deviation*f.deviation[i]*f.deviation[i] + f.priors.share*f.share[i]*f.share[i]
	}
	for _, v := range f.levelShare {
		sum += f.priors.levelShare * v * v
	}
	tied := func(a, b int, prior float64) {
		sum += prior * (math.Pow(f.deviation[a]-f.deviation[b], 2) + math.Pow(f.share[a]-f.share[b], 2))
	}
	beside := func(g *grid, cell, other int) {
		for o := range g.operators {
			tied(g.first+cell*g.operators+o, g.first+other*g.operators+o, f.priors.cells)
		}
		cell, other = g.firstCell+cell, g.firstCell+other
		sum += f.priors.levels * (math.Pow(f.level[cell]-f.level[other], 2) + math.Pow(f.levelShare[cell]-f.levelShare[other], 2))
	}
	for g := range f.grids {
		g := &f.grids[g]
		for cell := range g.cells() {
			for o := 1; o < g.operators; o++ {
				tied(g.first+cell*g.operators+o, g.first+cell*g.operators+o-1, f.priors.smooth)
			}
			if cell%len(g.sizes) > 0 {
				beside(g, cell, cell-1)
			}
			if cell >= len(g.sizes) {
				beside(g, cell, cell-len(g.sizes))
			}
		}
	}
	return sum
}

// everyPrior holds costs by all priors.
var everyPrior = costPriors{"every", 0.15, 0.03, 0.02, 0.01, 0.3, 0.05}

func (f *costFit) draw(random *rand.Rand) {
	for _, part := range [][]float64{f.deviation, f.share, f.level, f.levelShare} {
		for i := range part {
			part[i] = random.NormFloat64() / 2
		}
	}
	f.update()
}

func TestSlopesAreThoseOfTheLoss(t *testing.T) {
	d := synthetic(60, 1)
	random := rand.New(rand.NewPCG(1, 1))
	f := newCostFit(d.Models, d.Rows, nil, everyPrior, random)
	f.draw(random)
	slope := make([]float64, 2*len(f.deviation)+2*len(f.level))
	f.slopes(slope)
	const step = 1e-5
	at := 0
	for k, part := range [][]float64{f.deviation, f.share, f.level, f.levelShare} {
		for range 60 {
			i := random.IntN(len(part))
			was := part[i]
			part[i] = was + step
			high := f.loss()
			part[i] = was - step
			low := f.loss()
			part[i] = was
			if got, want := slope[at+i], (high-low)/(2*step); math.Abs(got-want) > 1e-6+1e-3*math.Abs(want) {
				t.Fatalf("parameter %d of part %d: slope %v, by differences %v", i, k, got, want)
			}
		}
		at += len(part)
	}
}

// What the fit takes a group to last is what an encoder says of it.
func TestBaseIsThatOfTheEncoder(t *testing.T) {
	d := synthetic(500, 1)
	for i := range d.Rows {
		for k := range d.Rows[i].Group.Spans {
			// More sizes than knots, so that some are interpolated.
			d.Rows[i].Group.Spans[k].Size = 1 + i%29
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	f := newCostFit(d.Models, d.Rows, nil, everyPrior, random)
	f.draw(random)
	features := features(d, d.Rows, RecipeOurs)
	for i := range f.grids {
		features.Models[i].Costs = f.grids[i].featureCells(f.micros, f.work)
	}
	if n := len(f.grids[0].sizes); n != maxKnots {
		t.Errorf("%d sizes, want the limit of %d", n, maxKnots)
	}
	in := encodeFeatures(&features, d.Rows)
	for i := range f.rows {
		r := &f.rows[i]
		f.addRow(r)
		var longest, work, sum float64
		for _, s := range r.spans {
			longest, work, sum = max(longest, s.micros), work+s.work, sum+math.Pow(s.micros, 16)
		}
		want := longest
		if len(r.spans) > 1 {
			want = math.Pow(sum+math.Pow(work, 16), 1./16)
		}
		if math.Abs(in.bases[i]/want-1) > 1e-9 {
			t.Fatalf("row %d: the encoder says %v, the fit %v", i, in.bases[i], want)
		}
	}
}

func TestInferCostsStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := synthetic(100, 1)
	if _, err := inferCosts(ctx, d.Models, d.Rows, nil, everyPrior, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
}

func TestKnots(t *testing.T) {
	for _, c := range []struct{ values, want []int }{
		{[]int{4, 1, 4, 2}, []int{1, 2, 4}},
		{[]int{9, 8, 7, 6, 5, 4, 3, 2, 1}, []int{1, 2, 3, 4, 5, 6, 7, 9}},
	} {
		got := knots(append([]int(nil), c.values...))
		if len(got) != len(c.want) {
			t.Errorf("%v gives %v", c.values, got)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%v gives %v, want %v", c.values, got, c.want)
				break
			}
		}
	}
}

// Absurd rows and models without rows leave finite costs behind.
func TestCostsStayFinite(t *testing.T) {
	d := synthetic(200, 1)
	d.Models = append(d.Models, training.Model{Name: "unseen", Operators: 3})
	for i := range d.Rows {
		d.Rows[i].Median = 1e-2
		if i%2 == 0 {
			d.Rows[i].Median = training.MaxMicros
		}
		d.Rows[i].Group.Spans = append([]models.Span(nil), d.Rows[i].Group.Spans...)
	}
	cells, err := inferCosts(t.Context(), d.Models, d.Rows, nil, costPriorSets[0], rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	f := features(d, d.Rows, RecipeOurs)
	for i := range cells {
		f.Models[i].Costs = cells[i]
	}
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
}

// Costs are those that the groups were made of, from few rows and none alone.
func TestCostsAreThoseOfTheFormula(t *testing.T) {
	d := synthetic(900, 3)
	grids, err := Costs(t.Context(), d, nil)
	if err != nil {
		t.Fatal(err)
	}
	off, n := 0.0, 0
	for _, r := range d.Rows {
		for _, s := range r.Group.Spans {
			c := grids[s.Service].At(s.Size, s.SeqLen)
			micros, _ := c.Span(s.Start, s.End)
			want := 0.0
			for o := s.Start; o < s.End; o++ {
				want += (100 + 50*math.Sin(float64(o)/3+float64(s.Service))) * (1 + float64(s.Size)/10 + float64(s.SeqLen)/100)
			}
			off, n = off+math.Abs(micros/want-1), n+1
		}
	}
	if off /= float64(n); off > 0.05 {
		t.Errorf("spans alone are off by %.1f %% in the mean", 100*off)
	}
	d.Rows = d.Rows[:3]
	if grids, err = Costs(t.Context(), d, nil); err != nil || len(grids) != len(d.Models) {
		t.Errorf("of three rows: %d grids, %v", len(grids), err)
	}
}

package advice

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// workshop is a device that measures groups of made-up models whose isolated latencies
// and overlaps are known.
type workshop struct {
	*rand.Rand
	models  []training.Model
	micros  [][]float64 // of each operator at batch size 1
	exposed func(a, b int) float64
	noise   float64 // relative
	sizes   int     // batch sizes
}

func newWorkshop(seed uint64, names int) *workshop {
	w := &workshop{Rand: rand.New(rand.NewPCG(seed, 1)), noise: 0.01, sizes: 2}
	for m := range names {
		n := 6 + w.IntN(20)
		w.models = append(w.models, training.Model{Name: fmt.Sprintf("m%02d", m), Operators: n})
		costs := make([]float64, n)
		for i := range costs {
			costs[i] = 100 + 400*w.Float64()
		}
		w.micros = append(w.micros, costs)
	}
	w.exposed = func(a, b int) float64 { return 0.2 }
	return w
}

// newSmallWorkshop has models that are quick to fit: four operators, one batch
// size.
func newSmallWorkshop(seed uint64, names int) *workshop {
	w := newWorkshop(seed, names)
	w.sizes = 1
	for m := range w.models {
		w.models[m].Operators, w.micros[m] = 4, w.micros[m][:4]
	}
	return w
}

func (w *workshop) solo(s models.Span) (micros float64) {
	for _, c := range w.micros[s.Service][s.Start:s.End] {
		micros += c * (1 + 0.5*float64(s.Size-1))
	}
	return micros
}

func (w *workshop) whole(model, size int) float64 {
	return w.solo(models.Span{Service: models.ServiceID(model), End: w.models[model].Operators, Size: size})
}

// measure runs a group: as long as its longest span and the exposed part of
// the others.
func (w *workshop) measure(spans ...models.Span) training.Row {
	sum, most := 0.0, 0.0
	exposed, n := 0.0, 0.0
	for i, s := range spans {
		sum, most = sum+w.solo(s), max(most, w.solo(s))
		for _, o := range spans[:i] {
			exposed += w.exposed(int(o.Service), int(s.Service))
			n++
		}
	}
	took := (most + exposed/max(n, 1)*(sum-most)) * (1 + w.noise*w.NormFloat64())
	return training.Row{Group: models.Group{Spans: spans}, Median: took, Mean: took, Std: took * w.noise}
}

// span is a random span as groups have them: it ends with its model, or starts
// with it.
func (w *workshop) span(model int) models.Span {
	n := w.models[model].Operators
	s := models.Span{Service: models.ServiceID(model), End: n, Size: 1 + w.IntN(w.sizes)}
	if cut := w.IntN(n); w.IntN(2) == 0 {
		s.Start = cut
	} else {
		s.End = cut + 1
	}
	return s
}

// dataset measures so many groups of each of the sets of models.
func (w *workshop) dataset(groups int, sets ...[]int) *training.Dataset {
	d := &training.Dataset{Device: "workshop", Models: w.models}
	for _, set := range sets {
		set = slices.Sorted(slices.Values(set))
		for range groups {
			var spans []models.Span
			for _, m := range set {
				spans = append(spans, w.span(m))
			}
			d.Rows = append(d.Rows, w.measure(spans...))
		}
	}
	return d
}

func allPairs(n int) (pairs [][]int) {
	for b := range n {
		for a := range b {
			pairs = append(pairs, []int{a, b})
		}
	}
	return pairs
}

package advice

import (
	"math"
	"testing"

	"github.com/overlapd/overlapd/training"
)

// near reports whether a value is within a part of what it should be.
func near(got, want, part float64) bool { return math.Abs(got-want) <= part*math.Abs(want) }

func TestMeasuredSoloTimes(t *testing.T) {
	w := newWorkshop(3, 2)
	// Groups always hold both models whole: they do not tell who takes how long.
	d := &training.Dataset{Models: w.models}
	a, b := w.span(0), w.span(1)
	a.Start, a.End, a.Size = 0, w.models[0].Operators, 1
	b.Start, b.End, b.Size = 0, w.models[1].Operators, 1
	for range 20 {
		d.Rows = append(d.Rows, w.measure(a), w.measure(b), w.measure(a, b))
	}
	c, err := newSoloTimes(t.Context(), d, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range c.cells {
		if want := w.whole(cell.key.model, 1); !near(cell.whole(), want, 0.02) || cell.Source != soloMeasured {
			t.Errorf("%v takes %.0f, %s, want %.0f, measured", cell.key, cell.whole(), cell.Source, want)
		}
	}
}

func TestGivenSoloTimes(t *testing.T) {
	w := newWorkshop(4, 2)
	d := w.dataset(200, []int{0, 1})
	c, err := newSoloTimes(t.Context(), d, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	cell := c.cells[cellKey{0, 1, 0}]
	whole, half := cell.whole(), cell.span(0, 3)
	c.give(d, []training.SoloTime{
		{Model: "m00", Size: 1, Micros: 2 * whole},
		{Model: "m00", Size: 64, Micros: 1}, {Model: "foreign", Size: 1, Micros: 1},
	})
	if !near(cell.whole(), 2*whole, 1e-9) || !near(cell.span(0, 3), 2*half, 1e-9) {
		t.Errorf("given twice the time it takes %v and [0, 3) %v, want %v and %v", cell.whole(), cell.span(0, 3), 2*whole, 2*half)
	}
}

// The times of operators determine how a model's time spreads over them. They determine its sum
// only if no span ran alone, and a file of isolated latencies takes precedence.
func TestProfiledSoloTimes(t *testing.T) {
	w := newWorkshop(4, 2)
	d := w.dataset(200, []int{0, 1})
	c, err := newSoloTimes(t.Context(), d, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := w.models[0].Operators
	micros := make([]float64, n)
	for o := range micros {
		micros[o] = float64(100 * (o + 1))
	}
	sum := float64(50 * n * (n + 1))
	inferred, measured := c.cells[cellKey{0, 1, 0}], c.cells[cellKey{0, 2, 0}]
	other := c.cells[cellKey{1, 1, 0}].whole()
	inferred.Source, measured.Source = SoloInferred, soloMeasured
	whole := measured.whole()
	c.spread(d, map[string][]training.OperatorTimes{
		"m00": {{Size: 1, Micros: micros}, {Size: 2, Micros: micros}, {Size: 64, Micros: micros}}, "m01": {{Size: 1, Micros: micros[:1]}}, "foreign": {{Size: 1, Micros: micros}},
	})
	if !near(inferred.whole(), sum, 1e-9) || inferred.Source != SoloProfiled || !near(inferred.span(1, 2), 200, 1e-9) {
		t.Errorf("the operators sum up to %v, %s, want %v; the second takes %v", inferred.whole(), inferred.Source, sum, inferred.span(1, 2))
	}
	if !near(measured.whole(), whole, 1e-9) || measured.Source != soloMeasured || !near(measured.span(1, 2), 200*whole/sum, 1e-9) {
		t.Errorf("a whole that was measured takes %v, %s, want %v; its second operator %v", measured.whole(), measured.Source, whole, measured.span(1, 2))
	}
	if got := c.cells[cellKey{1, 1, 0}].whole(); got != other {
		t.Errorf("the times of another number of operators were taken: %v, was %v", got, other)
	}
	c.give(d, []training.SoloTime{{Model: "m00", Size: 1, Micros: 3 * sum}})
	if !near(inferred.whole(), 3*sum, 1e-9) || inferred.Source != soloGiven || !near(inferred.span(1, 2), 600, 1e-9) {
		t.Errorf("given: %v, %s, its second operator %v", inferred.whole(), inferred.Source, inferred.span(1, 2))
	}
	zero := c.cells[cellKey{1, 1, 0}]
	zero.spread(make([]float64, w.models[1].Operators))
	if zero.whole() != other {
		t.Errorf("operators that take no time were believed")
	}
}

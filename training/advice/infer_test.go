package advice

import (
	"math"
	"testing"

	"github.com/overlapd/overlapd/training"
)

// near tells whether a value is within a part of what it should be.
func near(got, want, part float64) bool { return math.Abs(got-want) <= part*math.Abs(want) }

func TestInferSoloTimes(t *testing.T) {
	w := newWorkshop(1, 4)
	w.exposed = func(a, b int) float64 { return 0.1 * float64(a+b) }
	c, err := newCells(w.dataset(400, allPairs(4)...))
	if err != nil {
		t.Fatal(err)
	}
	c.infer()
	if len(c.list) != 8 {
		t.Fatalf("%d cells, want 4 models at 2 batch sizes", len(c.list))
	}
	for _, cell := range c.list {
		if want := w.whole(cell.key.model, cell.key.size); !near(cell.whole(), want, 0.05) {
			t.Errorf("%v takes %.0f, want %.0f", cell.key, cell.whole(), want)
		}
		if cell.source != SoloInferred {
			t.Errorf("%v is %s, but nothing ran alone", cell.key, cell.source)
		}
	}
	for _, s := range c.sets {
		if want := w.exposed(s.models[0], s.models[1]); math.Abs(s.shape.exposed-want) > 0.07 {
			t.Errorf("%v: exposed %.2f, want %.2f", s.models, s.shape.exposed, want)
		}
	}
}

func TestInferSpans(t *testing.T) {
	w := newWorkshop(2, 3)
	d := w.dataset(600, allPairs(3)...)
	c, err := newCells(d)
	if err != nil {
		t.Fatal(err)
	}
	c.infer()
	off, n := 0.0, 0.0
	for i, r := range c.rows {
		for j, s := range r.spans {
			want := w.solo(d.Rows[i].Group.Spans[j])
			off += math.Abs(s.solo()-want) / want
			n++
		}
	}
	if off/n > 0.06 {
		t.Errorf("spans are off by %.1f %% in the mean", 100*off/n)
	}
}

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
	c, err := newCells(d)
	if err != nil {
		t.Fatal(err)
	}
	c.infer()
	for _, cell := range c.list {
		if want := w.whole(cell.key.model, 1); !near(cell.whole(), want, 0.02) || cell.source != SoloMeasured {
			t.Errorf("%v takes %.0f, %s, want %.0f, measured", cell.key, cell.whole(), cell.source, want)
		}
	}
}

func TestGivenSoloTimes(t *testing.T) {
	w := newWorkshop(4, 2)
	d := w.dataset(200, []int{0, 1})
	c, err := newCells(d)
	if err != nil {
		t.Fatal(err)
	}
	c.infer()
	cell := c.byKey[cellKey{0, 1, 0}]
	whole, half := cell.whole(), cell.span(0, 3)
	fitted := c.give(d, []training.SoloTime{
		{Model: "m00", Size: 1, Micros: 2 * whole},
		{Model: "m00", Size: 64, Micros: 1}, {Model: "foreign", Size: 1, Micros: 1},
	})
	if !near(cell.whole(), 2*whole, 1e-9) || !near(cell.span(0, 3), 2*half, 1e-9) {
		t.Errorf("given twice the time it takes %v and [0, 3) %v, want %v and %v", cell.whole(), cell.span(0, 3), 2*whole, 2*half)
	}
	apart := 0
	for _, s := range c.soloTimes(d, fitted) {
		if s.Apart() {
			apart++
			if s.Model != "m00" || s.Size != 1 || !near(s.Fitted, whole, 1e-9) {
				t.Errorf("%+v differs from the file", s)
			}
		}
	}
	if apart != 1 {
		t.Errorf("%d times differ from the file, want 1", apart)
	}
}

// The times of operators tell how the time spreads; all of it only where nothing
// ran alone; and what a file says of the whole holds all the same.
func TestProfiledSoloTimes(t *testing.T) {
	w := newWorkshop(4, 2)
	d := w.dataset(200, []int{0, 1})
	c, err := newCells(d)
	if err != nil {
		t.Fatal(err)
	}
	c.infer()
	n := w.models[0].Operators
	micros := make([]float64, n)
	for o := range micros {
		micros[o] = float64(100 * (o + 1))
	}
	sum := float64(50 * n * (n + 1))
	inferred, measured := c.byKey[cellKey{0, 1, 0}], c.byKey[cellKey{0, 2, 0}]
	other := c.byKey[cellKey{1, 1, 0}].whole()
	inferred.source, measured.source = SoloInferred, SoloMeasured
	whole := measured.whole()
	c.profile(d, map[string][]training.OperatorTimes{
		"m00": {{Size: 1, Micros: micros}, {Size: 2, Micros: micros}, {Size: 64, Micros: micros}}, "m01": {{Size: 1, Micros: micros[:1]}}, "foreign": {{Size: 1, Micros: micros}},
	})
	if !near(inferred.whole(), sum, 1e-9) || inferred.source != SoloProfiled || !near(inferred.span(1, 2), 200, 1e-9) {
		t.Errorf("the operators sum up to %v, %s, want %v; the second takes %v", inferred.whole(), inferred.source, sum, inferred.span(1, 2))
	}
	if !near(measured.whole(), whole, 1e-9) || measured.source != SoloMeasured || !near(measured.span(1, 2), 200*whole/sum, 1e-9) {
		t.Errorf("a whole that was measured takes %v, %s, want %v; its second operator %v", measured.whole(), measured.source, whole, measured.span(1, 2))
	}
	if got := c.byKey[cellKey{1, 1, 0}].whole(); got != other {
		t.Errorf("the times of another number of operators were taken: %v, was %v", got, other)
	}
	c.give(d, []training.SoloTime{{Model: "m00", Size: 1, Micros: 3 * sum}})
	if !near(inferred.whole(), 3*sum, 1e-9) || inferred.source != SoloGiven || !near(inferred.span(1, 2), 600, 1e-9) {
		t.Errorf("given: %v, %s, its second operator %v", inferred.whole(), inferred.source, inferred.span(1, 2))
	}
	zero := c.byKey[cellKey{1, 1, 0}]
	zero.takes(make([]float64, w.models[1].Operators))
	if zero.whole() != other || zero.profiled {
		t.Errorf("operators that take no time were believed")
	}
}

// TestCover holds the two ways to take a span's time together: from prefix
// sums, and from the pieces that the span covers.
func TestCover(t *testing.T) {
	for _, operators := range []int{1, 5, maxPieces, maxPieces + 1, 200} {
		c := newSoloCell(cellKey{}, operators)
		for p := range c.cost {
			c.cost[p] = float64(1 + p%7)
		}
		c.update()
		x := make([]float64, len(c.cost))
		for start := range operators {
			for end := start + 1; end <= operators; end++ {
				sum := 0.0
				first, last := c.cover(start, end, x)
				for p := first; p < last; p++ {
					sum += x[p] * c.cost[p]
				}
				if !near(c.span(start, end), sum, 1e-9) {
					t.Fatalf("%d operators, [%d, %d): %v and %v", operators, start, end, c.span(start, end), sum)
				}
			}
		}
	}
}

func TestGramStaysPositive(t *testing.T) {
	g := gram{n: 2, a: make([]float64, 4), b: make([]float64, 2)}
	g.add([]float64{1, 0}, 0, 1, 10, 1)
	g.add([]float64{1, 1}, 0, 2, 4, 1) // would make the second -6
	x := []float64{1, 1}
	g.solve(x)
	if !near(x[0], 7, 1e-3) || x[1] != 0 {
		t.Errorf("got %v, want [7 0]", x)
	}
}

package predictor

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

const ms = time.Millisecond

func newSolo(t testing.TB, operators ...int) *Solo {
	t.Helper()
	solo, err := NewSolo(operators...)
	if err != nil {
		t.Fatal(err)
	}
	return solo
}

func set(t testing.TB, solo *Solo, service models.ServiceID, size, seqLen int, each ...time.Duration) {
	t.Helper()
	nanos := make([]int64, len(each))
	for i, d := range each {
		nanos[i] = int64(d)
	}
	if err := solo.SetOperators(service, size, seqLen, nanos); err != nil {
		t.Fatal(err)
	}
}

func observe(t testing.TB, solo *Solo, times int, s models.Span, took time.Duration) {
	t.Helper()
	for range times {
		if err := solo.Observe(s.Service, s.Start, s.End, s.Size, s.SeqLen, took); err != nil {
			t.Fatal(err)
		}
	}
}

// near fails the test if the span's time is not want, within a permille.
func near(t testing.TB, solo *Solo, s models.Span, want time.Duration) {
	t.Helper()
	got, ok := solo.Span(s)
	if !ok || math.Abs(float64(got-want)) > float64(want)/1000 {
		t.Errorf("span %+v: %v, %v; want %v", s, got, ok, want)
	}
}

func span(service models.ServiceID, start, end, size, seqLen int) models.Span {
	return models.Span{Service: service, Start: start, End: end, Size: size, SeqLen: seqLen}
}

func TestSpanOfProfile(t *testing.T) {
	solo := newSolo(t, 2, 3)
	set(t, solo, 1, 1, 0, 1*ms, 2*ms, 4*ms)
	near(t, solo, span(1, 0, 3, 1, 0), 7*ms)
	near(t, solo, span(1, 1, 3, 1, 0), 6*ms)
	near(t, solo, span(1, 1, 2, 1, 0), 2*ms)
	if d, ok := solo.Span(span(0, 0, 2, 1, 0)); ok {
		t.Errorf("a service without measurements takes %v", d)
	}
	set(t, solo, 1, 1, 0, 3*ms, 3*ms, 3*ms)
	near(t, solo, span(1, 0, 3, 1, 0), 9*ms)
}

func TestSpanOutOfRangeIsUnknown(t *testing.T) {
	solo := newSolo(t, 3)
	set(t, solo, 0, 1, 0, ms, ms, ms)
	for _, s := range []models.Span{
		span(-1, 0, 3, 1, 0), span(1, 0, 3, 1, 0), span(0, -1, 3, 1, 0), span(0, 2, 2, 1, 0),
		span(0, 0, 4, 1, 0), span(0, 0, 3, 0, 0), span(0, 0, 3, MaxSize+1, 0), span(0, 0, 3, 1, -1),
		span(0, 0, 3, 1, MaxSeqLen+1),
	} {
		if d, ok := solo.Span(s); ok || d != 0 {
			t.Errorf("span %+v takes %v", s, d)
		}
	}
}

func TestSpanOfUnseenSize(t *testing.T) {
	solo := newSolo(t, 2)
	set(t, solo, 0, 2, 0, 2*ms, 4*ms)
	set(t, solo, 0, 6, 0, 4*ms, 12*ms)
	for size, want := range map[int]time.Duration{
		1: 3 * ms, 2: 6 * ms, 3: 8500 * time.Microsecond, 4: 11 * ms, 6: 16 * ms, 12: 32 * ms,
	} {
		near(t, solo, span(0, 0, 2, size, 0), want)
	}
	near(t, solo, span(0, 1, 2, 4, 0), 8*ms)
}

func TestSpanOfUnseenSeqLen(t *testing.T) {
	solo := newSolo(t, 1)
	set(t, solo, 0, 1, 64, 10*ms)
	set(t, solo, 0, 1, 128, 30*ms)
	set(t, solo, 0, 4, 128, 60*ms)
	near(t, solo, span(0, 0, 1, 1, 32), 5*ms)
	near(t, solo, span(0, 0, 1, 1, 90), 10*ms*90/64)
	near(t, solo, span(0, 0, 1, 1, 96), 30*ms*96/128) // equally near: the longer
	near(t, solo, span(0, 0, 1, 1, 256), 60*ms)
	near(t, solo, span(0, 0, 1, 2, 256), 80*ms) // between sizes 1 and 4 of 128
	near(t, solo, span(0, 0, 1, 4, 64), 40*ms)
}

func TestNewSoloRefusesOperators(t *testing.T) {
	for _, n := range []int{-1, 0, maxOperators + 1} {
		if _, err := NewSolo(3, n); !errors.Is(err, errRange) {
			t.Errorf("%d operators: %v", n, err)
		}
	}
}

func TestSetOperatorsRefuses(t *testing.T) {
	solo := newSolo(t, 2)
	for name, err := range map[string]error{
		"service":  solo.SetOperators(1, 1, 0, []int64{1, 1}),
		"size":     solo.SetOperators(0, 0, 0, []int64{1, 1}),
		"seq len":  solo.SetOperators(0, 1, -1, []int64{1, 1}),
		"too few":  solo.SetOperators(0, 1, 0, []int64{1}),
		"too many": solo.SetOperators(0, 1, 0, []int64{1, 1, 1}),
		"none":     solo.SetOperators(0, 1, 0, nil),
		"negative": solo.SetOperators(0, 1, 0, []int64{1, -1}),
		"absurd":   solo.SetOperators(0, 1, 0, []int64{1, math.MaxInt64}),
	} {
		if !errors.Is(err, errRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := solo.Span(span(0, 0, 2, 1, 0)); ok {
		t.Error("a refused profile is in the table")
	}
}

func TestCellsAreBounded(t *testing.T) {
	solo := newSolo(t, 1)
	for i := range MaxCells {
		set(t, solo, 0, i+1, 0, time.Duration(i+1)*ms)
	}
	if err := solo.SetOperators(0, MaxCells+1, 0, []int64{1}); !errors.Is(err, errRange) {
		t.Errorf("one cell too many: %v", err)
	}
	set(t, solo, 0, 1, 0, 2*ms) // an existing one may still be set
	near(t, solo, span(0, 0, 1, 1, 0), 2*ms)

	// A further size teaches the nearest cell.
	observe(t, solo, 100, span(0, 0, 1, 2*MaxCells, 0), MaxCells*ms)
	near(t, solo, span(0, 0, 1, MaxCells, 0), MaxCells*ms/2)
	near(t, solo, span(0, 0, 1, MaxCells-1, 0), (MaxCells-1)*ms)
	if n := len(solo.services[0].cells); n != MaxCells {
		t.Errorf("%d cells", n)
	}
}

// What was asked before does not hide what is learned afterwards.
func TestSpanIsAskedAgain(t *testing.T) {
	solo := newSolo(t, 1)
	asked := span(0, 0, 1, 4, 0)
	solo.Span(asked)
	set(t, solo, 0, 2, 0, 2*ms)
	near(t, solo, asked, 4*ms)
	set(t, solo, 0, 8, 0, 4*ms)
	near(t, solo, asked, 2*ms+2*ms/3)
	observe(t, solo, settleAfter-1, asked, 3*ms)
	near(t, solo, asked, 2*ms+2*ms/3)
	observe(t, solo, 1, asked, 3*ms)
	near(t, solo, asked, 3*ms)
	s, err := solo.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	s.Cells = s.Cells[:1]
	if err := solo.Restore(0, s); err != nil {
		t.Fatal(err)
	}
	near(t, solo, asked, 4*ms)
}

// TestFurtherSizesKeepTheTable: a service that has all its cells goes on to learn from
// sizes between them. What they take is not in proportion to the nearest cell, as there
// is a part that every batch takes, so that they must be compared with what is
// interpolated, or the table errs the more the more it sees.
func TestFurtherSizesKeepTheTable(t *testing.T) {
	took := func(size int) time.Duration { return time.Duration(54_000*size + 10_546_000) }
	r := rand.New(rand.NewPCG(1, 1))
	solo, err := NewSolo(1)
	if err != nil {
		t.Fatal(err)
	}
	for size := 3; size <= 3*MaxCells; size += 3 {
		if err := solo.SetOperators(0, size, 0, []int64{int64(took(size))}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20_000 {
		size := 3 + r.IntN(3*MaxCells-2)
		noisy := time.Duration(float64(took(size)) * (1 + 0.002*r.NormFloat64()))
		if err := solo.Observe(0, 0, 1, size, 0, noisy); err != nil {
			t.Fatal(err)
		}
	}
	for size := 3; size <= 3*MaxCells; size++ {
		known, _ := solo.Span(models.Span{End: 1, Size: size})
		if off := float64(known)/float64(took(size)) - 1; math.Abs(off) > 0.004 {
			t.Fatalf("a batch of %d takes %v, the table says %v, off %.2f %%", size, took(size), known, 100*off)
		}
	}
}

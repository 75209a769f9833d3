package predictor

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

func TestObserveForgetsColdStart(t *testing.T) {
	solo := newSolo(t, 4)
	whole := span(0, 0, 4, 1, 0)
	observe(t, solo, 1, whole, 900*ms)
	observe(t, solo, settleAfter-2, whole, 8*ms)
	if d, ok := solo.Span(whole); ok {
		t.Fatalf("known before it has settled: %v", d)
	}
	observe(t, solo, 1, whole, 9*ms)
	near(t, solo, whole, 8*ms)
	near(t, solo, span(0, 1, 2, 1, 0), 2*ms) // in equal parts
}

func TestObserveFollowsDrift(t *testing.T) {
	solo := newSolo(t, 2)
	whole := span(0, 0, 2, 1, 0)
	set(t, solo, 0, 1, 0, 2*ms, 6*ms)
	observe(t, solo, 60, whole, 10*ms)
	near(t, solo, whole, 10*ms)
	near(t, solo, span(0, 0, 1, 1, 0), 2500*time.Microsecond) // keeps its fraction
	observe(t, solo, 60, whole, 5*ms)
	near(t, solo, whole, 5*ms)
}

func TestObserveClipsOutliers(t *testing.T) {
	solo := newSolo(t, 1)
	whole := span(0, 0, 1, 1, 0)
	set(t, solo, 0, 1, 0, 8*ms)
	observe(t, solo, 1, whole, time.Minute)
	near(t, solo, whole, 9*ms) // as if it had taken 16 ms, with weight 1/8
	set(t, solo, 0, 1, 0, 8*ms)
	observe(t, solo, 1, whole, 7*ms)
	near(t, solo, whole, 7875*time.Microsecond)
}

func TestObserveGoesDownQuickly(t *testing.T) {
	solo := newSolo(t, 1)
	whole := span(0, 0, 1, 1, 0)
	set(t, solo, 0, 1, 0, 8*ms)
	observe(t, solo, 1, whole, 4*ms)
	near(t, solo, whole, 6*ms) // half the way
	observe(t, solo, 4, whole, 1*ms)
	near(t, solo, whole, 1312500*time.Nanosecond)
}

func TestObservePartialSpan(t *testing.T) {
	solo := newSolo(t, 4)
	set(t, solo, 0, 1, 0, 1*ms, 1*ms, 1*ms, 1*ms)
	for range 500 {
		observe(t, solo, 1, span(0, 0, 1, 1, 0), 1*ms)
		observe(t, solo, 1, span(0, 1, 3, 1, 0), 6*ms)
		observe(t, solo, 1, span(0, 3, 4, 1, 0), 1*ms)
		observe(t, solo, 1, span(0, 0, 4, 1, 0), 8*ms)
	}
	near(t, solo, span(0, 0, 1, 1, 0), 1*ms)
	near(t, solo, span(0, 1, 3, 1, 0), 6*ms)
	near(t, solo, span(0, 3, 4, 1, 0), 1*ms)
	near(t, solo, span(0, 0, 4, 1, 0), 8*ms)
}

// TestObserveTellsTheCutApart: parts that each take half a millisecond longer than their
// operators are known to, whatever their length and batch, and the whole takes what it did.
func TestObserveTellsTheCutApart(t *testing.T) {
	const operators, cut = 10, ms / 2
	solo := newSolo(t, operators)
	for size := 1; size <= 2; size++ {
		set(t, solo, 0, size, 0, slices.Repeat([]time.Duration{time.Duration(size) * ms}, operators)...)
	}
	for i := range 40 {
		from := i % 5
		observe(t, solo, 1, span(0, 2*from, 2*from+2, 1, 0), 2*ms+cut)
		observe(t, solo, 1, span(0, 2, operators, 1, 0), 8*ms+cut)
	}
	for s, want := range map[models.Span]time.Duration{
		span(0, 0, operators, 1, 0): 10 * ms, span(0, 0, operators, 2, 0): 20 * ms,
		span(0, 0, 2, 1, 0): 2*ms + cut, span(0, 0, 5, 2, 0): 10*ms + cut, span(0, 4, operators, 1, 0): 6*ms + cut,
	} {
		if got, _ := solo.Span(s); math.Abs(float64(got-want)) > 0.03*float64(want) {
			t.Errorf("%+v takes %v, want about %v", s, got, want)
		}
	}
	snapshot, _ := solo.Snapshot(0)
	again := newSolo(t, operators)
	if err := again.Restore(0, snapshot); err != nil {
		t.Fatal(err)
	}
	got, _ := again.Span(span(0, 0, 2, 1, 0))
	if want, _ := solo.Span(span(0, 0, 2, 1, 0)); got != want {
		t.Errorf("restored %v, was %v", got, want)
	}
	observe(t, solo, 200, span(0, 0, operators, 1, 0), 12*ms)
	near(t, solo, span(0, 0, operators, 1, 0), 12*ms)
}

func TestObserveSeedsFromOtherCells(t *testing.T) {
	solo := newSolo(t, 2)
	set(t, solo, 0, 1, 0, 1*ms, 3*ms)
	observe(t, solo, settleAfter, span(0, 0, 2, 8, 0), 8*ms)
	near(t, solo, span(0, 0, 1, 8, 0), 2*ms)
	near(t, solo, span(0, 1, 2, 8, 0), 6*ms)
	near(t, solo, span(0, 0, 2, 1, 0), 4*ms)
}

func TestObserveRefuses(t *testing.T) {
	solo := newSolo(t, 2)
	set(t, solo, 0, 1, 0, ms, ms)
	for name, err := range map[string]error{
		"service":   solo.Observe(1, 0, 2, 1, 0, ms),
		"no time":   solo.Observe(0, 0, 2, 1, 0, 0),
		"negative":  solo.Observe(0, 0, 2, 1, 0, -ms),
		"too long":  solo.Observe(0, 0, 2, 1, 0, MaxTime+1),
		"empty":     solo.Observe(0, 1, 1, 1, 0, ms),
		"reversed":  solo.Observe(0, 2, 1, 1, 0, ms),
		"operators": solo.Observe(0, 0, 3, 1, 0, ms),
		"size":      solo.Observe(0, 0, 2, 0, 0, ms),
	} {
		if !errors.Is(err, errRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	near(t, solo, span(0, 0, 2, 1, 0), 2*ms)
}

// Whatever is observed, times stay finite and positive, a span is the sum of
// its parts less a cut for each, and a snapshot restores.
func TestSoloProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const operators = 5
		solo, err := NewSolo(operators)
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.SampledFrom([]int{1, 2, 3, 8, 100, MaxSize})
		seqLen := rapid.SampledFrom([]int{0, 1, 7, 128, MaxSeqLen})
		for range rapid.IntRange(1, 100).Draw(t, "observations") {
			start := rapid.IntRange(0, operators-1).Draw(t, "start")
			end := rapid.IntRange(start+1, operators).Draw(t, "end")
			took := rapid.Int64Range(1, int64(MaxTime)).Draw(t, "took")
			if err := solo.Observe(0, start, end, size.Draw(t, "size"), seqLen.Draw(t, "seq len"), time.Duration(took)); err != nil {
				t.Fatal(err)
			}
		}
		n, l := size.Draw(t, "asked size"), seqLen.Draw(t, "asked seq len")
		whole, known := solo.Span(span(0, 0, operators, n, l))
		if known != (whole > 0) {
			t.Fatalf("known %v, takes %v", known, whole)
		}
		cut := rapid.IntRange(1, operators-1).Draw(t, "cut")
		left, _ := solo.Span(span(0, 0, cut, n, l))
		right, _ := solo.Span(span(0, cut, operators, n, l))
		snapshot, err := solo.Snapshot(0)
		if err != nil {
			t.Fatal(err)
		}
		if known {
			left, right = left-duration(snapshot.Cut), right-duration(snapshot.Cut)
		}
		if sum := min(left+right, maxSpan); math.Abs(float64(sum-whole)) > 3+float64(whole)/1e6 {
			t.Fatalf("parts take %v and %v, the whole %v", left, right, whole)
		}
		again, _ := NewSolo(operators)
		if err := again.Restore(0, snapshot); err != nil {
			t.Fatal(err)
		}
		if d, _ := again.Span(span(0, 0, operators, n, l)); d != whole {
			t.Fatalf("restored table says %v, was %v", d, whole)
		}
	})
}

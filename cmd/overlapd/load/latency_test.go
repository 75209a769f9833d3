package load

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPercentilesAgainstSortedValues(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	l := newLatencies()
	all := make([]time.Duration, 50_000)
	for i := range all {
		all[i] = time.Duration(float64(2*time.Millisecond) * (0.1 + r.ExpFloat64()))
		l.record(all[i])
	}
	slices.Sort(all)
	for _, p := range []float64{1, 50, 90, 99, 99.9, 100} {
		want := all[int(p/100*float64(len(all))+0.5)-1]
		got := l.percentile(p)
		if diff := (got - want).Abs(); diff > want/500 {
			t.Errorf("p%g is %s, want %s", p, got, want)
		}
	}
	if l.max != all[len(all)-1] || l.min != all[0] {
		t.Errorf("from %s to %s, want %s to %s", l.min, l.max, all[0], all[len(all)-1])
	}
}

func TestLatenciesOfNothing(t *testing.T) {
	if got := newLatencies().summary(); got != (latency{}) {
		t.Errorf("%+v, want zeros", got)
	}
}

func TestLatenciesOutOfBounds(t *testing.T) {
	l := newLatencies()
	l.record(-time.Second)
	l.record(maxLatency + time.Hour)
	if l.count() != 2 || l.min != 0 || l.max != maxLatency {
		t.Errorf("%d latencies from %s to %s, want both, within bounds", l.count(), l.min, l.max)
	}
}

func TestMergeEqualsRecordingTogether(t *testing.T) {
	one, two, both := newLatencies(), newLatencies(), newLatencies()
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		both.record(d)
		if i < 500 {
			one.record(d)
		} else {
			two.record(d)
		}
	}
	two.merge(one)
	two.merge(newLatencies())
	if two.summary() != both.summary() || two.min != both.min {
		t.Errorf("%+v, want %+v", two.summary(), both.summary())
	}
}

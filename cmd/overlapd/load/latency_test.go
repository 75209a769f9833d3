package load

import (
	"testing"
	"time"
)

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

package observe

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// A round gains by overlapping what its spans take less than one after another, and
// by merging what its batches take less than their queries. What did not run to its
// end, was not measured or is not known gains nothing.
func TestGain(t *testing.T) {
	const ms = time.Millisecond
	outcome := func(took time.Duration, spans ...models.Status) *executor.Outcome {
		o := &executor.Outcome{Took: took}
		for _, status := range spans {
			s := executor.SpanOutcome{}
			s.Took, s.Status = took-ms, status // a millisecond to wake up
			o.Spans = append(o.Spans, s)
		}
		return o
	}
	const done = models.SpanDone
	for name, tt := range map[string]struct {
		apart Apart
		ran   *executor.Outcome
		want  Gain
	}{
		"overlapped":              {Apart{30 * ms, 30 * ms}, outcome(20*ms, done, done), Gain{Overlap: 10 * ms}},
		"overlapped for nothing":  {Apart{30 * ms, 30 * ms}, outcome(33*ms, done, done), Gain{Overlap: -3 * ms}},
		"merged":                  {Apart{15 * ms, 40 * ms}, outcome(17*ms, done), Gain{Merge: 24 * ms}},
		"both":                    {Apart{30 * ms, 50 * ms}, outcome(20*ms, done, done), Gain{Overlap: 10 * ms, Merge: 20 * ms}},
		"one query, or not known": {Apart{}, outcome(20*ms, done), Gain{}},
		"a worker was lost":       {Apart{30 * ms, 30 * ms}, outcome(20*ms, done, models.SpanLost), Gain{}},
		"stopped before its end":  {Apart{15 * ms, 40 * ms}, outcome(5*ms, models.SpanStopped), Gain{}},
		"the device told no time": {Apart{30 * ms, 30 * ms}, outcome(0, done, done), Gain{}},
		"it could not be sent":    {Apart{30 * ms, 30 * ms}, nil, Gain{}},
	} {
		if got := tt.apart.Gain(tt.ran); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// Of a round that was stopped when its first span had ended, only what ran gains.
func TestGainOfWhatRan(t *testing.T) {
	const ms = time.Millisecond
	ran := &executor.Outcome{Took: 20 * ms, Spans: make([]executor.SpanOutcome, 2)}
	ran.Spans[0].Reached = 9
	ran.Spans[1].Status, ran.Spans[1].Reached = models.SpanStopped, 3
	a := Apart{40 * ms, 80 * ms}
	a.Shorten(10*ms, true)
	if got, want := a.Gain(ran), (Gain{Overlap: 10 * ms, Merge: 30 * ms}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	a.Shorten(0, false)
	if got := a.Gain(ran); got != (Gain{}) {
		t.Errorf("%+v of a part that takes nobody knows how long", got)
	}
}

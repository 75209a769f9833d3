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

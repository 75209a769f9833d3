package query

import (
	"testing"
	"time"
)

// Every reason that the endpoint may give has a reason of Triton.
func TestFailureKinds(t *testing.T) {
	want := map[failureKind][]string{
		failureRejected:  {ReasonQueueFull, ReasonNoMemory, ReasonDraining, ReasonLoading, ReasonGivenUp, ReasonDeadline, ReasonCannotFinish},
		failureCancelled: {ReasonCancelled},
		failureBackend:   {ReasonModelFailed, ReasonWorkerLost, ReasonQuarantined},
		failureOther:     {ReasonInternal, ReasonNotJSON, ReasonInvalid, "another"},
	}
	var s stats
	for kind, reasons := range want {
		for _, r := range reasons {
			s.failed(&Error{Reason: r}, time.Millisecond)
			if got := kindOf(r); got != kind {
				t.Errorf("%s is %s, want %s", r, failureNames[got], failureNames[kind])
			}
		}
	}
	total := uint64(0)
	for _, c := range s.Counts().Failures {
		total += c.Count
	}
	if total != s.Counts().Fail.Count || total != 15 {
		t.Errorf("%d by reason, %d in all", total, s.Counts().Fail.Count)
	}
}

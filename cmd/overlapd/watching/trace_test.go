package watching

import (
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/internal/cli/clitest"
	"github.com/overlapd/overlapd/internal/perfetto"
)

// Rounds that devices of a pool run at the same time are in rows of their own, and a query
// has its arrow to the device that its batch is on.
func TestTraceOfAPool(t *testing.T) {
	var out strings.Builder
	r := recorder{w: perfetto.NewWriter(&out), rows: map[string]int{}, batches: map[uint64]int{}}
	r.w.NameDevice(traceDevice, "devices")
	r.w.NameRow(traceDevice, traceRoundRow, "rounds")
	r.introduce([]timeline.Service{{Name: "a"}})
	for i, device := range []string{"left", "right"} {
		r.round(&timeline.Round{
			Number: uint64(i + 1), Device: device, Start: time.Millisecond, End: 3 * time.Millisecond, Predicted: time.Millisecond,
			Spans: []timeline.Span{{Batch: uint64(i + 1), IDs: []uint64{7}, End: 4, Of: 4, Size: 1, Deadline: 9 * time.Millisecond}},
		})
	}
	r.query(&timeline.Query{ID: 7, Service: "a", Batch: 2, Arrival: time.Microsecond, Started: time.Millisecond, End: 3 * time.Millisecond, Deadline: 9 * time.Millisecond})
	if err := r.w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, fault := range clitest.TraceFaults([]byte(out.String())) {
		t.Error(fault)
	}
	if n := strings.Count(out.String(), `"ph":"f"`); n != 1 || !strings.Contains(out.String(), `"right"`) {
		t.Errorf("%d arrows in\n%s", n, out.String())
	}
}

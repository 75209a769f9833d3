package loop

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// A worker is shown from its first progress until it is ready, lost or removed,
// and one that comes back begins anew.
func TestLoadingStatus(t *testing.T) {
	name, device := func(models.ServiceID) string { return "a" }, func(int) string { return "" }
	begin := time.Now()
	for _, end := range []executor.Event{executor.Event{Kind: executor.WorkerReady, Service: 3}, executor.Event{Kind: executor.WorkerLost, Service: 3}, executor.Event{Kind: executor.WorkerStopped, Service: 3}} {
		g := loading{}
		g.heard(0, &executor.Event{Kind: executor.WorkerProgress, Service: 3, Phase: "read", Total: 1}, begin)
		g.heard(0, &executor.Event{Kind: executor.WorkerProgress, Service: 3, Phase: "load", Done: 2, Total: 9}, begin.Add(time.Second))
		want := status.Loading{Service: "a", Phase: "load", Done: 2, Total: 9, LoadSeconds: 3}
		if got := g.status(name, device, begin.Add(3*time.Second)); len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		g.heard(0, &end, begin)
		if g.active() || len(g.status(name, device, begin)) != 0 {
			t.Errorf("it loads after an event of kind %d", end.Kind)
		}
		g.heard(0, &executor.Event{Kind: executor.WorkerProgress, Service: 3, Phase: "read"}, begin.Add(time.Minute))
		if got := g.status(name, device, begin.Add(time.Minute)); len(got) != 1 || got[0].LoadSeconds != 0 {
			t.Errorf("%+v", got)
		}
	}
}

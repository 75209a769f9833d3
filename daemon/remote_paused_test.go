package daemon

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// A client of gRPC leaves while its query stands between two spans, as it is best
// effort and another service goes first. The query is answered and its worker
// forgets it at once, while the other one's round runs: it is not sent for another
// span first.
func TestRemoteCancelsWhatIsPaused(t *testing.T) {
	slow := fakeworkers.Device{Operator: 5 * time.Second, Overlap: 1} // so a batch of s1 is more than s0 has time for
	r := startRig(t, rigOptions{services: 2, device: &slow, change: func(c *config.Config) {
		c.Services[1].BestEffort, c.Profile.OnStart = true, false
	}})
	r.workers.RunsOn(nil)
	client := serveRemote(t, queriesOf(r.backend, testLimits()), testLimits())
	ctx, leave := context.WithCancel(context.Background()) // no deadline ends it
	defer leave()
	ended := make(chan error, 1)
	go func() {
		_, err := client.ModelInfer(ctx, remoteQuery("s1"))
		ended <- err
	}()
	if s := r.workers.Await(); s.Service != 1 || s.Start != 0 || s.End == fakeworkers.Operators {
		t.Fatalf("%+v is no part of a batch of s1", s)
	}
	other := mustSubmit(t, r.backend, 0)
	r.sync()
	r.workers.End(models.SpanDone)
	r.sync()
	if s := r.workers.Await(); s.Service != 0 {
		t.Fatalf("%+v runs, s0 goes first", s)
	}
	if o, _ := r.backend.FullStatus(); o.Services[1].Paused != 1 || r.workers.Held() != 2 {
		t.Fatalf("%d batches of s1 are paused, workers hold %d", o.Services[1].Paused, r.workers.Held())
	}

	leave()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the client has %v", err)
	}
	eventually(t, "the worker to forget the batch", func() bool { return r.workers.Held() == 1 })
	eventually(t, "its memory to be given back", func() bool { return r.workers.Arena(1).Used() == 0 })
	o, _ := r.backend.FullStatus()
	if s := o.Services[1]; s.Paused != 0 || s.Queued != 0 || s.Cancelled != 1 {
		t.Errorf("%d paused, %d queued, %d cancelled", s.Paused, s.Queued, s.Cancelled)
	}

	r.workers.End(models.SpanDone)
	isServed(t, r.backend, other)
	r.sync()
	if sent := r.workers.Sent(); len(sent) != 2 {
		t.Errorf("further rounds were sent: %v", slices.Clone(sent[2:]))
	}
}

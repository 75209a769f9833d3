package daemon

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// patient returns a context that a test cannot outlast.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// remoteInput is an input of a request.
type remoteInput struct {
	name, datatype string
	shape          []int64
	data           []byte
}

func remoteRequest(model string, inputs ...remoteInput) *inference.ModelInferRequest {
	r := &inference.ModelInferRequest{ModelName: model}
	for _, in := range inputs {
		r.Inputs = append(r.Inputs, &inference.ModelInferRequest_InferInputTensor{Name: in.name, Datatype: in.datatype, Shape: in.shape})
		r.RawInputContents = append(r.RawInputContents, in.data)
	}
	return r
}

// A query of a client that leaves is taken out of the queue, or stopped where
// it runs; no further span of it is sent.
func TestRemoteCancels(t *testing.T) {
	b, f := startLoop(t, 1, nil)
	client := serveRemote(t, queriesOf(b, testLimits()), testLimits())
	q := remoteRequest("s0", remoteInput{"X", "INT32", []int64{1, 16}, make([]byte, 64)})
	leave := make([]context.CancelFunc, 2)
	ended := make([]chan error, 2)
	for i := range ended {
		var ctx context.Context
		ctx, leave[i] = context.WithCancel(patient(t))
		ended[i] = make(chan error, 1)
		go func() {
			_, err := client.ModelInfer(ctx, q)
			ended[i] <- err
		}()
		if i == 0 {
			f.await()
		}
	}
	eventually(t, "the second to be queued", func() bool {
		s, ok := b.FullStatus()
		return ok && s.Services[0].Arrived == 2
	})
	for _, i := range []int{1, 0} {
		leave[i]()
		if err := <-ended[i]; status.Code(err) != codes.Canceled {
			t.Errorf("query %d: %v", i, err)
		}
		left := func() uint64 { return b.Services()[0].Stats.Counts().Fail.Count }
		eventually(t, "the query to end", func() bool { return left() == uint64(2-i) })
	}
	if f.mu.stopped != 1 || f.mu.runs != 1 {
		t.Errorf("%d stops, %d rounds; want one of each", f.mu.stopped, f.mu.runs)
	}
	done := make(chan error, 1)
	go func() {
		_, err := client.ModelInfer(patient(t), q)
		done <- err
	}()
	f.await()
	f.end(models.SpanDone)
	if err := <-done; err != nil {
		t.Errorf("a query after them: %v", err)
	}
}

// An address that cannot be had is told before anything is served, and one
// that is off is none.
func TestRemoteListens(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := emulatedConfig(t, func(c *config.Config) { c.Listen, c.GRPCListen = "127.0.0.1:0", taken.Addr().String() })
	if _, err := New(c, Options{Log: zerolog.Nop(), emulation: formulaEmulation}); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("an address was had twice: %v", err)
	}
	c.GRPCListen = ""
	if d := serveEmulated(t, c); d.GRPCAddr() != nil {
		t.Errorf("off: %v", d.GRPCAddr())
	}
}

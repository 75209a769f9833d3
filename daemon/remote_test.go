package daemon

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// patient returns a context that a test cannot outlast.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// remoteQuery is one query of a service with fake workers.
func remoteQuery(service string) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName:        service,
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{{Name: "X", Datatype: "INT32", Shape: []int64{1, 16}}},
		RawInputContents: [][]byte{make([]byte, 64)},
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

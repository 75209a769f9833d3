package rpc

import (
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// No method that brings one request can be held open by not sending it, and
// those without a token least of all: probes would not be answered any more.
func TestUnsentRequestsEnd(t *testing.T) {
	l := testLimits()
	l.ReadTimeout = 100 * time.Millisecond
	r := start(t, &fake{}, l)
	h, all := newHalves(r), []*half(nil)
	for service, info := range r.server.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			full := "/" + service + "/" + m.Name
			if quiet[full] {
				continue
			}
			for range 3 {
				all = append(all, h.begin(full, 8, 1))
			}
		}
	}
	for range maxStreams {
		all = append(all, h.begin(grpc_health_v1.Health_Check_FullMethodName, 8, 1))
	}
	for _, c := range all {
		select {
		case status := <-c.status:
			if strings.Contains(status, "deadline") { // that of the test
				t.Fatal(status)
			}
		case <-r.context().Done():
			t.Fatal("a call is still open whose request has not come")
		}
	}
	eventually(t, "their memory to be given back", func() bool {
		return r.server.guard.probes.Used() == 0 && r.server.queries.Memory.Used() == 0
	})
	if err := r.call(r.context(), grpc_health_v1.Health_Check_FullMethodName); err != nil {
		t.Errorf("a probe: %v", err)
	}
}

// A stream may be quiet, but not in the middle of a request.
func TestHalfSentInStream(t *testing.T) {
	l := testLimits()
	l.ReadTimeout = 100 * time.Millisecond
	r := start(t, &fake{}, l)
	s := r.stream(r.context())
	send(t, s, typedRequest("1"))
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	h := newHalves(r)
	quiet := r.server.queries.Memory.Used()
	for range 4 {
		h.begin(inference.GRPCInferenceService_ModelStreamInfer_FullMethodName, 1<<20, 1000)
	}
	eventually(t, "requests to have begun", func() bool { return r.server.queries.Memory.Used() >= quiet+4*openBytes })
	eventually(t, "those calls to have ended", func() bool { return r.server.queries.Memory.Used() == quiet })
	send(t, s, typedRequest("2"))
	if a, err := s.Recv(); err != nil || a.InferResponse.Id != "2" {
		t.Errorf("the quiet stream: %v, %v", a, err)
	}
	s.CloseSend()
}

// Streams that are open leave memory to the calls of other connections.
func TestOpenStreamsLeaveRoom(t *testing.T) {
	l := testLimits()
	l.MemoryBytes = 100 * openBytes
	r := start(t, &fake{}, l)
	open := func() error {
		s := r.stream(r.context())
		if err := s.Send(typedRequest("1")); err != nil && err != io.EOF { // why it is over, only Recv says
			return err
		}
		_, err := s.Recv()
		return err
	}
	n := 0
	for ; n < 100 && open() == nil; n++ {
	}
	if n < 40 || n > 50 {
		t.Errorf("one connection may have %d streams open", n)
	}
	other := r.dial()
	defer other.Close()
	r.client = inference.NewGRPCInferenceServiceClient(other)
	if _, err := r.client.ModelInfer(r.context(), typedRequest("1")); err != nil {
		t.Errorf("a call of another connection, meanwhile: %v", err)
	}
	if err := open(); err != nil {
		t.Errorf("a stream of another connection, meanwhile: %v", err)
	}
}

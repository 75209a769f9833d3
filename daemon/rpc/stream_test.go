package rpc

import (
	"context"
	"io"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

func (r *rig) stream(ctx context.Context) inference.GRPCInferenceService_ModelStreamInferClient {
	r.t.Helper()
	s, err := r.client.ModelStreamInfer(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func send(t *testing.T, s inference.GRPCInferenceService_ModelStreamInferClient, q *inference.ModelInferRequest) {
	t.Helper()
	if err := s.Send(q); err != nil {
		t.Error(err)
	}
}

// Answers come in the order of the requests, errors among them.
func TestStreamKeepsOrder(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	s := r.stream(r.context())
	const n = 300
	go func() {
		for i := range n {
			q := typedRequest(strconv.Itoa(i))
			if i%10 == 3 {
				q.Inputs[0].Datatype = "WRONG"
			}
			if i%10 == 4 {
				q.Parameters = named(parameterFinal, true)
			}
			send(t, s, q)
		}
		s.CloseSend()
	}()
	for i := range n {
		a, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if a.InferResponse.GetId() != strconv.Itoa(i) {
			t.Fatalf("answer %d is of %q", i, a.InferResponse.GetId())
		}
		if wrong := i%10 == 3; wrong != (a.ErrorMessage != "") || wrong && a.InferResponse.Parameters[reasonTrailer].GetStringParam() != query.ReasonInvalid {
			t.Errorf("answer %d: %v", i, a)
		}
		if final := i%10 == 4; final != a.InferResponse.Parameters["triton_final_response"].GetBoolParam() {
			t.Errorf("answer %d: %v", i, a)
		}
	}
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("after the last: %v", err)
	}
}

// No more than a bounded number of a stream's queries are at the host, however
// many are sent.
func TestStreamIsBounded(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, testLimits())
	s := r.stream(r.context())
	const n = 3 * maxPending
	go func() {
		for i := range n {
			send(t, s, typedRequest(strconv.Itoa(i)))
		}
		s.CloseSend()
	}()
	eventually(t, "the queries to run", func() bool { n, _, _ := f.counts(); return n == maxPending })
	close(f.hold)
	for range n {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if _, most, all := f.counts(); most > maxPending || all != n {
		t.Errorf("%d of %d queries ran at once", most, all)
	}
}

// A daemon that stops answers what a stream has sent, and ends the stream.
func TestStreamStops(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, testLimits())
	s, quiet := r.stream(r.context()), r.stream(r.context())
	for i := range 5 {
		send(t, s, typedRequest(strconv.Itoa(i)))
	}
	eventually(t, "the queries to run", func() bool { n, _, _ := f.counts(); return n == 5 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop(patience) }()
	<-r.server.stopping
	_, err := quiet.Recv()
	wants(t, "a stream without queries", err, codes.Unavailable, "stopping")
	close(f.hold)
	for i := range 5 {
		if a, err := s.Recv(); err != nil || a.InferResponse.Id != strconv.Itoa(i) {
			t.Fatalf("%v, %v", a, err)
		}
	}
	_, err = s.Recv()
	wants(t, "after the last", err, codes.Unavailable, "stopping")
	if err := <-stopped; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// Streams that come, send and leave at any moment, also of stopping, leave
// nothing behind: what start checks at the end.
func TestStreamsInDisorder(t *testing.T) {
	f := &fake{}
	r := start(t, f, testLimits())
	done := make(chan struct{})
	for i := range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			ctx, cancel := context.WithTimeout(r.context(), time.Duration(i+1)*5*time.Millisecond)
			defer cancel()
			s, err := r.client.ModelStreamInfer(ctx)
			if err != nil {
				return
			}
			go func() {
				for s.Send(typedRequest("x")) == nil {
				}
			}()
			for {
				if _, err := s.Recv(); err != nil {
					return
				}
			}
		}()
	}
	for range 4 {
		<-done
	}
	if err := r.stop(patience); err != nil {
		t.Errorf("stopping: %v", err)
	}
	for range 4 {
		<-done
	}
}

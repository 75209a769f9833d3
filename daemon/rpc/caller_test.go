package rpc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

func TestCallerOf(t *testing.T) {
	if c := CallerOf(context.Background()); c.Method != "" || c.Client != nil || c.Traceparent != nil {
		t.Errorf("outside of a call: %+v", c)
	}
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(
		":authority", "localhost:8001", "user-agent", "a client", "traceparent", "1", "traceparent", "2", "tracestate", "a=1"))
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}})
	c := CallerOf(ctx)
	if c.Authority != "localhost:8001" || c.UserAgent != "a client" || c.Client.String() != "127.0.0.1:7" ||
		!slices.Equal(c.Traceparent, []string{"1", "2"}) || !slices.Equal(c.Tracestate, []string{"a=1"}) {
		t.Errorf("%+v", c)
	}
}

// Every status that a host may return has a name.
func TestCodeName(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "OK"},
		{errors.New("something"), "INTERNAL"},
		{&Fault{Status: http.StatusServiceUnavailable, Reason: reasonDeadline}, "DEADLINE_EXCEEDED"},
		{&Fault{Status: http.StatusServiceUnavailable, Reason: reasonCancelled}, "CANCELLED"},
		{&Fault{Status: http.StatusServiceUnavailable, Reason: "queue_full"}, "UNAVAILABLE"},
		{&Fault{Status: http.StatusBadRequest}, "INVALID_ARGUMENT"},
		{&Fault{Status: http.StatusNotFound}, "NOT_FOUND"},
		{&Fault{Status: http.StatusForbidden}, "PERMISSION_DENIED"},
		{&Fault{Status: http.StatusRequestEntityTooLarge}, "RESOURCE_EXHAUSTED"},
	} {
		if got := CodeName(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

package rpc

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/internal/fakes/fakeca"
)

const testToken = "Bearer 0123456789abcdef-right"

// guarded returns an Access that requires the token.
func guarded(t testing.TB, o access.Options) *access.Access {
	t.Helper()
	o.TokenFile = filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(o.TokenFile, []byte(strings.TrimPrefix(testToken, "Bearer ")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := access.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func with(ctx context.Context, tokens ...string) context.Context {
	for _, token := range tokens {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", token)
	}
	return ctx
}

// call begins a call, sends an empty request, and returns what comes back.
func (r *rig) call(ctx context.Context, method string) error {
	s, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err == nil {
		err = s.SendMsg(&inference.ServerLiveRequest{})
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err == nil || err == io.EOF {
		err = s.RecvMsg(&inference.ServerLiveResponse{})
	}
	return err
}

// No method leads around the token, whether there is such a method or not.
func TestEveryMethodWantsAToken(t *testing.T) {
	r := startGuarded(t, &fake{}, testLimits(), guarded(t, access.Options{}), nil)
	methods := []string{"/inference.GRPCInferenceService/None", "/none.Service/None", "/inference.GRPCInferenceService/serverlive"}
	for service, info := range r.server.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			methods = append(methods, "/"+service+"/"+m.Name)
		}
	}
	open := 0
	for _, m := range methods {
		for name, ctx := range map[string]context.Context{
			"none": r.context(), "wrong": with(r.context(), "Bearer wrong"), "two": with(r.context(), testToken, testToken), "scheme": with(r.context(), strings.TrimPrefix(testToken, "Bearer ")),
		} {
			err := r.call(ctx, m)
			if openMethods[m] {
				open++
				if status.Code(err) == codes.Unauthenticated {
					t.Errorf("%s, %s: %v", m, name, err)
				}
				continue
			}
			wants(t, m+", "+name, err, codes.Unauthenticated, "token")
			if name == "wrong" && strings.Contains(err.Error(), "wrong") {
				t.Errorf("%s: the token is told: %v", m, err)
			}
		}
		if err := r.call(with(r.context(), testToken), m); status.Code(err) == codes.Unauthenticated {
			t.Errorf("%s, with a token: %v", m, err)
		}
	}
	if len(methods) < 14 || open != 4*len(openMethods) {
		t.Errorf("%d methods, %d of them open", len(methods), open/4)
	}
}

// Health is told to everybody, that of a service only to those who may ask.
func TestHealthWithoutAToken(t *testing.T) {
	r := startGuarded(t, &fake{}, testLimits(), guarded(t, access.Options{}), nil)
	c := grpc_health_v1.NewHealthClient(r.conn)
	for _, name := range []string{"", inference.GRPCInferenceService_ServiceDesc.ServiceName} {
		if a, err := c.Check(r.context(), &grpc_health_v1.HealthCheckRequest{Service: name}); err != nil || a.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", name, a, err)
		}
	}
	for _, name := range []string{"echo", "none"} {
		_, err := c.Check(r.context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		wants(t, name, err, codes.Unauthenticated, "token")
	}
	if a, err := c.Check(with(r.context(), testToken), &grpc_health_v1.HealthCheckRequest{Service: "echo"}); err != nil || a.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("with a token: %v, %v", a, err)
	}
}

// A request of somebody who may not ask is refused before it has come.
func TestNoTokenNoRequest(t *testing.T) {
	r := startGuarded(t, &fake{}, testLimits(), guarded(t, access.Options{}), nil)
	s, err := r.conn.NewStream(r.context(), &grpc.StreamDesc{ClientStreams: true}, inference.GRPCInferenceService_ModelInfer_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	wants(t, "no request yet", s.RecvMsg(&inference.ModelInferResponse{}), codes.Unauthenticated, "token")
}

// Calls work over TLS, and connections that do not agree on keys are closed.
func TestTLS(t *testing.T) {
	ca := fakeca.New(t.TempDir())
	var o access.Options
	o.Cert, o.Key = ca.Pair("server", time.Hour)
	f := &fake{hold: make(chan struct{})}
	r := startGuarded(t, f, testLimits(), guarded(t, o), ca.Client(""))
	ctx, cancel := context.WithCancel(with(r.context(), testToken))
	answered := make(chan error, 1)
	go func() {
		_, err := r.client.ModelInfer(ctx, typedRequest("1"))
		answered <- err
	}()
	eventually(t, "the query to run", func() bool { n, _, _ := f.counts(); return n == 1 })
	cancel()
	wants(t, "cancelled", <-answered, codes.Canceled, "")
	eventually(t, "the host to be told", func() bool { n, _, _ := f.counts(); return n == 0 })
	close(f.hold)
	if _, err := r.client.ModelInfer(with(r.context(), testToken), typedRequest("2")); err != nil {
		t.Errorf("the next: %v", err)
	}
	_, err := r.client.ModelInfer(r.context(), typedRequest("3"))
	wants(t, "without a token", err, codes.Unauthenticated, "token")

	for name, begin := range map[string]string{"HTTP/2 in the clear": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP": "GET / HTTP/1.1\r\n\r\n", "noise": "\x16\x03\x01\x00\x05noise"} {
		c, err := net.Dial("tcp", r.address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, begin)
		if b, err := io.ReadAll(c); err != nil && strings.Contains(err.Error(), "timeout") || len(b) > 64 {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		c.Close()
	}
}

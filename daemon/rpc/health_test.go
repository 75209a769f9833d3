//lint:file-ignore SA1019 clients still use the deprecated v1alpha of reflection

package rpc

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
)

func TestHealth(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	c := grpc_health_v1.NewHealthClient(r.conn)
	check := func(name string, want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if a, err := c.Check(r.context(), &grpc_health_v1.HealthCheckRequest{Service: name}); err != nil || a.Status != want {
			t.Errorf("%q: %v, %v", name, a, err)
		}
	}
	for _, name := range []string{"", "inference.GRPCInferenceService", "echo"} {
		check(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	check("absent", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	_, err := c.Check(r.context(), &grpc_health_v1.HealthCheckRequest{Service: "none"})
	wants(t, "none", err, codes.NotFound, "none")
	if l, err := c.List(r.context(), &grpc_health_v1.HealthListRequest{}); err != nil || len(l.Statuses) != 7 || l.Statuses["absent"].Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", l, err)
	}
	r.setDown(true)
	check("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
}

// A watch tells of changes, and ends with the client or the daemon.
func TestHealthWatch(t *testing.T) {
	t.Parallel()
	r := start(t, &fake{}, testLimits())
	c := grpc_health_v1.NewHealthClient(r.conn)
	ctx, cancel := context.WithCancel(r.context())
	w, err := c.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	for _, down := range []bool{false, true, false} {
		r.setDown(down)
		want := serving(!down)
		if a, err := w.Recv(); err != nil || a.Status != want {
			t.Fatalf("%v, %v; want %v", a, err, want)
		}
	}
	cancel()
	_, err = w.Recv()
	wants(t, "after the client disconnected", err, codes.Canceled, "")

	w, err = c.Watch(r.context(), &grpc_health_v1.HealthCheckRequest{Service: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := w.Recv(); err != nil || a.Status != grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Errorf("%v, %v", a, err)
	}
	if err := r.stop(patience); err != nil {
		t.Error(err)
	}
	_, err = w.Recv()
	wants(t, "after the daemon stopped", err, codes.Unavailable, "stopping")
}

// Tools find the service by both versions of reflection, and cannot hold up a
// daemon that stops.
func TestReflection(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	v1, err := reflectionv1.NewServerReflectionClient(r.conn).ServerReflectionInfo(r.context())
	if err != nil {
		t.Fatal(err)
	}
	if err := v1.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	a, err := v1.Recv()
	if err != nil || !strings.Contains(a.String(), "inference.GRPCInferenceService") || !strings.Contains(a.String(), "grpc.health.v1.Health") {
		t.Errorf("%v, %v", a, err)
	}
	alpha, err := reflectionv1alpha.NewServerReflectionClient(r.conn).ServerReflectionInfo(r.context())
	if err != nil {
		t.Fatal(err)
	}
	request := &reflectionv1alpha.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "inference.GRPCInferenceService"}
	if err := alpha.Send(&reflectionv1alpha.ServerReflectionRequest{MessageRequest: request}); err != nil {
		t.Fatal(err)
	}
	if a, err := alpha.Recv(); err != nil || len(a.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("%v, %v", a, err)
	}
	if err := r.stop(patience); err != nil {
		t.Error(err)
	}
	_, err = v1.Recv()
	wants(t, "after the daemon stopped", err, codes.Unavailable, "stopping")
}

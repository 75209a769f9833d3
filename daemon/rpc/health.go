package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// watchInterval is how often a watched health is looked at.
const watchInterval = time.Second

// health serves grpc.health.v1: the daemon, under the empty name and that of
// the protocol's service, and each service under its own.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	queries  *query.Server
	guard    *guard
	stopping <-chan struct{}
}

// of returns how a name stands.
func (h health) of(name string) grpc_health_v1.HealthCheckResponse_ServingStatus {
	if whole(name) {
		return serving(h.queries.Ready())
	}
	s, err := find(h.queries, name, "")
	if err != nil {
		return grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
	}
	return serving(s.Ready())
}

func serving(ready bool) grpc_health_v1.HealthCheckResponse_ServingStatus {
	if ready {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}

// whole reports whether a name is that of the daemon.
func whole(name string) bool {
	return name == "" || name == inference.GRPCInferenceService_ServiceDesc.ServiceName
}

// Check returns how a name stands, and NOT_FOUND if there is none such. How a
// service stands is not told to those who may not ask.
func (h health) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !whole(r.Service) {
		if fault := h.guard.allows(ctx); fault != nil {
			return nil, fail(ctx, fault)
		}
	}
	now := h.of(r.Service)
	if now == grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", query.Cut(r.Service))
	}
	return &grpc_health_v1.HealthCheckResponse{Status: now}, nil
}

// List returns how all names stand.
func (h health) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	all := map[string]*grpc_health_v1.HealthCheckResponse{"": {Status: h.of("")}}
	for _, s := range h.queries.Services() {
		all[s.Name] = &grpc_health_v1.HealthCheckResponse{Status: serving(s.Ready())}
	}
	return &grpc_health_v1.HealthListResponse{Statuses: all}, nil
}

// Watch sends how a name stands, now and whenever that changes.
func (h health) Watch(r *grpc_health_v1.HealthCheckRequest, w grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	arrived(w.Context())
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for last := grpc_health_v1.HealthCheckResponse_UNKNOWN; ; {
		if now := h.of(r.Service); now != last {
			if err := w.Send(&grpc_health_v1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-tick.C:
		case <-h.stopping:
			return statusOf(query.ErrDraining)
		case <-w.Context().Done():
			return status.FromContextError(w.Context().Err()).Err()
		}
	}
}

// reflectors describe to tools what is served. A tool may hold its call open for as
// long as it likes, so theirs end when the daemon stops.
type reflectors struct {
	v1      reflectorV1
	v1alpha reflectorV1Alpha
}

type reflectorV1 struct {
	reflectionv1.ServerReflectionServer
	stopping <-chan struct{}
}

type reflectorV1Alpha struct {
	reflectionv1alpha.ServerReflectionServer
	stopping <-chan struct{}
}

func newReflectors(s reflection.ServiceInfoProvider, stopping <-chan struct{}) reflectors {
	o := reflection.ServerOptions{Services: s}
	return reflectors{
		v1:      reflectorV1{reflection.NewServerV1(o), stopping},
		v1alpha: reflectorV1Alpha{reflection.NewServer(o), stopping},
	}
}

func (r reflectorV1) ServerReflectionInfo(g reflectionv1.ServerReflection_ServerReflectionInfoServer) error {
	return untilStop(r.stopping, func() error { return r.ServerReflectionServer.ServerReflectionInfo(g) })
}

func (r reflectorV1Alpha) ServerReflectionInfo(g reflectionv1alpha.ServerReflection_ServerReflectionInfoServer) error {
	return untilStop(r.stopping, func() error { return r.ServerReflectionServer.ServerReflectionInfo(g) })
}

// untilStop returns when serve does or the daemon stops. In the second case
// serve ends soon after, because its call has.
func untilStop(stopping <-chan struct{}, serve func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- serve() }()
	select {
	case err := <-ended:
		return err
	case <-stopping:
		return statusOf(query.ErrDraining)
	}
}

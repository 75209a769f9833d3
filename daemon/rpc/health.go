package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// watchInterval is how often the health of a watched service is polled.
const watchInterval = time.Second

// health implements grpc.health.v1. The empty name and the name of the protocol's service
// stand for the daemon; every other name is that of a service.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	queries *query.Server
	guard   *guard
}

// of returns the health of a name.
func (h health) of(name string) grpc_health_v1.HealthCheckResponse_ServingStatus {
	if whole(name) {
		return serving(h.queries.NotReady() == nil)
	}
	s, err := find(h.queries, name, "")
	if err != nil {
		return grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
	}
	return serving(s.Ready())
}

// serving converts readiness to a status.
func serving(ready bool) grpc_health_v1.HealthCheckResponse_ServingStatus {
	if ready {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}

// whole reports whether a name stands for the daemon.
func whole(name string) bool {
	return name == "" || name == inference.GRPCInferenceService_ServiceDesc.ServiceName
}

// Check returns the health of a name, or NOT_FOUND if there is no such service. Single
// services need a token: their names and states are not public.
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

// List returns the health of the daemon and of all services. It needs a token, like every
// method but Check.
func (h health) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	all := map[string]*grpc_health_v1.HealthCheckResponse{"": {Status: h.of("")}}
	for _, s := range h.queries.Services() {
		all[s.Name] = &grpc_health_v1.HealthCheckResponse{Status: serving(s.Ready())}
	}
	return &grpc_health_v1.HealthListResponse{Statuses: all}, nil
}

// Watch sends the health of a name, now and whenever it changes. An unknown name is
// reported as SERVICE_UNKNOWN, because it may appear later.
func (h health) Watch(r *grpc_health_v1.HealthCheckRequest, w grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
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
		case <-w.Context().Done():
			return status.FromContextError(w.Context().Err()).Err()
		}
	}
}

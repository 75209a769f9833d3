// Package rpc serves the Open Inference Protocol over gRPC. Its [Server] reads a
// request into a [query.Call] and writes the answer; what becomes of the query in
// between is package query's. Health checks (grpc.health.v1) and reflection are
// served beside it. Only package daemon makes one.
//
// # Contents of tensors
//
// A request brings its tensors all as raw bytes or all as typed contents; FP16 and
// BF16 have no typed form. The answer is always raw, as Triton's is: typed contents
// would take up to sixteen times the memory of the outputs.
//
// # Limits
//
// What has come of a request, what it takes once it is decoded, and what a call may
// hold besides are accounted before they are taken, so that few bytes cannot become
// many objects, and held to limits.memory_bytes together with HTTP. So are answers:
// their memory is reserved before they are written, until clients have taken them.
// What arrives takes from the share that its connection has of that memory, so that
// clients that stall leave memory to all others. Connections, calls of a connection and
// queries of a stream have limits of their own.
package rpc

import (
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // for clients that compress
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// Limits on what a client may keep busy, besides those of the configuration.
const (
	// maxStreams is how many calls one connection may have open.
	maxStreams = 128

	// callWorkers is how many goroutines are kept for calls. A new one for each call
	// would grow its stack anew each time; more calls than these at once get one.
	callWorkers = 64

	// handshakeTime is for a new connection to say that it speaks HTTP/2.
	handshakeTime = 10 * time.Second

	// pingLeast is how often a client may ping us.
	pingLeast = 5 * time.Second
)

// Server serves the protocol.
type Server struct {
	queries  *query.Server
	limits   config.Limits
	guard    *guard
	grpc     *grpc.Server
	stopping chan struct{} // closed when no further request is read
	stop     sync.Once
}

// New returns a server that listens nowhere yet. Without access, everybody is let
// in, and nothing is encrypted.
func New(q *query.Server, l config.Limits, a *access.Access) *Server {
	s := &Server{queries: q, limits: l, stopping: make(chan struct{}), guard: &guard{
		access: a, unsent: &unsent{timeout: l.ReadTimeout},
		probes: q.Connections.Memory(probeBytes), reflections: q.Memory.Part(q.Memory.Limit() / reflectionShare),
	}}
	s.guard.unsent.mu.expected = make(map[*hurry]bool)
	secure := insecure.NewCredentials()
	if config := a.TLS("h2"); config != nil {
		secure = credentials.NewTLS(config)
	}
	s.grpc = grpc.NewServer(
		grpc.Creds(linking{secure}),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.UnknownServiceHandler(s.guard.unknown),
		grpc.MaxRecvMsgSize(controlBytes),
		grpc.StaticStreamWindowSize(windowBytes),
		grpc.StaticConnWindowSize(connWindowBytes),
		grpc.MaxHeaderListSize(uint32(l.HeaderBytes)),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(callWorkers),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: l.IdleTimeout, Time: math.MaxInt64}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingLeast, PermitWithoutStream: true}),
		grpc.InTapHandle(s.guard.hurry),
	)
	answers := &answerer{queries: q, guard: s.guard, most: l.RequestBytes, stopping: s.stopping}
	s.register(serviceDesc(answers), protocol{queries: q})
	s.register(s.untilStop(grpc_health_v1.Health_ServiceDesc), health{queries: q, guard: s.guard})
	if q.Load != nil {
		s.register(s.untilStop(orcaservice.OpenRcaService_ServiceDesc), loads{queries: q})
	}
	o := reflection.ServerOptions{Services: s.grpc}
	s.register(s.untilStop(reflectionv1.ServerReflection_ServiceDesc), reflection.NewServerV1(o))
	s.register(s.untilStop(reflectionv1alpha.ServerReflection_ServiceDesc), reflection.NewServer(o))
	return s
}

// untilStop returns a description whose streams end when the daemon stops. Clients
// may hold them open for as long as they like. What serves one ends soon after it,
// because its call has.
func (s *Server) untilStop(d grpc.ServiceDesc) grpc.ServiceDesc {
	d.Streams = slices.Clone(d.Streams)
	for i := range d.Streams {
		serve := d.Streams[i].Handler
		d.Streams[i].Handler = func(service any, call grpc.ServerStream) error {
			ended := make(chan error, 1)
			go func() { ended <- serve(service, call) }()
			select {
			case err := <-ended:
				return err
			case <-s.stopping:
				return statusOf(query.ErrDraining)
			}
		}
	}
	return d
}

// register serves what d describes, behind the guard.
func (s *Server) register(d grpc.ServiceDesc, service any) {
	s.grpc.RegisterService(s.guard.entered(d), service)
}

// Serve answers the connections of ln until Shutdown.
func (s *Server) Serve(ln net.Listener) error {
	err := s.grpc.Serve(&listener{
		Listener: ln, places: s.queries.Connections, writeTimeout: s.limits.WriteTimeout,
		memory: s.queries.Memory, probes: s.guard.probes,
	})
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting, waits until the queries that were read are
// answered or ctx ends, and closes every connection.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() {
		close(s.stopping)
		s.guard.unsent.stop()
	})
	ended := make(chan struct{})
	go func() {
		s.grpc.GracefulStop() // it waits for what the host still owes, however long
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		return ctx.Err()
	}
}

// serviceDesc is the generated description of the service with readers of
// requests that count before they decode.
func serviceDesc(a *answerer) grpc.ServiceDesc {
	d := inference.GRPCInferenceService_ServiceDesc
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	infer := slices.IndexFunc(d.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == "ModelInfer" })
	d.Methods[infer].Handler = a.modelInfer
	stream := slices.IndexFunc(d.Streams, func(m grpc.StreamDesc) bool { return m.StreamName == "ModelStreamInfer" })
	d.Streams[stream].Handler = func(_ any, g grpc.ServerStream) error { return serveStream(a, g) }
	return d
}

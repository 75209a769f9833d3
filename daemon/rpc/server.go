// Package rpc serves the Open Inference Protocol (KServe V2) over gRPC, together with
// health checks (grpc.health.v1), load reports (ORCA) and reflection. Its [Server] decodes
// a request into a [query.Call] and encodes the response; package query runs the query in
// between. Only package daemon creates servers.
//
// # Contents of tensors
//
// A request has all its tensors as raw bytes, or all as typed contents; FP16 and BF16 have
// no typed form. The response is always raw, like Triton's: typed contents would take up to
// sixteen times the memory.
//
// # Limits
//
// All memory is accounted before it is taken, and limited by limits.memory_bytes together
// with that of HTTP. That covers the bytes of a request as they arrive, the decoded
// request, what an open call holds, and the response until the client has taken it. A few
// bytes thus cannot become many objects.
//
// Arriving bytes count against the connection's share of that memory, so stalled clients
// leave memory to all others. Connections, concurrent calls of a connection, and queries of
// a stream have limits of their own.
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
	"github.com/overlapd/overlapd/daemon/text"
)

// Limits on what a client may keep busy, besides those of the configuration.
const (
	// maxStreams is the number of concurrent calls of a connection.
	maxStreams = 128

	// callWorkers is the number of goroutines that are kept for calls. Reusing them avoids
	// growing a new stack for each call; calls beyond this number get a goroutine of their
	// own.
	callWorkers = 64

	// handshakeTime is how long a new connection may take to begin HTTP/2.
	handshakeTime = 10 * time.Second

	// pingLeast is the minimum interval between pings of a client.
	pingLeast = 5 * time.Second
)

// Server serves the protocol over gRPC. New creates one, Serve answers connections, and
// Shutdown stops it.
type Server struct {
	queries *query.Server
	limits  config.Limits
	guard   *guard
	grpc    *grpc.Server

	// stopping is closed when no further requests are read.
	stopping chan struct{}
	stop     sync.Once
}

// New returns a server. Requests of texts are answered by t. With a nil access it lets everybody in,
// without TLS.
func New(q *query.Server, t *text.Server, l config.Limits, a *access.Access) *Server {
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
	answers := &answerer{queries: q, texts: t, guard: s.guard, most: l.RequestBytes, stopping: s.stopping}
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

// untilStop returns a description whose streams end when the daemon stops. Clients may hold
// them open for as long as they like, which would delay stopping. The handler of a stream
// ends soon after, because its context is cancelled.
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

// register adds a service behind the guard.
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

// Shutdown stops accepting and waits until the queries that were read are answered or ctx
// is done, then closes every connection.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() {
		close(s.stopping)
		s.guard.unsent.stop()
	})
	ended := make(chan struct{})
	go func() {
		s.grpc.GracefulStop() // waits for pending answers, however long
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

// serviceDesc returns the generated description of the service with handlers for inference
// that account for memory before they decode.
func serviceDesc(a *answerer) grpc.ServiceDesc {
	d := inference.GRPCInferenceService_ServiceDesc
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	infer := slices.IndexFunc(d.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == "ModelInfer" })
	d.Methods[infer].Handler = a.modelInfer
	stream := slices.IndexFunc(d.Streams, func(m grpc.StreamDesc) bool { return m.StreamName == "ModelStreamInfer" })
	d.Streams[stream].Handler = func(_ any, g grpc.ServerStream) error { return serveStream(a, g) }
	return d
}

package rpc

import (
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/overlapd/overlapd/daemon/query"
)

// reflectors tell tools what is served. A tool may hold its call open for as
// long as it likes, so theirs end when the daemon stops.
type reflectors struct {
	v1      reflectorV1
	v1alpha reflectorV1Alpha
}

type reflectorV1 struct {
	reflectionv1.ServerReflectionServer
	server *Server
}

type reflectorV1Alpha struct {
	reflectionv1alpha.ServerReflectionServer
	server *Server
}

func newReflectors(s *Server) reflectors {
	o := reflection.ServerOptions{Services: s.grpc}
	return reflectors{
		v1:      reflectorV1{reflection.NewServerV1(o), s},
		v1alpha: reflectorV1Alpha{reflection.NewServer(o), s},
	}
}

func (r reflectorV1) ServerReflectionInfo(g reflectionv1.ServerReflection_ServerReflectionInfoServer) error {
	return r.server.untilStop(func() error { return r.ServerReflectionServer.ServerReflectionInfo(g) })
}

func (r reflectorV1Alpha) ServerReflectionInfo(g reflectionv1alpha.ServerReflection_ServerReflectionInfoServer) error {
	return r.server.untilStop(func() error { return r.ServerReflectionServer.ServerReflectionInfo(g) })
}

// untilStop returns when serve does or the daemon stops. In the second case
// serve ends soon after, because its call has.
func (s *Server) untilStop(serve func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- serve() }()
	select {
	case err := <-ended:
		return err
	case <-s.stopping:
		return statusOf(query.ErrDraining)
	}
}

package rpc

import (
	"context"
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// protocol answers what the protocol and the extensions of Triton ask besides
// inference. Dimensions in a configuration are without that of the batch, where there
// is one.
type protocol struct {
	inference.UnimplementedGRPCInferenceServiceServer
	queries *query.Server
}

// find returns a service, whose version may be "".
func find(q *query.Server, name, version string) (*query.Service, *query.Error) {
	var v []byte
	if version != "" {
		v = []byte(version)
	}
	return q.Find([]byte(name), v)
}

// loaded returns a service whose model is known.
func (s protocol) loaded(name, version string) (*query.Service, *query.Signature, *query.Error) {
	v, err := find(s.queries, name, version)
	if err != nil {
		return nil, nil, err
	}
	sig := v.Signature()
	if sig == nil {
		return nil, nil, v.NotReady()
	}
	return v, sig, nil
}

func (s protocol) ServerLive(context.Context, *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	return &inference.ServerLiveResponse{Live: s.queries.Live()}, nil
}

func (s protocol) ServerReady(context.Context, *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	return &inference.ServerReadyResponse{Ready: s.queries.NotReady() == nil}, nil
}

func (s protocol) ModelReady(ctx context.Context, r *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	v, err := find(s.queries, r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	return &inference.ModelReadyResponse{Ready: v.Ready()}, nil
}

func (s protocol) ServerMetadata(context.Context, *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	return described(&inference.ServerMetadataResponse{}, s.queries.Metadata())
}

func (s protocol) ModelMetadata(ctx context.Context, r *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	v, sig, err := s.loaded(r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	return described(&inference.ModelMetadataResponse{}, v.Metadata(sig))
}

func (s protocol) ModelConfig(ctx context.Context, r *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	v, sig, err := s.loaded(r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	c, failed := described(&inference.ModelConfig{}, v.Config(sig))
	return &inference.ModelConfigResponse{Config: c}, failed
}

func (s protocol) ModelStatistics(ctx context.Context, r *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	list := s.queries.Services()
	if r.Name != "" {
		v, err := find(s.queries, r.Name, r.Version)
		if err != nil {
			return nil, fail(ctx, err)
		}
		list = []*query.Service{v}
	}
	return described(&inference.ModelStatisticsResponse{}, query.Statistics(list...))
}

func (s protocol) RepositoryIndex(ctx context.Context, r *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	if r.RepositoryName != "" {
		return nil, fail(ctx, query.NotFound("there is no repository %q: leave the name empty", query.Cut(r.RepositoryName)))
	}
	list := slices.Clone(s.queries.Services())
	if r.Ready {
		list = slices.DeleteFunc(list, func(v *query.Service) bool { return !v.Ready() })
	}
	return described(&inference.RepositoryIndexResponse{}, map[string]any{"models": query.Index(list)})
}

// described returns a message filled with what HTTP says in fields of the same names.
func described[M proto.Message](m M, from any) (M, error) {
	text, err := json.Marshal(from)
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
	}
	return m, err
}

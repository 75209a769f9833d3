package rpc

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// protocol implements the calls of the V2 protocol and Triton's extensions besides
// inference. It describes services with the same values as daemon/http, see
// [query.Server.ModelMetadata].
type protocol struct {
	inference.UnimplementedGRPCInferenceServiceServer
	queries *query.Server
}

// find returns a service by name and version. An empty version means the highest.
func find(q *query.Server, name, version string) (*query.Service, *query.Error) {
	var v []byte
	if version != "" {
		v = []byte(version)
	}
	return q.Find([]byte(name), v)
}

// loaded returns a service whose model is known, and its signature. It fails while the
// model is loading.
func (s protocol) loaded(name, version string) (*query.Service, *query.Signature, *query.Error) {
	v, err := find(s.queries, name, version)
	if err != nil {
		return nil, nil, err
	}
	sig, err := v.Known()
	return v, sig, err
}

// ServerLive reports whether the scheduler goroutine makes progress.
func (s protocol) ServerLive(context.Context, *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	return &inference.ServerLiveResponse{Live: s.queries.Live()}, nil
}

// ServerReady reports whether the daemon is ready.
func (s protocol) ServerReady(context.Context, *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	return &inference.ServerReadyResponse{Ready: s.queries.NotReady() == nil}, nil
}

// ModelReady reports whether a service has a running worker.
func (s protocol) ModelReady(ctx context.Context, r *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	v, err := find(s.queries, r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	return &inference.ModelReadyResponse{Ready: v.Ready()}, nil
}

// ServerMetadata returns the name, version and extensions of the daemon.
func (s protocol) ServerMetadata(context.Context, *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	return described(&inference.ServerMetadataResponse{}, s.queries.Metadata())
}

// ModelMetadata returns the inputs and outputs of a service.
func (s protocol) ModelMetadata(ctx context.Context, r *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	v, sig, err := s.loaded(r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	return described(&inference.ModelMetadataResponse{}, s.queries.ModelMetadata(v, sig))
}

// ModelConfig returns the configuration of a service in Triton's form.
func (s protocol) ModelConfig(ctx context.Context, r *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	v, sig, err := s.loaded(r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	c, failed := described(&inference.ModelConfig{}, s.queries.ModelConfig(v, sig))
	return &inference.ModelConfigResponse{Config: c}, failed
}

// ModelStatistics returns the statistics of one version of a model, of all its versions, or
// of all models if no name is given.
func (s protocol) ModelStatistics(ctx context.Context, r *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	list := s.queries.Services()
	if r.Name != "" {
		v, err := find(s.queries, r.Name, r.Version)
		if err != nil {
			return nil, fail(ctx, err)
		}
		if list = []*query.Service{v}; r.Version == "" {
			list = s.queries.Versions(query.ModelOf(v.Name))
		}
	}
	return described(&inference.ModelStatisticsResponse{}, query.Statistics(list...))
}

// RepositoryIndex lists the services. There is one repository, whose name is empty.
func (s protocol) RepositoryIndex(ctx context.Context, r *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	if r.RepositoryName != "" {
		return nil, fail(ctx, notOfThisRepository(r.RepositoryName))
	}
	return described(&inference.RepositoryIndexResponse{}, map[string]any{"models": query.Index(s.queries.Services(), r.Ready)})
}

// RepositoryModelLoad loads all versions of a model.
func (s protocol) RepositoryModelLoad(ctx context.Context, r *inference.RepositoryModelLoadRequest) (*inference.RepositoryModelLoadResponse, error) {
	name, err := s.change(ctx, r, true)
	return &inference.RepositoryModelLoadResponse{ModelName: name, IsLoaded: true}, err
}

// RepositoryModelUnload unloads all versions of a model.
func (s protocol) RepositoryModelUnload(ctx context.Context, r *inference.RepositoryModelUnloadRequest) (*inference.RepositoryModelUnloadResponse, error) {
	name, err := s.change(ctx, r, false)
	return &inference.RepositoryModelUnloadResponse{ModelName: name, IsUnloaded: true}, err
}

// notOfThisRepository returns the error for a repository other than the one there is, whose
// name is empty.
func notOfThisRepository(name string) *query.Error {
	return query.NotFound("there is no repository %q: leave the name empty", query.Cut(name))
}

// modelChange is a request to load or unload a model.
type modelChange interface {
	GetRepositoryName() string
	GetModelName() string
	GetParameters() map[string]*inference.ModelRepositoryParameter
}

// change loads or unloads a model and returns its name. KServe's message has the name where
// Triton's has the repository.
func (s protocol) change(ctx context.Context, r modelChange, load bool) (name string, err error) {
	name = r.GetModelName()
	switch repository := r.GetRepositoryName(); {
	case name == "":
		name = repository
	case repository != "":
		return "", fail(ctx, notOfThisRepository(repository))
	}
	if err := s.queries.Change(ctx, name, load, slices.Sorted(maps.Keys(r.GetParameters()))); err != nil {
		return "", fail(ctx, err)
	}
	return name, nil
}

// described fills a message from a value for HTTP by way of JSON, since their fields have
// the same names. These calls are rare, so the detour costs nothing.
func described[M proto.Message](m M, from any) (M, error) {
	text, err := json.Marshal(from)
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
	}
	return m, err
}

package rpc

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// States of a model in the index of the repository.
const (
	stateReady       = "READY"
	stateUnavailable = "UNAVAILABLE"
)

func notFound(format string, args ...any) *Fault {
	return &Fault{Status: http.StatusNotFound, Reason: reasonNotFound, Message: fmt.Sprintf(format, args...)}
}

// model returns a service as it is now.
func (s *Server) model(name, version string) (Model, *Fault) {
	for _, m := range s.host.Models() {
		if m.Name == name {
			return m, m.versionOf(version)
		}
	}
	return Model{}, notFound("unknown model %q", cut(name))
}

// loaded returns a service whose model is known.
func (s *Server) loaded(name, version string) (Model, *Fault) {
	m, fault := s.model(name, version)
	if fault == nil && !m.Loaded {
		fault = unavailable(reasonLoading, "the service is not ready")
	}
	return m, fault
}

// ServerLive implements the protocol.
func (s *Server) ServerLive(context.Context, *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	return &inference.ServerLiveResponse{Live: s.host.Live()}, nil
}

// ServerReady implements the protocol.
func (s *Server) ServerReady(context.Context, *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	return &inference.ServerReadyResponse{Ready: s.host.Ready()}, nil
}

// ModelReady implements the protocol.
func (s *Server) ModelReady(ctx context.Context, r *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	m, fault := s.model(r.Name, r.Version)
	if fault != nil {
		return nil, fail(ctx, fault)
	}
	return &inference.ModelReadyResponse{Ready: m.Ready}, nil
}

// ServerMetadata implements the protocol.
func (s *Server) ServerMetadata(context.Context, *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	i := s.host.Identity()
	return &inference.ServerMetadataResponse{Name: i.Name, Version: i.Version, Extensions: i.Extensions}, nil
}

// ModelMetadata implements the protocol.
func (s *Server) ModelMetadata(ctx context.Context, r *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	m, fault := s.loaded(r.Name, r.Version)
	if fault != nil {
		return nil, fail(ctx, fault)
	}
	return &inference.ModelMetadataResponse{
		Name: m.Name, Versions: []string{m.Version}, Platform: m.Platform,
		Inputs: tensors(m.Inputs), Outputs: tensors(m.Outputs),
	}, nil
}

func tensors(ports []query.Port) (list []*inference.ModelMetadataResponse_TensorMetadata) {
	for i := range ports {
		p := &ports[i]
		list = append(list, &inference.ModelMetadataResponse_TensorMetadata{Name: p.Name, Datatype: p.Type.Protocol(), Shape: shapeOf(p, 0)})
	}
	return list
}

// shapeOf returns the dimensions from one on, or what stands for any rank.
func shapeOf(p *query.Port, from int) []int64 {
	if p.AnyRank {
		return []int64{-1}
	}
	return p.Dims[from:]
}

// ModelConfig implements Triton's extension. Dimensions are without that of
// the batch, where there is one.
func (s *Server) ModelConfig(ctx context.Context, r *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	m, fault := s.loaded(r.Name, r.Version)
	if fault != nil {
		return nil, fail(ctx, fault)
	}
	c := &inference.ModelConfig{
		Name: m.Name, Platform: m.Platform, Backend: strings.TrimSuffix(m.Platform, "_onnx"),
		VersionPolicy: &inference.ModelVersionPolicy{PolicyChoice: &inference.ModelVersionPolicy_Latest_{
			Latest: &inference.ModelVersionPolicy_Latest{NumVersions: 1},
		}},
		ModelTransactionPolicy: &inference.ModelTransactionPolicy{},
		Parameters:             make(map[string]*inference.ModelParameter, len(m.Parameters)),
	}
	from := 0
	if m.Batched {
		from, c.MaxBatchSize = 1, int32(m.MaxBatch)
	}
	for i := range m.Inputs {
		p := &m.Inputs[i]
		c.Input = append(c.Input, &inference.ModelInput{Name: p.Name, DataType: tensorType(p.Type), Dims: shapeOf(p, from)})
	}
	for i := range m.Outputs {
		p := &m.Outputs[i]
		c.Output = append(c.Output, &inference.ModelOutput{Name: p.Name, DataType: tensorType(p.Type), Dims: shapeOf(p, from)})
	}
	if m.Merged {
		c.SchedulingChoice = &inference.ModelConfig_DynamicBatching{DynamicBatching: &inference.ModelDynamicBatching{}}
	}
	for key, value := range m.Parameters {
		c.Parameters[key] = &inference.ModelParameter{StringValue: value}
	}
	return &inference.ModelConfigResponse{Config: c}, nil
}

// ModelStatistics implements Triton's extension.
func (s *Server) ModelStatistics(ctx context.Context, r *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	list := s.host.Models()
	if r.Name != "" {
		m, fault := s.model(r.Name, r.Version)
		if fault != nil {
			return nil, fail(ctx, fault)
		}
		list = []Model{m}
	}
	answer := &inference.ModelStatisticsResponse{}
	for i := range list {
		answer.ModelStats = append(answer.ModelStats, list[i].statistics())
	}
	return answer, nil
}

func (m *Model) statistics() *inference.ModelStatistics {
	s := &m.Stats
	copied := query.Total{Count: s.Compute.Count} // input and output are part of its compute_infer
	r := &inference.ModelStatistics{
		Name: m.Name, Version: m.Version, InferenceCount: s.Queries, ExecutionCount: s.Executions,
		InferenceStats: &inference.InferStatistics{
			Success: duration(s.Success), Fail: duration(s.Fail), Queue: duration(s.Queue),
			ComputeInput: duration(copied), ComputeInfer: duration(s.Compute), ComputeOutput: duration(copied),
			CacheHit: &inference.StatisticDuration{}, CacheMiss: &inference.StatisticDuration{},
		},
	}
	if !s.Last.IsZero() {
		r.LastInference = uint64(s.Last.UnixMilli())
	}
	return r
}

func duration(t query.Total) *inference.StatisticDuration {
	return &inference.StatisticDuration{Count: t.Count, Ns: uint64(max(t.Took, 0))}
}

// RepositoryIndex implements Triton's extension.
func (s *Server) RepositoryIndex(ctx context.Context, r *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	if r.RepositoryName != "" {
		return nil, fail(ctx, notFound("there is no repository %q: leave the name empty", cut(r.RepositoryName)))
	}
	answer := &inference.RepositoryIndexResponse{}
	for _, m := range s.host.Models() {
		entry := &inference.RepositoryIndexResponse_ModelIndex{Name: m.Name, Version: m.Version, State: stateReady}
		if !m.Ready {
			entry.State, entry.Reason = stateUnavailable, reasonLoading
		}
		if m.Ready || !r.Ready {
			answer.Models = append(answer.Models, entry)
		}
	}
	return answer, nil
}

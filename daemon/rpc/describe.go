package rpc

import (
	"context"
	"strings"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// States of a model in the index of the repository.
const (
	stateReady       = "READY"
	stateUnavailable = "UNAVAILABLE"
)

// find returns a service, whose version may be "".
func (s *Server) find(name, version string) (*query.Service, *query.Error) {
	var v []byte
	if version != "" {
		v = []byte(version)
	}
	return s.queries.Find([]byte(name), v)
}

// loaded returns a service whose model is known.
func (s *Server) loaded(name, version string) (*query.Service, *query.Signature, *query.Error) {
	v, err := s.find(name, version)
	if err != nil {
		return nil, nil, err
	}
	sig := v.Signature()
	if sig == nil {
		return nil, nil, query.ErrUnavailable
	}
	return v, sig, nil
}

// ServerLive implements the protocol.
func (s *Server) ServerLive(context.Context, *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	return &inference.ServerLiveResponse{Live: s.queries.Live()}, nil
}

// ServerReady implements the protocol.
func (s *Server) ServerReady(context.Context, *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	return &inference.ServerReadyResponse{Ready: s.queries.Ready()}, nil
}

// ModelReady implements the protocol.
func (s *Server) ModelReady(ctx context.Context, r *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	v, err := s.find(r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	return &inference.ModelReadyResponse{Ready: v.Ready()}, nil
}

// ServerMetadata implements the protocol.
func (s *Server) ServerMetadata(context.Context, *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	return &inference.ServerMetadataResponse{Name: query.Name, Version: s.queries.Version, Extensions: s.queries.Extensions()}, nil
}

// ModelMetadata implements the protocol.
func (s *Server) ModelMetadata(ctx context.Context, r *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	v, sig, err := s.loaded(r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	return &inference.ModelMetadataResponse{
		Name: v.Name, Versions: []string{query.ModelVersion}, Platform: sig.Info.Platform,
		Inputs: tensors(sig.Inputs), Outputs: tensors(sig.Outputs),
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
	v, sig, err := s.loaded(r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	c := &inference.ModelConfig{
		Name: v.Name, Platform: sig.Info.Platform, Backend: strings.TrimSuffix(sig.Info.Platform, "_onnx"),
		VersionPolicy: &inference.ModelVersionPolicy{PolicyChoice: &inference.ModelVersionPolicy_Latest_{
			Latest: &inference.ModelVersionPolicy_Latest{NumVersions: 1},
		}},
		ModelTransactionPolicy: &inference.ModelTransactionPolicy{},
		Parameters:             make(map[string]*inference.ModelParameter),
	}
	from := 0
	if sig.Batched {
		from, c.MaxBatchSize = 1, int32(v.MaxQueryBatch)
	}
	for i := range sig.Inputs {
		p := &sig.Inputs[i]
		c.Input = append(c.Input, &inference.ModelInput{Name: p.Name, DataType: tensorType(p.Type), Dims: shapeOf(p, from)})
	}
	for i := range sig.Outputs {
		p := &sig.Outputs[i]
		c.Output = append(c.Output, &inference.ModelOutput{Name: p.Name, DataType: tensorType(p.Type), Dims: shapeOf(p, from)})
	}
	if sig.Batched && v.MaxBatch > 1 {
		c.SchedulingChoice = &inference.ModelConfig_DynamicBatching{DynamicBatching: &inference.ModelDynamicBatching{}}
	}
	for _, p := range v.Parameters(&sig.Info) {
		c.Parameters[p[0]] = &inference.ModelParameter{StringValue: p[1]}
	}
	return &inference.ModelConfigResponse{Config: c}, nil
}

// tensorType returns the number of a type in a model configuration.
func tensorType(t models.DataType) inference.DataType {
	if t == models.String {
		return inference.DataType_TYPE_STRING
	}
	return inference.DataType(inference.DataType_value["TYPE_"+t.Protocol()])
}

// ModelStatistics implements Triton's extension.
func (s *Server) ModelStatistics(ctx context.Context, r *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	list := s.queries.Services()
	if r.Name != "" {
		v, err := s.find(r.Name, r.Version)
		if err != nil {
			return nil, fail(ctx, err)
		}
		list = []*query.Service{v}
	}
	answer := &inference.ModelStatisticsResponse{}
	for _, v := range list {
		answer.ModelStats = append(answer.ModelStats, statistics(v))
	}
	return answer, nil
}

func statistics(v *query.Service) *inference.ModelStatistics {
	c := v.Stats.Counts()
	copied := query.Total{Count: c.Compute.Count} // input and output are part of its compute_infer
	r := &inference.ModelStatistics{
		Name: v.Name, Version: query.ModelVersion, InferenceCount: c.Queries, ExecutionCount: c.Executions,
		InferenceStats: &inference.InferStatistics{
			Success: duration(c.Success), Fail: duration(c.Fail), Queue: duration(c.Queue),
			ComputeInput: duration(copied), ComputeInfer: duration(c.Compute), ComputeOutput: duration(copied),
			CacheHit: &inference.StatisticDuration{}, CacheMiss: &inference.StatisticDuration{},
		},
	}
	if !c.Last.IsZero() {
		r.LastInference = uint64(c.Last.UnixMilli())
	}
	return r
}

func duration(t query.Total) *inference.StatisticDuration {
	return &inference.StatisticDuration{Count: t.Count, Ns: uint64(max(t.Took, 0))}
}

// RepositoryIndex implements Triton's extension.
func (s *Server) RepositoryIndex(ctx context.Context, r *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	if r.RepositoryName != "" {
		return nil, fail(ctx, query.NotFound("there is no repository %q: leave the name empty", query.Cut(r.RepositoryName)))
	}
	answer := &inference.RepositoryIndexResponse{}
	for _, v := range s.queries.Services() {
		ready := v.Ready()
		entry := &inference.RepositoryIndexResponse_ModelIndex{Name: v.Name, Version: query.ModelVersion, State: stateReady}
		if !ready {
			entry.State, entry.Reason = stateUnavailable, query.ReasonLoading
		}
		if ready || !r.Ready {
			answer.Models = append(answer.Models, entry)
		}
	}
	return answer, nil
}

package rpc

import (
	"context"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// States of a model in the index of the repository.
const (
	stateReady       = "READY"
	stateUnavailable = "UNAVAILABLE"
)

// protocol answers what the protocol asks besides inference.
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
		return nil, nil, query.ErrUnavailable
	}
	return v, sig, nil
}

// ServerLive implements the protocol.
func (s protocol) ServerLive(context.Context, *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	return &inference.ServerLiveResponse{Live: s.queries.Live()}, nil
}

// ServerReady implements the protocol.
func (s protocol) ServerReady(context.Context, *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	return &inference.ServerReadyResponse{Ready: s.queries.Ready()}, nil
}

// ModelReady implements the protocol.
func (s protocol) ModelReady(ctx context.Context, r *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	v, err := find(s.queries, r.Name, r.Version)
	if err != nil {
		return nil, fail(ctx, err)
	}
	return &inference.ModelReadyResponse{Ready: v.Ready()}, nil
}

// ServerMetadata implements the protocol.
func (s protocol) ServerMetadata(context.Context, *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	return &inference.ServerMetadataResponse{Name: query.DaemonName, Version: s.queries.Version, Extensions: s.queries.Extensions()}, nil
}

// ModelMetadata implements the protocol.
func (s protocol) ModelMetadata(ctx context.Context, r *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
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
func (s protocol) ModelConfig(ctx context.Context, r *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
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
func (s protocol) ModelStatistics(ctx context.Context, r *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	list := s.queries.Services()
	if r.Name != "" {
		v, err := find(s.queries, r.Name, r.Version)
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
	copied := &inference.StatisticDuration{Count: c.Compute.Count} // input and output are part of its compute_infer
	r := &inference.ModelStatistics{
		Name: v.Name, Version: query.ModelVersion, InferenceCount: c.Queries, ExecutionCount: c.Executions,
		InferenceStats: &inference.InferStatistics{
			Success: duration(c.Success.Count, c.Success.Took), Fail: duration(c.Fail.Count, c.Fail.Took), Queue: duration(c.Queue.Count, c.Queue.Took),
			ComputeInput: copied, ComputeInfer: duration(c.Compute.Count, c.Compute.Took), ComputeOutput: copied,
			CacheHit: &inference.StatisticDuration{}, CacheMiss: &inference.StatisticDuration{},
		},
	}
	if !c.Last.IsZero() {
		r.LastInference = uint64(c.Last.UnixMilli())
	}
	return r
}

func duration(count uint64, took time.Duration) *inference.StatisticDuration {
	return &inference.StatisticDuration{Count: count, Ns: uint64(max(took, 0))}
}

// RepositoryIndex implements Triton's extension.
func (s protocol) RepositoryIndex(ctx context.Context, r *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
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

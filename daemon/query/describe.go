package query

import (
	"strconv"
	"strings"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Descriptions of the daemon and its services, in the JSON form of HTTP. daemon/rpc
// converts them into messages whose fields have the same names.

type serverMetadata struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

type modelMetadata struct {
	Name     string         `json:"name"`
	Versions []string       `json:"versions"`
	Platform string         `json:"platform"`
	Inputs   []portMetadata `json:"inputs"`
	Outputs  []portMetadata `json:"outputs"`
}

type portMetadata struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

// ModelMetadata returns the model metadata of the KServe V2 protocol.
func (s *Server) ModelMetadata(v *Service, sig *Signature) any {
	name := ModelOf(v.Name)
	return modelMetadata{
		name, versionNumbers(s.Versions(name)), sig.Info.Platform, portsOf(sig.Inputs, metadataOf), portsOf(sig.Outputs, metadataOf),
	}
}

// Metadata returns the server metadata of the KServe V2 protocol, with the supported
// extensions. An emulated daemon adds Label, so that clients can tell.
func (s *Server) Metadata() any {
	m := serverMetadata{DaemonName, s.Version, []string{
		"binary_tensor_data", "parameters", "schedule_policy", "model_configuration", "statistics",
		"model_repository", "model_repository(" + parameterDependents + ")",
	}}
	if s.Label != "" {
		m.Extensions = append(m.Extensions, s.Label)
	}
	return m
}

// portsOf applies describe to each port. The result is never nil, because JSON would encode
// nil as null.
func portsOf[T any](ports []Port, describe func(*Port) T) []T {
	list := make([]T, len(ports))
	for i := range ports {
		list[i] = describe(&ports[i])
	}
	return list
}

func metadataOf(p *Port) portMetadata {
	return portMetadata{p.Name, p.Type.Protocol(), shapeOf(p, false)}
}

// shapeOf returns the dimensions of a port, without the batch dimension if batched is set.
// An unknown rank is described as [-1]. The result is never nil, because JSON would encode
// nil as null.
func shapeOf(p *Port, batched bool) []int64 {
	switch {
	case p.AnyRank:
		return []int64{-1}
	case batched:
		return p.Dims[1:]
	case p.Dims == nil:
		return []int64{}
	}
	return p.Dims
}

type modelConfig struct {
	Name          string `json:"name"`
	Platform      string `json:"platform"`
	Backend       string `json:"backend"`
	VersionPolicy struct {
		Latest struct {
			NumVersions int `json:"num_versions"`
		} `json:"latest"`
	} `json:"version_policy"`
	MaxBatchSize           int          `json:"max_batch_size"`
	Input                  []portConfig `json:"input"`
	Output                 []portConfig `json:"output"`
	ModelTransactionPolicy struct {
		Decoupled bool `json:"decoupled"`
	} `json:"model_transaction_policy"`
	DynamicBatching *dynamicBatching `json:"dynamic_batching,omitempty"`
	Parameters      parameters       `json:"parameters"`
}

type dynamicBatching struct {
	PreferredBatchSize        []int `json:"preferred_batch_size"`
	MaxQueueDelayMicroseconds int   `json:"max_queue_delay_microseconds"`
}

// parameters are the properties of a service that Triton's model configuration has no field
// for. Triton encodes parameters as strings.
type parameters struct {
	QoSTarget  parameter  `json:"qos_target_us"`
	QueueLimit parameter  `json:"queue_limit"`
	Policy     parameter  `json:"policy"`
	Device     parameter  `json:"device"`
	Operators  parameter  `json:"operators"`
	Hash       parameter  `json:"sha256"`
	Cut        *parameter `json:"cut,omitempty"`
	Variants   *parameter `json:"variants,omitempty"`
}

type parameter struct {
	Value string `json:"string_value"`
}

// portConfig describes an input or output without the batch dimension, as Triton does.
type portConfig struct {
	Name     string  `json:"name"`
	DataType string  `json:"data_type"`
	Dims     []int64 `json:"dims"`
}

// ModelConfig returns the model configuration in Triton's form. max_batch_size is 0 for a
// model without a batch dimension. dynamic_batching is present if the scheduler may batch
// queries.
func (s *Server) ModelConfig(v *Service, sig *Signature) any {
	i := &sig.Info
	port := func(p *Port) portConfig { return portConfig{p.Name, configType(p.Type), shapeOf(p, sig.Batched)} }
	c := &modelConfig{
		Name: ModelOf(v.Name), Platform: i.Platform, Backend: strings.TrimSuffix(i.Platform, "_onnx"),
		Input: portsOf(sig.Inputs, port), Output: portsOf(sig.Outputs, port),
		Parameters: parameters{
			QoSTarget: parameter{strconv.FormatInt(v.QoSTarget.Microseconds(), 10)}, QueueLimit: parameter{strconv.Itoa(v.QueueLimit)},
			Policy: parameter{v.Policy}, Device: parameter{i.Device}, Operators: parameter{strconv.Itoa(i.Operators)}, Hash: parameter{i.Hash},
		},
	}
	if i.Cut != "" {
		c.Parameters.Cut = &parameter{i.Cut}
	}
	if len(v.Variants) > 0 {
		c.Parameters.Variants = &parameter{v.variants()}
	}
	c.VersionPolicy.Latest.NumVersions = len(s.Versions(c.Name))
	if sig.Batched {
		c.MaxBatchSize = v.MaxQueryBatch
	}
	if sig.Batched && v.MaxBatch > 1 {
		c.DynamicBatching = &dynamicBatching{PreferredBatchSize: []int{}}
	}
	return c
}

// configType returns the name of a data type in a model configuration. Triton calls BYTES a
// string there.
func configType(t models.DataType) string {
	if t == models.String {
		return "TYPE_STRING"
	}
	return "TYPE_" + t.Protocol()
}

// modelStats has every field that Triton's clients read. overlapd has no response cache, so
// those fields stay 0. It does not time input and output separately: their counts equal
// that of compute_infer, which includes their time.
type modelStats struct {
	Name           string `json:"name"`
	Version        string `json:"version"`
	LastInference  int64  `json:"last_inference"`
	InferenceCount uint64 `json:"inference_count"`
	ExecutionCount uint64 `json:"execution_count"`
	InferenceStats struct {
		Success       counted `json:"success"`
		Fail          counted `json:"fail"`
		Queue         counted `json:"queue"`
		ComputeInput  counted `json:"compute_input"`
		ComputeInfer  counted `json:"compute_infer"`
		ComputeOutput counted `json:"compute_output"`
		CacheHit      counted `json:"cache_hit"`
		CacheMiss     counted `json:"cache_miss"`
	} `json:"inference_stats"`
	BatchStats []struct{} `json:"batch_stats"`
}

type counted struct {
	Count uint64        `json:"count"`
	Took  time.Duration `json:"ns"`
}

// Statistics returns the statistics of services in Triton's form. A service with variants
// is followed by one entry for each variant.
func Statistics(services ...*Service) any {
	var all []*Service
	for _, s := range services {
		if all = append(all, s); len(s.Variants) > 0 {
			all = append(all, s.Each()...)
		}
	}
	list := make([]modelStats, len(all))
	for i, s := range all {
		c := s.Stats.Counts()
		m := modelStats{Name: ModelOf(s.Name), Version: s.Version, InferenceCount: c.Queries, ExecutionCount: c.Executions, BatchStats: []struct{}{}}
		if !c.Last.IsZero() {
			m.LastInference = c.Last.UnixMilli()
		}
		t := &m.InferenceStats
		t.Success, t.Fail, t.Queue, t.ComputeInfer = counted(c.Success), counted(c.Fail), counted(c.Queue), counted(c.Compute)
		t.ComputeInput.Count, t.ComputeOutput.Count = c.Compute.Count, c.Compute.Count
		list[i] = m
	}
	return map[string]any{"model_stats": list}
}

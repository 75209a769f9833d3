package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// modelInfer reads the request of a ModelInfer and has it answered.
func modelInfer(service any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	m := new(message)
	if err := service.(*Server).receiveOnly(ctx, m); err != nil {
		return nil, refuse(ctx, err)
	}
	arrived(ctx)
	r, err := service.(*Server).answer(ctx, m)
	if err != nil {
		return nil, fail(ctx, err)
	}
	return service.(*Server).outgoing(ctx, r), nil
}

// answer answers a request and gives back its memory.
func (s *Server) answer(ctx context.Context, m *message) (*inference.ModelInferResponse, error) {
	defer s.memory.give(m.held)
	if m.fault != nil {
		return nil, m.fault
	}
	q, f, fault := decode(&m.request)
	if fault != nil {
		return nil, fault
	}
	a, err := s.host.Infer(ctx, q)
	if err != nil {
		return nil, err
	}
	return respond(q, f, &a), nil
}

// respond writes an answer in the form that is wanted, or raw if an output has
// no other.
func respond(q *Query, f form, a *Answer) *inference.ModelInferResponse {
	r := &inference.ModelInferResponse{ModelName: q.Model, ModelVersion: a.Version, Id: q.ID}
	if f.final {
		r.Parameters = map[string]*inference.InferParameter{
			"triton_final_response": {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}},
		}
	}
	for i := range a.Outputs {
		o := &a.Outputs[i]
		r.Outputs = append(r.Outputs, &inference.ModelInferResponse_InferOutputTensor{
			Name: o.Name, Datatype: o.Type.Protocol(), Shape: o.Shape,
		})
	}
	if !f.raw && typed(r, a.Outputs) {
		return r
	}
	for i := range a.Outputs {
		r.Outputs[i].Contents = nil
		r.RawOutputContents = append(r.RawOutputContents, a.Outputs[i].Data)
	}
	return r
}

// typed fills in typed contents, or reports that there are none for one of the
// outputs.
func typed(r *inference.ModelInferResponse, outputs []Tensor) bool {
	for i := range outputs {
		c, ok := unpack(outputs[i].Type, outputs[i].Data)
		if !ok {
			return false
		}
		r.Outputs[i].Contents = c
	}
	return true
}

// versionOf refuses a version that a model does not have.
func (m *Model) versionOf(version string) *Fault {
	if version == "" || version == m.Version {
		return nil
	}
	return notFound("model %q has only version %s", m.Name, m.Version)
}

// tensorType returns the number of a type in a model configuration.
func tensorType(t models.DataType) inference.DataType {
	if t == models.String {
		return inference.DataType_TYPE_STRING
	}
	return inference.DataType(inference.DataType_value["TYPE_"+t.Protocol()])
}

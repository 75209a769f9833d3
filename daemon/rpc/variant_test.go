package rpc

import (
	"testing"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

func variedRequest(parameters map[string]*inference.InferParameter) *inference.ModelInferRequest {
	q := typedRequest("a")
	q.ModelName, q.Parameters = "varied", parameters
	return q
}

func TestVariantAnswers(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	for want, list := range map[string][]map[string]*inference.InferParameter{
		"fast": {nil, named("variant", "fast"), named("least_accuracy", 76.13), named("least_accuracy", int64(76)), named("least_accuracy", uint64(0))},
		"best": {named("variant", "best"), named("least_accuracy", 76.14), {"variant": parameter("best"), "least_accuracy": parameter(78.31)}},
	} {
		for _, parameters := range list {
			a, err := r.client.ModelInfer(r.context(), variedRequest(parameters))
			if err != nil || len(a.Parameters) != 1 || a.Parameters["variant"].GetStringParam() != want || len(a.RawOutputContents) != 1 {
				t.Errorf("%v: %v, %v; want %s", parameters, a, err, want)
			}
		}
	}
	if a, err := r.client.ModelInfer(r.context(), typedRequest("a")); err != nil || len(a.Parameters) != 0 {
		t.Errorf("a service with one model: %v, %v", a, err)
	}
}

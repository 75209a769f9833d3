package rpc

import (
	"math"
	"testing"

	"google.golang.org/grpc/codes"

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

func TestVariantFaults(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	for _, tt := range []struct {
		name       string
		parameters map[string]*inference.InferParameter
		want       string
	}{
		{"unknown", named("variant", "slow"), `service varied has no variant "slow": choose one of fast (76.13), best (78.31)`},
		{"a number", named("variant", int64(1)), `the parameter "variant" must be the name of a variant: set string_param`},
		{"nothing", named("variant", nil), "set string_param"},
		{"above all", named("least_accuracy", 79.0), `the highest accuracy of a variant of varied is 78.31: request that or less`},
		{"negative", named("least_accuracy", int64(-1)), "must be a finite number, 0 or more, not -1"},
		{"NaN", named("least_accuracy", math.NaN()), "must be a finite number, 0 or more, not NaN"},
		{"infinite", named("least_accuracy", math.Inf(1)), "must be a finite number, 0 or more, not +Inf"},
		{"a text", named("least_accuracy", "76"), `the parameter "least_accuracy" must be a number: set double_param`},
		{"contradicting", map[string]*inference.InferParameter{"variant": parameter("fast"), "least_accuracy": parameter(77.0)}, `leave out "variant" or "least_accuracy"`},
	} {
		_, err := r.client.ModelInfer(r.context(), variedRequest(tt.parameters))
		wants(t, tt.name, err, codes.InvalidArgument, tt.want)
	}
	for key, value := range map[string]any{"variant": "fast", "least_accuracy": 0.0} {
		q := typedRequest("a")
		q.Parameters = named(key, value)
		_, err := r.client.ModelInfer(r.context(), q)
		wants(t, key, err, codes.InvalidArgument, "echo has one model: leave it out")
	}
	if _, _, all := r.counts(); all > 0 {
		t.Errorf("%d queries of these were run", all)
	}
}

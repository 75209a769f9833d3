package http

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/query"
)

const variedInput = `"inputs":[{"name":"X","datatype":"INT8","shape":[1,1],"data":[7]}]`

// A request may say which variant is to answer, and the answer says which has. A service
// with one model answers as if there were no variants.
func TestVariantAnswers(t *testing.T) {
	s := serve(t, testLimits())
	for parameters, want := range map[string]string{
		"": "fast", `"variant":"mid"`: "mid", `"variant":"b\u0065st"`: "best", `"least_accuracy":77`: "mid",
		`"least_accuracy":0`: "fast", `"least_accuracy":7.831e1`: "best",
		`"least_accuracy":76.13,"variant":"best"`: "best", `"variant":"mid","least_accuracy":77.37`: "mid",
	} {
		a := s.infer("varied", `{"id":"q","parameters":{`+parameters+`},`+variedInput+`}`)
		body := `{"id":"q","model_name":"varied","model_version":"1","parameters":{"variant":"` + want + `"},"outputs":[{"name":"Y","datatype":"INT8","shape":[1,1],"data":[7]}]}`
		if a.status != http.StatusOK || string(a.body) != body || a.header.Get("Overlapd-Variant") != want {
			t.Errorf("%s: %d %s, header %q, want %s", parameters, a.status, a.body, a.header.Get("Overlapd-Variant"), want)
		}
	}
	a := s.infer("varied", `{"parameters":{"binary_data_output":true},`+variedInput+`}`)
	head, data, _ := strings.Cut(string(a.body), "\a")
	if a.status != http.StatusOK || !json.Valid([]byte(head)) || data != "" || a.header.Get(headerLength) != fmt.Sprint(len(head)) || !strings.Contains(head, `"parameters":{"variant":"fast"}`) {
		t.Errorf("binary: %d %q", a.status, a.body)
	}
	if a := s.infer("echo_INT8", `{`+variedInput+`}`); a.header.Get("Overlapd-Variant") != "" || strings.Contains(string(a.body), "parameters") {
		t.Errorf("a service with one model: %s", a.body)
	}
	if a := s.get("/v2/models/varied/config"); !strings.Contains(string(a.body), `"variants":{"string_value":"fast (76.13), mid (77.37), best (78.31)"}`) {
		t.Errorf("the configuration: %s", a.body)
	}
}

func TestVariantFaults(t *testing.T) {
	s := serve(t, testLimits())
	for _, tt := range []struct{ service, parameters, want string }{
		{"varied", `"variant":"slow"`, `service varied has no variant "slow": choose one of fast (76.13), mid (77.37), best (78.31)`},
		{"varied", `"variant":""`, `has no variant ""`},
		{"varied", `"variant":"` + strings.Repeat("x", 5000) + `"`, "has no variant \"xxx"},
		{"varied", `"variant":1`, `the parameter "variant" must be a string, the name of a variant`},
		{"varied", `"variant":null`, `the parameter "variant" must be a string`},
		{"varied", `"variant":["fast"]`, `the parameter "variant" must be a string`},
		{"varied", `"variant":"fast","variant":"mid"`, `"variant" is given twice`},
		{"varied", `"least_accuracy":78.4`, `the parameter "least_accuracy" is 78.4, but the highest accuracy of a variant of varied is 78.31: request that or less`},
		{"varied", `"least_accuracy":-1`, `the parameter "least_accuracy" must be a finite number, 0 or more, not -1`},
		{"varied", `"least_accuracy":1e999`, `the parameter "least_accuracy" must be a finite number, 0 or more, not +Inf`},
		{"varied", `"least_accuracy":-1e999`, `the parameter "least_accuracy" must be a finite number, 0 or more, not -Inf`},
		{"varied", `"least_accuracy":NaN`, `the parameter "least_accuracy" must be a number`},
		{"varied", `"least_accuracy":"77"`, `the parameter "least_accuracy" must be a number`},
		{"varied", `"least_accuracy":true`, `the parameter "least_accuracy" must be a number`},
		{"varied", `"least_accuracy":78,"variant":"mid"`, `the variant mid has an accuracy of 77.37, but the request needs at least 78: leave out "variant" or "least_accuracy"`},
		{"varied", `"variant":"mid","least_accuracy":78`, `the variant mid has an accuracy of 77.37`},
		{"echo_INT8", `"variant":"fast"`, `the parameter "variant" chooses among the variants of a service, but echo_INT8 has one model: leave it out`},
		{"echo_INT8", `"least_accuracy":0`, `the parameter "least_accuracy" chooses among the variants of a service, but echo_INT8 has one model: leave it out`},
	} {
		a := s.infer(tt.service, `{"parameters":{`+tt.parameters+`},`+variedInput+`}`)
		message, reason := a.failure(t)
		if a.status != http.StatusBadRequest || reason != query.ReasonInvalid || !strings.Contains(message, tt.want) || len(message) > 500 {
			t.Errorf("%.60s: %d %s %s, want %s", tt.parameters, a.status, reason, message, tt.want)
		}
	}
	if s.Mu.Last.Service != nil {
		t.Error("a query of these was run")
	}
	s.live()
}

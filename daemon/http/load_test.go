package http

import (
	"net/http"
	"testing"

	"github.com/overlapd/overlapd/daemon/query"
)

// An answer has the load of its service if the request asks for it in a form that is known,
// also one that refuses.
func TestLoadReport(t *testing.T) {
	s := serve(t, testLimits())
	for _, load := range []func(service, form string) string{
		nil, func(string, string) string { return "" }, func(service, form string) string { return form + " of " + service },
	} {
		s.endpoint.inference.queries.Load = load
		for _, tt := range []struct {
			form, body, want string
			status           int
		}{
			{"", `{` + variedInput + `}`, "", http.StatusOK},
			{"TEXT", `{` + variedInput + `}`, "TEXT of echo_INT8", http.StatusOK},
			{"json", `{` + variedInput + `}`, "JSON of echo_INT8", http.StatusOK},
			{"Bin", `{`, "BIN of echo_INT8", http.StatusBadRequest},
			{"XML", `{` + variedInput + `}`, "", http.StatusOK},
		} {
			header := map[string]string{}
			if tt.form != "" {
				header[query.HeaderLoadForm] = tt.form
			}
			if load == nil || load("", "") == "" {
				tt.want = ""
			}
			a := s.exchange(rawRequest("POST", "/v2/models/echo_INT8/infer", header, []byte(tt.body)))
			if got := a.header.Get("endpoint-load-metrics"); a.status != tt.status || got != tt.want {
				t.Errorf("%q: %d, %q, want %q", tt.form, a.status, got, tt.want)
			}
		}
	}
}

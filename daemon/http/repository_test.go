package http

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// sleeper is of a service that is loaded by request only.
type sleeper struct{ query.Sleeper }

func (sleeper) OnDemand() bool { return false }

func (sleeper) Wake(s *query.Service, _ time.Time, _ <-chan struct{}) *query.Error {
	return s.NotReady()
}

func (sleeper) Known(s *query.Service) (*query.Signature, *query.Error) { return nil, s.NotReady() }

// laid returns a service in memory or on disk.
func laid(s *query.Service, onDisk bool) *query.Service {
	next := s.Successor()
	next.Version, next.QoSTarget, next.QueueLimit, next.MaxBatch, next.MaxQueryBatch = s.Version, s.QoSTarget, s.QueueLimit, s.MaxBatch, s.MaxQueryBatch
	if next.SetReady(!onDisk); onDisk {
		next.Asleep = sleeper{}
	}
	if sig := s.Signature(); sig != nil {
		_ = next.Loaded(sig.Info)
	}
	return next
}

// shelf is a repository that loads and unloads the versions of "many" of a backend. It waits
// for the client to leave where hold is set.
type shelf struct {
	of   *backend
	hold chan struct{} // closed when a change has begun
}

func (r shelf) change(ctx context.Context, model string, unloaded bool) *query.Error {
	if model != "many" {
		return query.NotFound("unknown model %q", model)
	}
	for i, s := range r.of.List {
		if query.ModelOf(s.Name) == model {
			r.of.List[i] = laid(s, unloaded)
		}
	}
	if r.hold != nil {
		close(r.hold)
		<-ctx.Done()
	}
	return nil
}

func (r shelf) Load(ctx context.Context, m string) *query.Error   { return r.change(ctx, m, false) }
func (r shelf) Unload(ctx context.Context, m string) *query.Error { return r.change(ctx, m, true) }

// serveMany returns a server that also has the versions 12, 3 and 1 of "many".
func serveMany(t *testing.T) *server {
	s := serve(t, testLimits())
	for i, name := range []string{"many:3", "many", "many:1"} {
		v := query.NewService(models.ServiceID(len(s.List)), name)
		v.Version, v.QoSTarget, v.QueueLimit, v.MaxBatch, v.MaxQueryBatch, v.Backend = []string{"3", "12", "1"}[i], time.Second, 8, 1, 8, s.backend
		if err := v.Loaded(query.Info{Inputs: []models.TensorSpec{spec("X", models.Int8, -1, 1)}, Outputs: []models.TensorSpec{spec("Y", models.Int8, -1, 1)}}); err != nil {
			t.Fatal(err)
		}
		v.SetReady(true)
		s.List = append(s.List, v)
	}
	s.endpoint.pages.Queries.Repository = shelf{of: s.backend}
	return s
}

// Each version is asked by its number, and the highest without one.
func TestVersions(t *testing.T) {
	s := serveMany(t)
	const body = `{"inputs":[{"name":"X","datatype":"INT8","shape":[1,1],"data":[7]}]}`
	for path, version := range map[string]string{"many": "12", "many/versions/12": "12", "many/versions/3": "3", "many/versions/1": "1", "many:3": "3", "many:3/versions/3": "3"} {
		want := `{"model_name":"many","model_version":"` + version + `",`
		if a := s.post("/v2/models/"+path+"/infer", body); a.status != http.StatusOK || !strings.HasPrefix(string(a.body), want) {
			t.Errorf("asking %s: got %d %s", path, a.status, a.body)
		}
		for _, of := range []string{"", "/ready", "/config", "/stats"} {
			if a := s.get("/v2/models/" + path + of); a.status != http.StatusOK || !strings.Contains(string(a.body), `"name":"many"`) || strings.Contains(string(a.body), "many:") {
				t.Errorf("asking %s%s: got %d %s", path, of, a.status, a.body)
			}
		}
	}
	if a := s.get("/v2/models/many/versions/3"); !strings.Contains(string(a.body), `"versions":["12","3","1"]`) {
		t.Errorf("the versions are missing: %s", a.body)
	}
	if a := s.get("/v2/models/many/config"); !strings.Contains(string(a.body), `"num_versions":3`) {
		t.Errorf("the versions are missing: %s", a.body)
	}
	for path, want := range map[string]int{"many": 3, "many/versions/3": 1} {
		var stats struct {
			Models []struct{ Version string } `json:"model_stats"`
		}
		if a := s.get("/v2/models/" + path + "/stats"); json.Unmarshal(a.body, &stats) != nil || len(stats.Models) != want {
			t.Errorf("statistics of %s: got %s", path, a.body)
		}
	}
	for _, path := range []string{"many/versions/2", "many:1/versions/2", "many/versions/012"} {
		a := s.get("/v2/models/" + path)
		if message, reason := a.failure(t); a.status != http.StatusNotFound || reason != query.ReasonNotFound || strings.Contains(path, "many/") && !strings.HasSuffix(message, "only the versions 12, 3, 1") {
			t.Errorf("asking %s: got %d %s", path, a.status, a.body)
		}
	}
}

// A model that clients unload answers no query until they load it.
func TestLoadAndUnload(t *testing.T) {
	s := serveMany(t)
	ok := func(path, body string) {
		t.Helper()
		if a := s.post(path, body); a.status != http.StatusOK || !strings.Contains(string(a.body), `"name":"many"`) || !strings.Contains(string(a.body), `load":true`) {
			t.Errorf("posting %s to %s: got %d %s", body, path, a.status, a.body)
		}
	}
	states := func(body string) string {
		t.Helper()
		var index []struct{ Name, Version, State, Reason string }
		if a := s.post("/v2/repository/index", body); json.Unmarshal(a.body, &index) != nil {
			t.Fatalf("the index is %d %s", a.status, a.body)
		}
		var all []string
		for _, e := range index {
			if e.Name == "many" {
				all = append(all, fmt.Sprintf("%s %s %s", e.Version, e.State, e.Reason))
			}
		}
		return strings.Join(all, ",")
	}
	ok("/v2/repository/models/many/unload", `{"parameters":{"unload_dependents":true}}`)
	if got := states(""); got != "3 UNAVAILABLE unloaded,12 UNAVAILABLE unloaded,1 UNAVAILABLE unloaded" {
		t.Errorf("the index has %s", got)
	}
	if got := states(`{"ready":true}`); got != "" {
		t.Errorf("the index has %s", got)
	}
	a := s.infer("many/versions/3", `{"inputs":[{"name":"X","datatype":"INT8","shape":[1,1],"data":[7]}]}`)
	if message, reason := a.failure(t); a.status != http.StatusServiceUnavailable || reason != query.ReasonUnloaded || !strings.Contains(message, "POST /v2/repository/models/many/load") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	ok("/v2/repository/models/many/load", "")
	if got := states("{}"); got != "3 READY ,12 READY ,1 READY " {
		t.Errorf("the index has %s", got)
	}
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"many/load", `{"parameters":{"config":"{}"}}`, 501},
		{"many/load", `{"parameters":{"config":"{}","file:1/model.onnx":"AAAA"}}`, 501},
		{"many/unload", `{"parameters":{"config":"{}"}}`, 400},
		{"many/load", `{"parameters":{"other":1}}`, 400},
		{"many/load", `{"parameters":`, 400},
		{"many/load", `[]`, 400},
		{"many/load", strings.Repeat(" ", controlBytes) + "{}", 413},
		{"none/load", "", 404},
		{"/load", "", 404},
		{"many/loads", "", 404},
		{"many/versions/1/load", "", 404},
	} {
		if a := s.post("/v2/repository/models/"+c.path, c.body); a.status != c.status {
			t.Errorf("posting %.60s to %s: got %d %s", c.body, c.path, a.status, a.body)
		}
	}
	if a := s.get("/v2/repository/models/many/load"); a.status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d %s", a.status, a.body)
	}
	s.endpoint.pages.Queries.Repository = nil
	if a := s.post("/v2/repository/models/many/load", ""); a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "--model-control-mode") {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

// A client that leaves ends the wait for its change.
func TestChangeOfAClientThatLeaves(t *testing.T) {
	s := serveMany(t)
	began := make(chan struct{})
	s.endpoint.pages.Queries.Repository = shelf{s.backend, began}
	c := s.dial()
	if _, err := c.Write(rawRequest("POST", "/v2/repository/models/many/load", nil, []byte{})); err != nil {
		t.Fatal(err)
	}
	<-began
	c.Close()
	eventually(t, "the connection to be given up", func() bool { return s.watched() == 0 })
}

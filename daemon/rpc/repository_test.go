package rpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
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

// shelf loads and unloads all versions of "echo".
type shelf struct{ of *fake }

func (r shelf) change(model string, unloaded bool) *query.Error {
	for i, s := range r.of.list {
		if model == "echo" && query.ModelOf(s.Name) == model {
			r.of.list[i] = laid(s, unloaded)
		}
	}
	if model != "echo" {
		return query.NotFound("unknown model %q", model)
	}
	return nil
}

func (r shelf) Load(_ context.Context, model string) *query.Error   { return r.change(model, false) }
func (r shelf) Unload(_ context.Context, model string) *query.Error { return r.change(model, true) }

// Calls name a version or mean the highest, and a model answers while it is loaded.
func TestVersionsAndLoading(t *testing.T) {
	f := &fake{}
	r := start(t, f, testLimits())
	r.server.queries.Repository = shelf{f}
	f.list[0].Version = "5"
	old := query.NewService(models.ServiceID(len(f.list)), "echo:4")
	old.Version, old.QoSTarget, old.MaxBatch, old.MaxQueryBatch, old.Backend = "4", time.Second, 1, 8, f
	if err := old.Loaded(f.list[0].Signature().Info); err != nil {
		t.Fatal(err)
	}
	old.SetReady(true)
	f.list = append(f.list, old)
	ctx := r.context()
	infer := func(version string) (*inference.ModelInferResponse, error) {
		q := typedRequest("a")
		q.ModelVersion = version
		return r.client.ModelInfer(ctx, q)
	}
	for asked, want := range map[string]string{"": "5", "5": "5", "4": "4"} {
		if a, err := infer(asked); err != nil || a.ModelName != "echo" || a.ModelVersion != want {
			t.Errorf("version %q: %v, %v", asked, a, err)
		}
		if m, err := r.client.ModelReady(ctx, &inference.ModelReadyRequest{Name: "echo", Version: asked}); err != nil || !m.Ready {
			t.Errorf("version %q: %v, %v", asked, m, err)
		}
		if m, err := r.client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "echo", Version: asked}); err != nil || m.Name != "echo" || len(m.Versions) != 2 {
			t.Errorf("version %q: %v, %v", asked, m, err)
		}
		n := map[string]int{"": 2}[asked]
		if s, err := r.client.ModelStatistics(ctx, &inference.ModelStatisticsRequest{Name: "echo", Version: asked}); err != nil || len(s.ModelStats) != max(n, 1) || s.ModelStats[0].Version != want {
			t.Errorf("version %q: %v, %v", asked, s, err)
		}
	}
	_, err := infer("3")
	wants(t, "another version", err, codes.NotFound, "only the versions 5, 4")

	if _, err := r.client.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{ModelName: "echo", Parameters: map[string]*inference.ModelRepositoryParameter{
		"unload_dependents": {ParameterChoice: &inference.ModelRepositoryParameter_BoolParam{BoolParam: true}},
	}}); err != nil {
		t.Fatal(err)
	}
	_, err = infer("4")
	wants(t, "unloaded", err, codes.Unavailable, "/v2/repository/models/echo/load")
	if m, err := r.client.ModelReady(ctx, &inference.ModelReadyRequest{Name: "echo", Version: "4"}); err != nil || m.Ready {
		t.Errorf("unloaded: %v, %v", m, err)
	}
	// KServe's message has the name in the first field, and its client reads the answer.
	if a, err := r.client.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{RepositoryName: "echo"}); err != nil || a.ModelName != "echo" || !a.IsLoaded {
		t.Fatal(a, err)
	}
	if _, err = infer("4"); err != nil {
		t.Error(err)
	}
	_, err = r.client.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: "echo", Parameters: map[string]*inference.ModelRepositoryParameter{"config": {}}})
	wants(t, "a configuration", err, codes.Unimplemented, "config.pbtxt")
	_, err = r.client.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: "echo", RepositoryName: "a"})
	wants(t, "a repository", err, codes.NotFound, "leave the name empty")
	_, err = r.client.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{ModelName: "none"})
	wants(t, "no such model", err, codes.NotFound, "unknown model")
}

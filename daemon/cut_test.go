package daemon

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/segments/wire"
)

// chosen returns what the status says of a service's cut.
func (r *gpuRig) chosen(service int) *status.Cut {
	r.t.Helper()
	r.eventually("ready", r.Ready)
	o, ok := r.backend.FullStatus()
	if !ok {
		r.t.Fatal("no overview")
	}
	return o.Services[service].Cut
}

// measured returns how often workers have told that they measure cuts.
func (r *gpuRig) measured() int { return strings.Count(r.log.String(), `"phase":"choose"`) }

// What cuts cost is measured once: neither a worker nor a daemon that is started
// again does so, and a service whose cut is said never.
func TestCutIsChosenOnce(t *testing.T) {
	r := newGPURig(t, "a", "said")
	r.config.Services[1].Cut = 1
	r.start()
	first := r.chosen(0)
	if first == nil || len(first.Costs) == 0 || first.Reason == "" || first.Costs[0].WholeMS <= 0 || r.measured() == 0 {
		t.Fatalf("%+v, told %d times", first, r.measured())
	}
	if said := r.chosen(1); said != nil {
		t.Errorf("a cut that is said: %+v", said)
	}
	if text := r.get("/v2/models/a/config"); !strings.Contains(text, first.Reason) {
		t.Errorf("%q is not in\n%s", first.Reason, text)
	}
	before := r.measured()
	kill(t, r.pids()["a"])
	r.eventually("another worker", func() bool { return strings.Count(r.log.String(), `"message":"worker ready"`) == 3 })
	if diff := cmp.Diff(first, r.chosen(0)); diff != "" || r.measured() != before {
		t.Errorf("another worker measured %d times more, and says %s", r.measured()-before, diff)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	again := newGPURig(t, "a")
	again.config.StateDir = r.config.StateDir
	again.start()
	if diff := cmp.Diff(first, again.chosen(0)); diff != "" || again.measured() != 0 {
		t.Errorf("another daemon measured %d times, and says %s", again.measured(), diff)
	}
}

// The question has what was stored for the same model, device and part of it,
// and time that load_timeout allows for.
func TestCutQuestion(t *testing.T) {
	s, _, err := openState(t.TempDir(), checkState)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	u := &poolDevice{config: config.Default(), state: s, text: "a GPU", cores: 2, life: t.Context(), part: new(gpu.Part)}
	u.config.StateDir = t.TempDir()
	service := config.DefaultService()
	path, err := u.model("zoo:tiny_add")
	if err != nil {
		t.Skip(err)
	}
	hash, err := hashModel(t.Context(), path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	q := u.question(path, &service)
	if q.Known != nil || q.Finest != 0 || time.Duration(q.BudgetNanos) != chooseBudget {
		t.Errorf("%+v", q)
	}
	want := &wire.CutChoice{Hash: hash, Target: 7, Costs: []wire.CutCost{{Segments: 7, Batch: 1}}, Reason: "it is cheap"}
	if err := s.save(cutChoices, u.cutKey(hash, u.placeOf(&service).Share, service.MaxBatch), want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, u.question(path, &service).Known); diff != "" {
		t.Error(diff)
	}
	u.config.Worker.LoadTimeout = 8 * time.Second
	service.MPS.PinnedMemory = 1 << 30
	if q := u.question(path, &service); q.Known == nil || q.Finest != wire.FinestChoice || q.BudgetNanos != int64(2*time.Second) {
		t.Errorf("little time, and memory of its own: %+v", q)
	}
	for name, change := range map[string]func(){
		"another batch":  func() { service.MaxBatch++ },
		"another device": func() { u.text = "another" },
		"TF32":           func() { u.config.CUDA.TF32 = !u.config.CUDA.TF32 },
		"CUDA graphs":    func() { u.config.CUDA.Graphs = !u.config.CUDA.Graphs },
		"more threads":   func() { service.Threads = 9 },
	} {
		if change(); u.question(path, &service).Known != nil {
			t.Errorf("%s: what was chosen for something else is known", name)
		}
		service, u.text, u.config.CUDA = config.DefaultService(), "a GPU", config.Default().CUDA
	}
	if err := s.save(cutChoices, u.cutKey(hash, u.placeOf(&service).Share, service.MaxBatch), "no choice"); err != nil {
		t.Fatal(err)
	}
	if q := u.question(path, &service); q == nil || q.Known != nil {
		t.Errorf("what cannot be read: %+v", q)
	}
	if q := u.question("/nonexistent", &service); q == nil || q.Known != nil {
		t.Errorf("no model: %+v", q)
	}
	if service.Cut = 3; u.question(path, &service) != nil {
		t.Error("a cut that is said is asked for")
	}
}

// TestSpecOfAGPU looks at what the worker of a service on a GPU is told of it.
func TestSpecOfAGPU(t *testing.T) {
	for _, mode := range []string{config.MPSOwn, config.MPSOff} {
		u := &poolDevice{config: config.Default(), text: "a GPU", cores: 2, life: t.Context(), part: new(gpu.Part)}
		u.config.MPS.Mode, u.config.StateDir = mode, t.TempDir()
		service := config.DefaultService()
		service.Name, service.Model = "a", "none.onnx"
		place, err := u.worker(0, &service)
		if err != nil {
			t.Fatal(err)
		}
		c := place.Worker.Load.CUDA
		if c == nil || !c.TF32 || c.MPS == nil || *c.MPS != (mode != config.MPSOff) {
			t.Errorf("MPS %s: %+v", mode, c)
		}
	}
}

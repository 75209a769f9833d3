package segments

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// chooseSpec asks for a choice with time enough.
func chooseSpec(t *testing.T, model string, finest int) wire.LoadSpec {
	return wire.LoadSpec{
		ModelPath: openZoo(t, model), CacheDir: t.TempDir(), MaxBatch: 3,
		Choose: &wire.ChooseSpec{Finest: finest, BudgetNanos: int64(time.Hour)},
	}
}

// TestChooseOnGPU measures on a device without a GPU: the choice is one of what
// was tried, told on the way and in Info, and taken again without measuring.
func TestChooseOnGPU(t *testing.T) {
	env := openEnv(t)
	device, _ := openFakeGPU(t, env, fakeSpec{})
	spec := chooseSpec(t, "tiny_cnn", 6)
	var phases []string
	load := func() wire.Info {
		t.Helper()
		phases = nil
		progress := func(phase string, _, _ int64) { phases = append(phases, phase) }
		s, err := loadService(env, device, spec, progress)
		if err != nil {
			t.Fatal(err)
		}
		info := s.Info()
		if err := s.model.Close(); err != nil {
			t.Error(err)
		}
		return info
	}
	info := load()
	c := info.Cut
	if !c.Measured() || c.Hash != info.Hash || c.MaxBatch != 3 || !slices.Contains(phases, "choose") || c.Reason == "" {
		t.Fatalf("%+v, phases %v", c, phases)
	}
	if first := c.Costs[0]; first.Segments != 6 || first.Batch != 1 || first.WholeNanos <= 0 || first.CutNanos <= 0 || c.Costs[1].Batch != 3 {
		t.Errorf("%+v", c.Costs)
	}
	if c.Target > 6 || len(info.Operators) > c.Target || c.Target > 1 && slices.ContainsFunc(c.Costs, func(cost wire.CutCost) bool {
		return cost.Segments == len(info.Operators) && cost.Relative() > c.Limit
	}) {
		t.Errorf("%d operators of %+v", len(info.Operators), c)
	}
	known := *c
	known.Target, known.Reason = 2, "as it was"
	spec.Choose.Known = &known
	if info = load(); len(info.Operators) != 2 || info.Cut.Reason != "as it was" || slices.Contains(phases, "choose") {
		t.Errorf("a known choice: %d operators, %+v, %v", len(info.Operators), info.Cut, phases)
	}
	known.Hash = "another model's"
	if info = load(); info.Cut.Hash != info.Hash || !slices.Contains(phases, "choose") {
		t.Errorf("a choice for another model: %+v, %v", info.Cut, phases)
	}
	spec.CutTarget = 3
	if info = load(); info.Cut != nil || len(info.Operators) != 3 {
		t.Errorf("a cut that is said: %d operators, %+v", len(info.Operators), info.Cut)
	}
}

// A model whose cuts cannot be measured is cut as if nothing had been asked.
func TestChooseCannotMeasure(t *testing.T) {
	env := openEnv(t)
	g := newGraph()
	g.input("in", models.String, 3)
	g.node("Identity", list("in"), list("mid"))
	g.node("Identity", list("mid"), list("out"))
	g.output("out", models.String)
	spec := wire.LoadSpec{ModelPath: g.write(t), CacheDir: t.TempDir(), Choose: &wire.ChooseSpec{BudgetNanos: int64(time.Hour)}}
	s, err := loadService(env, nil, spec, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Info().Cut; c.Measured() || c.Target != 0 || !strings.Contains(c.Reason, "no data can be generated") {
		t.Errorf("%+v", c)
	}
	if err := s.model.Close(); err != nil {
		t.Error(err)
	}
	spec.ModelPath = "/nonexistent"
	if _, err := loadService(env, nil, spec, nothing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no model: %v", err)
	}
}

// Where two of a model do not fit, nothing is measured; a device that is lost
// meanwhile ends the worker.
func TestChooseWithoutRoom(t *testing.T) {
	env := openEnv(t)
	spec := chooseSpec(t, "tiny_add", 0)
	limit := contextBytes + 5*sessionHandleBytes/2 // room for its two operators, but not alongside the whole
	device, _, err := newFakeGPU(env, fakeSpec{CUDASpec: wire.CUDASpec{MemoryBytes: limit}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := loadService(env, device, spec, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Info().Cut; c.Measured() || c.Target != wire.DefaultCUDATarget || !strings.Contains(c.Reason, wire.ErrDeviceFull.Error()) {
		t.Errorf("%+v", c)
	}
	if err := s.model.Close(); err != nil {
		t.Error(err)
	}
	closeFakeGPU(t, device)
	device, _ = openFakeGPU(t, env, fakeSpec{})
	failCall(t, fakedriver.CallEventQuery, 2, 806)
	if _, err := loadService(env, device, spec, nothing); !errors.Is(err, wire.ErrDeviceLost) {
		t.Errorf("a device that fails: %v", err)
	}
}

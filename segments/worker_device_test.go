package segments

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/cuda/driver/fakedriver"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
)

// timedEngine is a fakeEngine on a device with a clock, that pins memory or
// refuses to.
type timedEngine struct {
	*fakeEngine
	pinned []bool // read-only
}

func (e *timedEngine) DeviceTime() time.Duration { return 42 }

func (e *timedEngine) Pin(memory []byte, readOnly bool) error {
	e.pinned = append(e.pinned, readOnly)
	return e.fail["pin"]
}

func TestServeOnADevice(t *testing.T) {
	for name, refusal := range map[string]error{"pins": nil, "does not pin": errors.New("refused")} {
		t.Run(name, func(t *testing.T) {
			engine := &timedEngine{fakeEngine: newFakeEngine()}
			engine.fail["pin"] = refusal
			w := startWorker(t, func(LoadSpec, ProgressFunc) (Engine, error) { return engine, nil })
			w.send(&Load{})
			if p := expect[*Progress](w); p.Phase != "pin" {
				t.Errorf("%+v", p)
			}
			expect[*Ready](w)
			w.send(&Run{Batch: 1, End: 1, Size: 1, Queries: []QueryTensors{w.query(1, "a")}})
			if d := expect[*Done](w); d.DeviceNanos != 42 || d.Nanos <= 0 {
				t.Errorf("%+v", d)
			}
			w.send(&Quit{})
			w.end(nil)
			if !slices.Equal(engine.pinned, []bool{true, false}) {
				t.Errorf("pinned %v", engine.pinned)
			}
		})
	}
}

// TestServeEndsWithItsDevice tells the daemon why, and ends.
func TestServeEndsWithItsDevice(t *testing.T) {
	for code, fault := range map[FailCode]error{CodeDeviceMemory: ErrDeviceMemory, CodeDeviceLost: ErrDeviceLost} {
		t.Run(fault.Error(), func(t *testing.T) {
			w := startLoaded(t, func(w *workerTest) { w.engine.fail["run"] = fault })
			w.send(&Run{Round: 3, Batch: 1, End: 1, Size: 1, Queries: []QueryTensors{w.query(1, "a")}})
			f := expect[*Failed](w)
			if f.Round != 3 || f.Code != code || !f.Code.Ends() || !errors.Is(f.Err(), fault) {
				t.Errorf("%+v", f)
			}
			w.end(fault)
			if !w.engine.closed {
				t.Error("the engine was not closed")
			}
		})
	}
	if CodeEngine.Ends() || CodeMemory.Ends() || CodeDeviceFull.Ends() {
		t.Error("a worker ends for what another batch need not meet")
	}
}

func TestLoadFailedHasACode(t *testing.T) {
	for want, fault := range map[FailCode]error{CodeDeviceFull: ErrDeviceFull, 0: errors.New("something else")} {
		w := startWorker(t, func(LoadSpec, ProgressFunc) (Engine, error) { return nil, fault })
		w.send(&Load{})
		if f := expect[*LoadFailed](w); f.Code != want || f.Message != fault.Error() {
			t.Errorf("%+v", f)
		}
		w.end(ErrLoadFailed)
	}
}

// TestServeOnGPU serves a model on a device without a GPU: over the socket, in
// spans, with pinned arenas, until the device is lost.
func TestServeOnGPU(t *testing.T) {
	env := openEnv(t)
	path := openZoo(t, "tiny_cnn")
	reference := openWhole(t, env, path)
	device, _ := openFakeGPU(t, env, CUDASpec{})
	spec := LoadSpec{ModelPath: path, CacheDir: t.TempDir(), MaxBatch: 3, CutTarget: 3}
	w := startWorker(t, func(_ LoadSpec, progress ProgressFunc) (Engine, error) {
		s, err := loadService(env, device, spec, progress)
		return shared{s}, err
	})
	w.send(&Load{Spec: spec})
	var info Info
	for info.Hash == "" {
		kind, payload, err := w.frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m := newMessage(kind); m.Decode(payload) == nil && kind == KindReady {
			info = m.(*Ready).Info
		}
	}
	if info.Device == "" || info.Memory == nil || info.Memory.Intermediates == 0 || len(info.Operators) < 2 {
		t.Errorf("%+v", info)
	}
	var sizes []int
	for _, solo := range info.Solo {
		sizes = append(sizes, solo.Size)
	}
	if !slices.Equal(sizes, []int{1, 2, 3}) {
		t.Errorf("batches of %v were warmed up", sizes)
	}
	if fakePage[fakedriver.Pins] < 2 {
		t.Errorf("%d ranges are pinned", fakePage[fakedriver.Pins])
	}
	q := randomQuery(t, &models.Model{Inputs: info.Inputs}, 2, 0, rand.New(rand.NewPCG(7, 8)))
	defer thaw(q)
	want, err := reference.run([]QueryInputs{q})
	if err != nil {
		t.Fatal(err)
	}
	w.send(&Run{Batch: 1, End: 1, Size: 2, Queries: []QueryTensors{w.tensors(q)}})
	if d := expect[*Done](w); d.Reached != 1 || d.DeviceNanos <= 0 {
		t.Errorf("first span: %+v", d)
	}
	end := len(info.Operators)
	w.send(&Run{Batch: 1, Start: 1, End: end, Size: 2})
	d := expect[*Done](w)
	if !d.Finished || d.DeviceNanos <= 0 {
		t.Fatalf("last span: %+v", d)
	}
	_, data, err := w.outputs.Acquire(&d.Outputs[0][0])
	if err != nil || !slices.Equal(data, want[0][0].data) {
		t.Errorf("%x, %v; expected %x", data, err, want[0][0].data)
	}
	failCall(t, fakedriver.CallEventSync, 1, 806) // the MPS server went away; what is freed later is freed
	w.send(&Run{Batch: 2, End: end, Size: 2, Queries: []QueryTensors{w.tensors(q)}})
	if f := expect[*Failed](w); f.Code != CodeDeviceLost || !strings.Contains(f.Message, driver.Result(806).Name()) {
		t.Errorf("%+v", f)
	}
	w.end(ErrDeviceLost)
}

// shared is a service whose device and environment are the test's to close.
type shared struct{ *service }

func (s shared) Close() error { return s.CutModel.Close() }

// tensors puts the inputs of q into the input arena.
func (w *workerTest) tensors(q QueryInputs) QueryTensors {
	w.t.Helper()
	t := QueryTensors{ID: 1}
	for _, in := range q.Inputs {
		offset, data, err := w.inputs.Alloc(int64(len(in.Data)))
		if err != nil {
			w.t.Fatal(err)
		}
		copy(data, in.Data)
		t.Inputs = append(t.Inputs, Tensor{Type: in.Type, Shape: in.Shape, Offset: offset, Bytes: int64(len(in.Data))})
	}
	return t
}

func TestWarmSizes(t *testing.T) {
	for _, c := range []struct {
		largest int
		every   bool
		want    []int
	}{
		{1, false, []int{1}},
		{1, true, []int{1}},
		{8, false, []int{1, 8}},
		{4, true, []int{1, 2, 3, 4}},
		{100, true, []int{1, 2, 4, 8, 16, 32, 64, 100}},
	} {
		if got := warmSizes(c.largest, c.every); !slices.Equal(got, c.want) {
			t.Errorf("up to %d, every %t: %v, expected %v", c.largest, c.every, got, c.want)
		}
	}
}

// TestWarmLengths warms up each sequence length with each batch size, and fails
// where the device does.
func TestWarmLengths(t *testing.T) {
	env := openEnv(t)
	device, fake := openFakeGPU(t, env, CUDASpec{})
	spec := LoadSpec{
		ModelPath: openZoo(t, "tiny_bert"), CacheDir: t.TempDir(), MaxBatch: 2, WarmSeqLens: []int{8, 16}, CutTarget: 2,
	}
	s, err := loadService(env, device, spec, nothing)
	if err != nil {
		t.Fatal(err)
	}
	var warmed [][2]int
	for _, solo := range s.Info().Solo {
		warmed = append(warmed, [2]int{solo.Size, solo.SeqLen})
	}
	if !slices.Equal(warmed, [][2]int{{1, 8}, {2, 8}, {1, 16}, {2, 16}}) {
		t.Errorf("warmed up %v", warmed)
	}
	if len(s.layouts) != len(warmed) {
		t.Errorf("%d layouts", len(s.layouts))
	}
	memory := s.DeviceMemory()
	if err := s.CutModel.Close(); err != nil {
		t.Error(err)
	}
	failCall(t, fakedriver.CallEventSync, 3, 806)
	if _, err := loadService(env, device, spec, nothing); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("a device that fails: %v", err)
	}
	fake.given = memory.Sum() - 1
	if _, err := loadService(env, device, spec, nothing); !errors.Is(err, ErrDeviceFull) || !strings.Contains(err.Error(), "a batch of 2") {
		t.Errorf("a byte too little: %v", err)
	}
}

// TestServiceClosesItsDevice closes all that a worker's service holds.
func TestServiceClosesItsDevice(t *testing.T) {
	skipWithoutLibrary(t)
	path, err := ort.Find()
	if err != nil {
		t.Fatal(err)
	}
	lib, err := ort.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	env, err := lib.NewEnv(ort.EnvOptions{IntraThreads: 1, SharedArena: true, LogLevel: ort.LogFatal})
	if err != nil {
		t.Fatal(err)
	}
	device, _, err := newFakeGPU(env, CUDASpec{})
	if err != nil {
		t.Fatal(err)
	}
	spec := LoadSpec{ModelPath: openZoo(t, "tiny_mlp"), CacheDir: t.TempDir()}
	s, err := loadService(env, device, spec, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pin(make([]byte, 4096), false); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	expectEmptyGPU(t)
	if fakePage[fakedriver.Contexts] != 0 || fakePage[fakedriver.Streams] != 0 || fakePage[fakedriver.Events] != 0 {
		t.Error("the device is still open")
	}
}

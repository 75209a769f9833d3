package segments

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// TestServeOnGPU serves a model on a device without a GPU: over the socket, in
// spans, with pinned arenas, until the device is lost.
func TestServeOnGPU(t *testing.T) {
	env := openEnv(t)
	path := openZoo(t, "tiny_cnn")
	reference := openWhole(t, env, path)
	device, _ := openFakeGPU(t, env, fakeSpec{})
	spec := wire.LoadSpec{ModelPath: path, CacheDir: t.TempDir(), MaxBatch: 3, CutTarget: 3}
	w := serve(t, func(_ wire.LoadSpec, memory worker.Memory, progress worker.ProgressFunc) (worker.Engine, error) {
		s, err := loadService(env, device, spec, progress)
		if err == nil {
			s.pin(memory.Inputs)
			s.pin(memory.Outputs)
		}
		return shared{s}, err
	})
	spec.CUDA = &wire.CUDASpec{}
	w.send(&spec)
	var info wire.Info
	w.await(&info)
	if info.Device == "" || len(info.Operators) < 2 {
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
	want, err := reference.run([]wire.QueryTensors{q})
	if err != nil {
		t.Fatal(err)
	}
	w.send(&wire.Run{Batch: 1, End: 1, Size: 2, Queries: []wire.QueryTensors{w.tensors(q)}})
	if d := w.done(); d.Reached != 1 || d.DeviceNanos <= 0 {
		t.Errorf("first span: %+v", d)
	}
	end := len(info.Operators)
	w.send(&wire.Run{Batch: 1, Start: 1, End: end, Size: 2})
	d := w.done()
	if !d.Finished() || d.DeviceNanos <= 0 {
		t.Fatalf("last span: %+v", d)
	}
	_, data, err := w.outputs.Acquire(&d.Outputs[0][0])
	if err != nil || !slices.Equal(data, want[0][0].data) {
		t.Errorf("%x, %v; expected %x", data, err, want[0][0].data)
	}
	failCall(t, fakedriver.CallEventQuery, 1, 806) // the MPS server went away; what is freed later is freed
	w.send(&wire.Run{Batch: 2, End: end, Size: 2, Queries: []wire.QueryTensors{w.tensors(q)}})
	var f wire.Failed
	if w.await(&f); !errors.Is(f.Err(), wire.ErrDeviceLost) || !strings.Contains(f.Message, driver.Result(806).Name()) {
		t.Errorf("%+v", f)
	}
	if err := <-w.served; !errors.Is(err, wire.ErrDeviceLost) {
		t.Error(err)
	}
}

// shared is a service whose device and environment are the test's to close.
type shared struct{ *service }

func (s shared) Close() error { return s.model.Close() }

// TestMovesArePinnedWhenOneMoves looks at what is pinned of the memory for moves.
func TestMovesArePinnedWhenOneMoves(t *testing.T) {
	env := openEnv(t)
	device, _ := openFakeGPU(t, env, fakeSpec{})
	e, err := loadService(env, device, wire.LoadSpec{ModelPath: openZoo(t, "tiny_mlp"), CacheDir: t.TempDir()}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	defer closeCut(t, e.model)
	page := func() []byte {
		memory, err := wire.MapPrivate(4096, "to pin")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { wire.Unmap(memory) })
		return memory
	}
	e.moves = page()
	before := fakePage[fakedriver.Pins]
	for range 2 {
		if _, _, err := e.Describe(7); !errors.Is(err, wire.ErrUnknownBatch) {
			t.Error(err)
		}
		if _, err := e.Import(7, 1, nil, 0, nil); !errors.Is(err, wire.ErrMove) {
			t.Error(err)
		}
		if n := fakePage[fakedriver.Pins] - before; n != 1 {
			t.Errorf("%d ranges more are pinned", n)
		}
	}
}

// daemonEnd is the daemon's end of a worker in this process.
type daemonEnd struct {
	t       *testing.T
	socket  *os.File
	frames  *wire.FrameReader
	inputs  *wire.InputArena
	outputs *wire.Outputs
	served  chan error
}

func serve(t *testing.T, load worker.LoadFunc) *daemonEnd {
	w := &daemonEnd{t: t, served: make(chan error, 1)}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		w.inputs, err = wire.NewInputArena(1<<16, true)
	}
	if err == nil {
		w.outputs, err = wire.NewOutputs(1 << 16)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.socket = os.NewFile(uintptr(pair[0]), "daemon")
	other := os.NewFile(uintptr(pair[1]), "worker")
	w.frames = wire.NewFrameReader(w.socket)
	go func() {
		w.served <- worker.Serve(worker.Files{Socket: other, Inputs: w.inputs.File().Fd(), Outputs: w.outputs.File().Fd()}, load)
		other.Close()
	}()
	t.Cleanup(func() {
		w.socket.Close()
		w.outputs.Close()
		w.inputs.Close()
	})
	return w
}

func (w *daemonEnd) send(m wire.Message) {
	w.t.Helper()
	frame, err := wire.AppendFrame(nil, m)
	if err == nil {
		_, err = w.socket.Write(frame)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// await reads up to a message of the kind of m, into m.
func (w *daemonEnd) await(m wire.Message) {
	w.t.Helper()
	for {
		kind, payload, err := w.frames.Next()
		if err == nil && kind == m.Kind() {
			err = wire.Decode(payload, m)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		if kind == m.Kind() {
			return
		}
	}
}

func (w *daemonEnd) done() *wire.Done {
	w.t.Helper()
	var d wire.Done
	w.await(&d)
	return &d
}

// tensors puts the inputs of q into the input arena.
func (w *daemonEnd) tensors(q wire.QueryTensors) wire.QueryTensors {
	w.t.Helper()
	t := wire.QueryTensors{ID: 1}
	for _, in := range q.Inputs {
		offset, data, err := w.inputs.Alloc(int64(len(in.Data)))
		if err != nil {
			w.t.Fatal(err)
		}
		copy(data, in.Data)
		t.Inputs = append(t.Inputs, models.Tensor{Type: in.Type, Shape: in.Shape, Offset: offset, Bytes: int64(len(in.Data))})
	}
	return t
}

// TestWarmLengths warms up each sequence length with each batch size, and fails
// where the device does.
func TestWarmLengths(t *testing.T) {
	env := openEnv(t)
	device, _, err := newFakeGPU(env, fakeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	spec := wire.LoadSpec{
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
	if len(s.model.pool.layouts) != len(warmed) {
		t.Errorf("%d layouts", len(s.model.pool.layouts))
	}
	memory := s.model.DeviceMemory()
	if err := s.model.Close(); err != nil {
		t.Error(err)
	}
	failCall(t, fakedriver.CallEventQuery, 3, 806)
	if _, err := loadService(env, device, spec, nothing); !errors.Is(err, wire.ErrDeviceLost) {
		t.Errorf("a device that fails: %v", err)
	}
	closeFakeGPU(t, device)
	device, _ = openFakeGPU(t, env, fakeSpec{CUDASpec: wire.CUDASpec{MemoryBytes: memory.Sum() - 1}})
	if _, err := loadService(env, device, spec, nothing); !errors.Is(err, wire.ErrDeviceFull) || !strings.Contains(err.Error(), "a batch of 2") {
		t.Errorf("a byte too little: %v", err)
	}
}

// TestServingThreadIsWarm counts what the thread does that loads a service and then
// serves it: it runs a batch of each size that is a power of two, and of the largest.
func TestServingThreadIsWarm(t *testing.T) {
	env := openEnv(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fakePage[fakedriver.Thread] = uint64(unix.Gettid())
	defer func() { fakePage[fakedriver.Thread] = 0 }()
	open := func(env *ort.Env, spec wire.CUDASpec) (*gpu.Device, error) {
		d, _, err := newFakeGPU(env, fakeSpec{CUDASpec: spec})
		return d, err
	}
	spec := wire.LoadSpec{ModelPath: openZoo(t, "tiny_mlp"), CacheDir: t.TempDir(), MaxBatch: 6, CutTarget: 3, CUDA: &wire.CUDASpec{}}
	before := fakePage[fakedriver.Records]
	s, err := openService(env, open, spec, worker.Memory{}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	did := fakePage[fakedriver.Records] - before
	want := counted(func() {
		for _, size := range []int64{1, 2, 4, 6} {
			if err := s.model.runOnce(queryOf(t, s.model, size, 0)); err != nil {
				t.Error(err)
			}
		}
	}, fakedriver.Records)[0]
	if did == 0 || did != want {
		t.Errorf("the thread recorded %d events, expected %d", did, want)
	}

	s.warmer.solo = []wire.Solo{{Size: 1 << 40}, {Size: 1}} // the first can be of no model
	var failed error
	said := stderrOf(t, func() { failed = s.warmer.warmThread() })
	if failed != nil || !strings.Contains(said, "a batch of 1099511627776") {
		t.Errorf("a size that is impossible: %v, it said %q", failed, said)
	}
	closeCut(t, s.model)
	closeFakeGPU(t, s.device)

	fails := func(phase string, _, _ int64) {
		if phase == "pin" {
			failCall(t, fakedriver.CallEventQuery, 1, 806)
		}
	}
	if _, err := openService(env, open, spec, worker.Memory{}, fails); !errors.Is(err, wire.ErrDeviceLost) {
		t.Errorf("a device that is lost: %v", err)
	}
	expectEmptyGPU(t)
	if fakePage[fakedriver.Contexts] != 0 || fakePage[fakedriver.Events] != 0 {
		t.Error("the device is still open")
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
	env, err := lib.NewEnv(ort.EnvOptions{IntraThreads: 1})
	if err != nil {
		t.Fatal(err)
	}
	device, _, err := newFakeGPU(env, fakeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	spec := wire.LoadSpec{ModelPath: openZoo(t, "tiny_mlp"), CacheDir: t.TempDir()}
	s, err := loadService(env, device, spec, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.device.Pin(make([]byte, 4096)); err != nil {
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

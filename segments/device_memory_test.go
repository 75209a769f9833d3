package segments

import (
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// What the driver and the libraries are taken to need.
var (
	sessionHandleBytes = wire.NeedDeviceMemory(0, 1).Handles
	contextBytes       = wire.NeedDeviceMemory(0, 1).Context
)

// TestGPUAccounts opens models on a device that has little memory.
func TestGPUAccounts(t *testing.T) {
	env := openEnv(t)
	path := openZoo(t, "tiny_mlp")
	c := Config{Path: path, CacheDir: t.TempDir(), Target: 2}
	device, _, err := newFakeGPU(env, fakeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	c.Device = device
	m, err := OpenModel(env, c)
	if err != nil {
		t.Fatal(err)
	}
	q := queryOf(t, m, 4, 0)
	before := m.DeviceMemory()
	if before.Weights == 0 || before.Sessions != 2 || before.Handles != 2*sessionHandleBytes || before.Free != fakeLimitBytes {
		t.Errorf("%+v", before)
	}
	if _, err := runAll(m, 1, q); err != nil {
		t.Fatal(err)
	}
	if after := m.DeviceMemory(); after.Intermediates == 0 || after.Sum() != before.Sum()+after.Intermediates ||
		before.Taken != 0 || after.Taken != int64(fakePage[fakedriver.Bytes]) {
		t.Errorf("after a run: %v", after)
	}
	failCall(t, fakedriver.CallInfo, 1, 719)
	if _, err := OpenModel(env, c); !errors.Is(err, wire.ErrDeviceLost) {
		t.Errorf("a device that does not answer: %v", err)
	}
	fakePage[fakedriver.Sticky] = 0
	closeCut(t, m)
	closeFakeGPU(t, device)

	limited := func(bytes int64, test func()) {
		device, _, err := newFakeGPU(env, fakeSpec{CUDASpec: wire.CUDASpec{MemoryBytes: contextBytes + 2*sessionHandleBytes + bytes}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeFakeGPU(t, device)
		c.Device = device
		test()
	}
	limited(before.Weights/2, func() {
		if _, err := OpenModel(env, c); !errors.Is(err, wire.ErrDeviceFull) || !strings.Contains(err.Error(), "the limit of the service is ") {
			t.Errorf("given too little: %v", err)
		}
	})
	limited(before.Weights+100, func() {
		tight, err := OpenModel(env, c)
		if err != nil {
			t.Fatal(err)
		}
		defer closeCut(t, tight)
		if _, err := runAll(tight, 1, q); !errors.Is(err, wire.ErrMemory) {
			t.Errorf("no room for intermediates: %v", err)
		}
	})
	if near := openCut(t, env, Config{Path: path}); near.DeviceMemory() != (wire.DeviceMemory{}) {
		t.Errorf("on the CPU: %+v", near.DeviceMemory())
	}
}

// TestGPUExpectsWhatItCounts compares what the daemon expects of a model with what the
// worker counts, where convolutions have several sets of sessions.
func TestGPUExpectsWhatItCounts(t *testing.T) {
	env := openEnv(t)
	path, cache := openZoo(t, "tiny_cnn"), t.TempDir()
	device, _ := openFakeGPU(t, env, fakeSpec{})
	plant(t, env, device, path, cache) // the optimizer would take nodes away
	f, err := models.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := openCut(t, env, Config{Path: path, CacheDir: cache, Device: device, Rungs: 4})
	expected, counted := wire.ExpectDeviceMemory(f, -1, 8), m.DeviceMemory()
	if expected.Sessions != counted.Sessions || expected.Handles != counted.Handles || counted.Sessions <= len(m.loaded.sessions) {
		t.Errorf("%d sessions are expected, and %d counted of %d segments", expected.Sessions, counted.Sessions, len(m.loaded.sessions))
	}
	if names := counted.Weights / 10; expected.Weights > counted.Weights || expected.Weights < counted.Weights-names {
		t.Errorf("weights of %d bytes are expected, and %d counted with their names", expected.Weights, counted.Weights)
	}
}

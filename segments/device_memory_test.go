package segments

import (
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda/driver/fakedriver"
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
	device, fake := openFakeGPU(t, env, fakeSpec{})
	c := Config{Path: path, CacheDir: t.TempDir(), Target: 2, Device: device}
	m := openCut(t, env, c)
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
	fake.given = contextBytes + 2*sessionHandleBytes + before.Weights/2
	if _, err := OpenModel(env, c); !errors.Is(err, wire.ErrDeviceFull) || !strings.Contains(err.Error(), "the service is given") {
		t.Errorf("given too little: %v", err)
	}
	fake.given = contextBytes + 2*sessionHandleBytes + before.Weights + 100
	tight := openCut(t, env, c)
	if _, err := runAll(tight, 1, q); !errors.Is(err, wire.ErrMemory) {
		t.Errorf("no room for intermediates: %v", err)
	}
	failCall(t, fakedriver.CallInfo, 1, 719)
	if _, err := OpenModel(env, c); !errors.Is(err, wire.ErrDeviceLost) {
		t.Errorf("a device that does not answer: %v", err)
	}
	fakePage[fakedriver.Sticky] = 0
	if near := openCut(t, env, Config{Path: path}); near.DeviceMemory() != (wire.DeviceMemory{}) {
		t.Errorf("on the CPU: %+v", near.DeviceMemory())
	}
}

package segments

import (
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda/driver/fakedriver"
	"github.com/overlapd/overlapd/models"
)

func TestDeviceMemory(t *testing.T) {
	const mib = 1 << 20
	m := DeviceMemory{
		Weights: 100 * mib, Intermediates: 50 * mib, Sessions: 3, Handles: 120 * mib, Context: 512 * mib,
		Given: 800 * mib, Free: 300 * mib,
	}
	if m.Sum() != 782*mib {
		t.Errorf("the sum is %d", m.Sum())
	}
	want := "weights 100 MiB + intermediates 50 MiB + libraries of 3 segments 120 MiB + context 512 MiB = 782 MiB; " +
		"the service is given 800 MiB, the GPU has 300 MiB free besides the context"
	if m.String() != want {
		t.Errorf("%q, expected %q", m, want)
	}
	for name, c := range map[string]struct {
		change func(*DeviceMemory)
		fits   bool
		room   int64
	}{
		"fits":          {func(*DeviceMemory) {}, true, 68 * mib},
		"no limit":      {func(m *DeviceMemory) { m.Given = 0 }, true, 80 * mib},
		"given too few": {func(m *DeviceMemory) { m.Given = 781 * mib }, false, 49 * mib},
		"too few free":  {func(m *DeviceMemory) { m.Free = 269 * mib }, false, 49 * mib},
		"nothing free":  {func(m *DeviceMemory) { m.Free = 0 }, false, 0},
	} {
		other := m
		c.change(&other)
		err := other.check()
		if (err == nil) != c.fits || err != nil && (!errors.Is(err, ErrDeviceFull) || !strings.Contains(err.Error(), other.String())) {
			t.Errorf("%s: %v", name, err)
		}
		if other.room() != c.room {
			t.Errorf("%s: room for %d MiB of intermediates, expected %d", name, other.room()/mib, c.room/mib)
		}
	}
}

// TestGPUAccounts opens models on a device that has little memory.
func TestGPUAccounts(t *testing.T) {
	env := openEnv(t)
	path := openZoo(t, "tiny_mlp")
	device, fake := openFakeGPU(t, env, CUDASpec{})
	c := Config{Path: path, CacheDir: t.TempDir(), Target: 2, Device: device, Limits: models.DefaultLimits()}
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
	if _, err := OpenModel(env, c); !errors.Is(err, ErrDeviceFull) || !strings.Contains(err.Error(), "the service is given") {
		t.Errorf("given too little: %v", err)
	}
	fake.given = contextBytes + 2*sessionHandleBytes + before.Weights + 100
	tight := openCut(t, env, c)
	if _, err := runAll(tight, 1, q); !errors.Is(err, ErrMemory) {
		t.Errorf("no room for intermediates: %v", err)
	}
	failCall(t, fakedriver.CallInfo, 1, 719)
	if _, err := OpenModel(env, c); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("a device that does not answer: %v", err)
	}
	fakePage[fakedriver.Sticky] = 0
	if near := openCut(t, env, Config{Path: path}); near.DeviceMemory() != (DeviceMemory{}) {
		t.Errorf("on the CPU: %+v", near.DeviceMemory())
	}
}

package wire

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
)

// openZoo builds a model of the zoo and opens it for the time of a test.
func openZoo(t *testing.T, name string) *models.File {
	t.Helper()
	path, err := zoo.Build(name, t.TempDir(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := models.Open(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Each further size of the ladder takes the sessions and the weights of convolutions again.
func TestExpectLadder(t *testing.T) {
	f := openZoo(t, "tiny_cnn")
	const convolutions = 3
	nodes, once := len(f.Graph.Nodes), ExpectDeviceMemory(f, -1, 1)
	for most, sets := range map[int]int{0: 1, 2: 2, 3: 3, 8: 4, 4096: 13} {
		m, grown := ExpectDeviceMemory(f, -1, most), int64(sets-1)
		if m.Sessions != nodes+(sets-1)*convolutions || m.Weights <= once.Weights-1 || grown > 0 && (m.Weights-once.Weights)%grown != 0 || m.Weights > int64(sets)*once.Weights {
			t.Errorf("up to %d: %+v, with one size %+v", most, m, once)
		}
		if few := ExpectDeviceMemory(f, 2, most); few.Sessions != 2*sets {
			t.Errorf("up to %d, two segments: %d sessions", most, few.Sessions)
		}
	}
}

func TestExpectDeviceMemory(t *testing.T) {
	f := openZoo(t, "tiny_mlp")
	nodes := len(f.Graph.Nodes)
	for target, sessions := range map[int]int{0: min(nodes, DefaultCUDATarget), -1: nodes, 2: 2, 1000: nodes} {
		m := ExpectDeviceMemory(f, target, 32)
		if m.Sessions != sessions || m.Handles != int64(sessions)*sessionHandleBytes || m.Context != contextBytes {
			t.Errorf("target %d: %+v, want %d sessions", target, m, sessions)
		}
		if m.Weights <= 0 || m.Weights > 1<<20 {
			t.Errorf("weights of %d bytes", m.Weights)
		}
	}
	m := DeviceMemory{Weights: 1 << 20, Sessions: 2, Handles: 80 << 20, Context: 512 << 20}
	if got, want := m.Sums(), "weights 1 MiB + libraries of 2 sessions 80 MiB + context 512 MiB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	m.Intermediates = 2 << 20
	if got, want := m.Sums(), "weights 1 MiB + intermediates 2 MiB + libraries of 2 sessions 80 MiB + context 512 MiB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDeviceMemory(t *testing.T) {
	const mib = 1 << 20
	m := DeviceMemory{
		Weights: 100 * mib, Intermediates: 50 * mib, Sessions: 3, Handles: 120 * mib, Context: 512 * mib,
		Given: 800 * mib, Free: 300 * mib,
	}
	if m.Sum() != 782*mib {
		t.Errorf("the sum is %d", m.Sum())
	}
	want := "weights 100 MiB + intermediates 50 MiB + libraries of 3 sessions 120 MiB + context 512 MiB = 782 MiB; " +
		"the limit of the service is 800 MiB, the GPU has 300 MiB free in addition to the context"
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
		err := other.Check()
		if (err == nil) != c.fits || err != nil && (!errors.Is(err, ErrDeviceFull) || !strings.Contains(err.Error(), other.String())) {
			t.Errorf("%s: %v", name, err)
		}
		if other.Room() != c.room {
			t.Errorf("%s: room for %d MiB of intermediates, expected %d", name, other.Room()/mib, c.room/mib)
		}
	}
}

package segments

import (
	"path/filepath"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
)

func TestExpectDeviceMemory(t *testing.T) {
	path, err := zoo.Build("tiny_mlp", t.TempDir(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := models.Open(filepath.Clean(path), models.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	nodes := len(f.Graph.Nodes)
	for target, sessions := range map[int]int{0: min(nodes, DefaultCUDATarget), -1: nodes, 2: 2, 1000: nodes} {
		m := ExpectDeviceMemory(f, target)
		if m.Sessions != sessions || m.Handles != int64(sessions)*sessionHandleBytes || m.Context != contextBytes {
			t.Errorf("target %d: %+v, want %d sessions", target, m, sessions)
		}
		if m.Weights <= 0 || m.Weights > 1<<20 {
			t.Errorf("weights of %d bytes", m.Weights)
		}
	}
	m := DeviceMemory{Weights: 1 << 20, Sessions: 2, Handles: 80 << 20, Context: 512 << 20}
	if got, want := m.Sums(), "weights 1 MiB + libraries of 2 segments 80 MiB + context 512 MiB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	m.Intermediates = 2 << 20
	if got, want := m.Sums(), "weights 1 MiB + intermediates 2 MiB + libraries of 2 segments 80 MiB + context 512 MiB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

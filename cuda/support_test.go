package cuda_test

import (
	"testing"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

// open opens a fake host, which must be closed as often as it was opened.
func open(t *testing.T, s *fakegpu.Server) *cuda.Host {
	t.Helper()
	h, err := cuda.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func facts(t *testing.T, h *cuda.Host) cuda.Facts {
	t.Helper()
	f, err := h.Facts()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func place(t *testing.T, s *fakegpu.Server, profile, start, slices uint32) {
	t.Helper()
	if err := s.Place(0, profile, start, slices); err != nil {
		t.Fatal(err)
	}
}

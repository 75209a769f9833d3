package ort

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"github.com/overlapd/overlapd/models"
)

func TestMemory(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	for name, host := range map[string]bool{CPUMemory: true, CUDAMemory: false, "CudaPinned": true} {
		m, err := e.NewMemory(name, 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if e.lib.onHost(m.info) != host {
			t.Errorf("the host can read %s: %v", name, !host)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); !errors.Is(err, ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
	}
	if m, err := e.NewMemory("nowhere", 0); err == nil {
		t.Errorf("memory of no device: %v", m)
	}
}

// TestTensorAt puts a tensor on an address, as one does with a GPU's memory.
func TestTensorAt(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	host, err := e.NewMemory(CPUMemory, 0)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, host)
	_, data := floats(t, e, []int64{3}, 1, 2, 3)
	address := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
	v, err := e.TensorAt(host, address, 12, models.Float32, []int64{3})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, v)
	if got := values(t, v); !slices.Equal(got, []float32{1, 2, 3}) {
		t.Errorf("got %v", got)
	}
	if at, err := v.Address(); err != nil || at != address {
		t.Errorf("at %x, %v; expected %x", at, err, address)
	}
	if _, err := e.TensorAt(host, address, 11, models.Float32, []int64{3}); err == nil {
		t.Error("three floats in eleven bytes")
	}
	if _, err := e.TensorAt(host, address, 12, models.String, []int64{3}); err == nil {
		t.Error("strings on an address")
	}
	gpu, err := e.NewMemory(CUDAMemory, 1)
	if err != nil {
		t.Fatal(err)
	}
	far, err := e.TensorAt(gpu, 0x302000000, 12, models.Float32, []int64{3}) // nobody reads there
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, far)
	if at, err := far.Address(); err != nil || at != 0x302000000 {
		t.Errorf("at %x, %v", at, err)
	}
	if err := gpu.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.TensorAt(gpu, 0, 0, models.Float32, []int64{0}); !errors.Is(err, ErrClosed) {
		t.Errorf("in memory that is closed: %v", err)
	}
}

func TestSessionMemory(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	s := newSession(t, e, add())
	in, out, err := s.OnHost()
	if err != nil || len(in) != 2 || !in[0] || !in[1] || len(out) != 1 || !out[0] {
		t.Errorf("inputs in %+v, outputs in %+v, %v", in, out, err)
	}
	closed, err := e.NewSession(add().encode(), SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if _, _, err := closed.OnHost(); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed session: %v", err)
	}
}

package ort

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCUDACannotStart asks for what the pinned library cannot do: it has CUDA
// built in, but not the files beside it that a GPU needs.
func TestCUDACannotStart(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	probe := e.ProbeCUDA(0)
	if probe == nil {
		t.Skip("the library can start CUDA")
	}
	want, parts := ErrProvider, []string{"libonnxruntime_providers_cuda.so", "cuDNN 9"}
	if names, err := e.lib.Providers(); err == nil && needsCUDA("", names) != nil {
		want, parts = ErrNoProvider, []string{e.lib.Path()}
	}
	_, session := e.NewSession(add().encode(), SessionOptions{CUDA: &CUDAOptions{}})
	for name, err := range map[string]error{"probe": probe, "session": session, "arena": e.RegisterCUDAArena(CUDAOptions{})} {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
	if s, err := e.NewSession(add().encode(), SessionOptions{}); err != nil {
		t.Errorf("a session for the CPU after that: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestNeedsCUDA(t *testing.T) {
	if err := needsCUDA("lib.so", []string{"CPUExecutionProvider", CUDAProvider}); err != nil {
		t.Error(err)
	}
	err := needsCUDA("lib.so", []string{"CPUExecutionProvider"})
	if !errors.Is(err, ErrNoProvider) {
		t.Fatal(err)
	}
	for _, part := range []string{"lib.so", "CPUExecutionProvider", "onnxruntime-gpu", PathVariable} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestCUDAPairs(t *testing.T) {
	defaults := map[string]string{
		"device_id": "0", "use_tf32": "0", "arena_extend_strategy": "kSameAsRequested",
	}
	if diff := cmp.Diff(defaults, (&CUDAOptions{}).pairs()); diff != "" {
		t.Error(diff)
	}
	o := CUDAOptions{
		Device: 3, LimitBytes: 1 << 33, ConvSearch: ConvHeuristic, TF32: true, Graphs: true,
	}
	want := map[string]string{
		"device_id": "3", "use_tf32": "1", "arena_extend_strategy": "kSameAsRequested", "gpu_mem_limit": "8589934592",
		"cudnn_conv_algo_search": "HEURISTIC", "enable_cuda_graph": "1",
	}
	if diff := cmp.Diff(want, o.pairs()); diff != "" {
		t.Error(diff)
	}
}

// TestPinnedArena looks at where the tables of kernels lie that all sessions share: in
// memory that the host reads, in what the runtime takes for one of its arenas.
func TestPinnedArena(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	if pinnedArena.allocator == deviceAllocator || pinnedArena.limitBytes != 0 {
		t.Errorf("%+v: the runtime waits for the stream after each run", pinnedArena)
	}
	info, err := memoryInfo(e.lib, pinnedArena.memory, 0, pinnedArena.allocator)
	if err != nil {
		t.Fatal(err)
	}
	e.open.memories.Add(1)
	closeAfter(t, &Memory{env: e, info: info})
	if !e.lib.onHost(info) {
		t.Error("the host cannot read the pinned arena")
	}
	if names, err := e.lib.Providers(); err == nil && needsCUDA("", names) == nil {
		t.Skip("the library might register it")
	}
	if err := e.RegisterPinnedArena(CUDAOptions{}); err == nil {
		t.Error("a library for the CPU has made an arena for a GPU")
	}
}

package ort

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProviders(t *testing.T) {
	names, err := openLibrary(t).Providers()
	if err != nil || !slices.Contains(names, "CPUExecutionProvider") {
		t.Errorf("%v, %v", names, err)
	}
}

// TestCUDACannotStart asks for what the pinned library cannot do: it has CUDA
// built in, but not the files beside it that a GPU needs.
func TestCUDACannotStart(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1, SharedArena: true})
	probe := e.ProbeCUDA(0)
	if probe == nil {
		t.Skip("the library can start CUDA")
	}
	want, parts := ErrProvider, []string{"libonnxruntime_providers_cuda.so", "cuDNN 9"}
	if errors.Is(e.lib.needCUDA(), ErrNoProvider) {
		want, parts = ErrNoProvider, []string{e.lib.Path()}
	}
	_, session := e.NewSession(add().encode(), SessionOptions{CUDA: &CUDAOptions{}})
	for name, err := range map[string]error{"probe": probe, "session": session, "arena": e.RegisterCUDAArena(0, ArenaOptions{})} {
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

// TestWrongCUDAOptions gives an option that the runtime does not know.
func TestWrongCUDAOptions(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	_, err := e.NewSession(add().encode(), SessionOptions{CUDA: &CUDAOptions{More: map[string]string{"no such option": "1"}}})
	if !errors.Is(err, ErrProvider) && !errors.Is(err, ErrNoProvider) {
		t.Errorf("%v", err)
	}
}

func TestCUDAPairs(t *testing.T) {
	defaults := map[string]string{
		"device_id": "0", "use_tf32": "0", "prefer_nhwc": "0", "enable_cuda_graph": "0", "do_copy_in_default_stream": "1",
		"cudnn_conv_use_max_workspace": "1", "arena_extend_strategy": "kNextPowerOfTwo",
	}
	if diff := cmp.Diff(defaults, (&CUDAOptions{}).pairs()); diff != "" {
		t.Error(diff)
	}
	o := CUDAOptions{
		Device: 3, Arena: ArenaOptions{ExtendAsRequested: true, LimitBytes: 1 << 33}, ConvSearch: ConvHeuristic,
		ConvSmallWorkspace: true, TF32: true, PreferNHWC: true, Graph: true, CopyStream: true,
		More: map[string]string{"fuse_conv_bias": "1"},
	}
	want := map[string]string{
		"device_id": "3", "use_tf32": "1", "prefer_nhwc": "1", "enable_cuda_graph": "1", "do_copy_in_default_stream": "0",
		"cudnn_conv_use_max_workspace": "0", "arena_extend_strategy": "kSameAsRequested", "gpu_mem_limit": "8589934592",
		"cudnn_conv_algo_search": "HEURISTIC", "fuse_conv_bias": "1",
	}
	if diff := cmp.Diff(want, o.pairs()); diff != "" {
		t.Error(diff)
	}
}

// TestArenaStatsIn reads the shared arena by the name of its memory.
func TestArenaStatsIn(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1, SharedArena: true})
	s := newSession(t, e, add())
	x, _ := floats(t, e, []int64{1 << 12})
	results, err := s.Run(nil, []*Value{x, x}, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, results[0])
	m, err := e.NewMemory(CPUMemory, 0)
	if err != nil {
		t.Fatal(err)
	}
	if stats, err := s.ArenaStatsIn(m); err != nil || stats.InUseBytes == 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.ArenaStatsIn(m); !errors.Is(err, ErrClosed) {
		t.Errorf("in memory that is closed: %v", err)
	}
}

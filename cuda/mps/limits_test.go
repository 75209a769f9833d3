package mps

import (
	"slices"
	"strings"
	"testing"
)

func TestClientEnv(t *testing.T) {
	t.Setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "7")
	t.Setenv("CUDA_VISIBLE_DEVICES", "3")
	t.Setenv("OVERLAPD_TEST_KEPT", "yes")
	own := newControl(Options{Device: testDevice}, "", "/d/pipe")
	own.dir = &directory{path: "/d"}
	other := newControl(Options{}, "", "/tmp/nvidia-mps")
	const directories = "CUDA_MPS_LOG_DIRECTORY=/d/log CUDA_MPS_PIPE_DIRECTORY=/d/pipe "
	for name, test := range map[string]struct {
		control *Control
		limits  Limits
		want    string // sorted
	}{
		"no limits": {own, Limits{}, "CUDA_MPS_CLIENT_PRIORITY=0 " + directories + "CUDA_VISIBLE_DEVICES=" + testDevice},
		"all limits": {
			own, Limits{ActiveThreadPercentage: 50, PinnedMemoryBytes: 2<<30 + 5, Priority: "below_normal"},
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 CUDA_MPS_CLIENT_PRIORITY=1 CUDA_MPS_LOG_DIRECTORY=/d/log " +
				"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2048M CUDA_MPS_PIPE_DIRECTORY=/d/pipe CUDA_VISIBLE_DEVICES=" + testDevice,
		},
		"another's": {other, Limits{}, "CUDA_MPS_CLIENT_PRIORITY=0 CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps CUDA_VISIBLE_DEVICES=3"},
	} {
		env := test.control.ClientEnv(test.limits)
		if got := cudaOf(env); got != test.want {
			t.Errorf("%s: %s\nexpected %s", name, got, test.want)
		}
		if !slices.Contains(env, "OVERLAPD_TEST_KEPT=yes") {
			t.Errorf("%s: the rest of the environment is missing", name)
		}
	}
	if got := cudaOf(OffEnv(testDevice)); got != "CUDA_MPS_PIPE_DIRECTORY=/dev/null CUDA_VISIBLE_DEVICES="+testDevice {
		t.Error(got)
	}
}

// cudaOf returns what an environment says of CUDA, sorted.
func cudaOf(env []string) string {
	ours := slices.DeleteFunc(slices.Clone(env), func(v string) bool { return !strings.HasPrefix(v, "CUDA_") })
	slices.Sort(ours)
	return strings.Join(ours, " ")
}

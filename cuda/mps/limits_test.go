package mps

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
		env, err := test.control.ClientEnv(test.limits)
		if err != nil {
			t.Error(name, err)
		}
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

func TestLimitsNameAllFaults(t *testing.T) {
	bad := Limits{ActiveThreadPercentage: 101, PinnedMemoryBytes: 1000, Priority: "high"}
	for _, err := range []error{bad.Validate(), second(newControl(Options{}, "", "/d").ClientEnv(bad))} {
		if !errors.Is(err, ErrLimits) {
			t.Fatal(err)
		}
		for _, part := range []string{"percentage is 101", "1000 bytes", "priority \"high\": write \"normal\" or \"below_normal\""} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("no %q in: %v", part, err)
			}
		}
	}
}

// Limits are right, and then hold no more than was asked for, or are refused.
func TestLimitsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{
			ActiveThreadPercentage: rapid.IntRange(-5, 105).Draw(t, "percentage"),
			PinnedMemoryBytes:      rapid.Int64().Draw(t, "bytes"),
			Priority:               rapid.SampledFrom([]string{"", "normal", "below_normal", "high"}).Draw(t, "priority"),
		}
		fits := l.ActiveThreadPercentage >= 0 && l.ActiveThreadPercentage <= 100 && l.Priority != "high" &&
			(l.PinnedMemoryBytes == 0 || l.PinnedMemoryBytes >= mebi && l.PinnedMemoryBytes < 1<<51)
		if err := l.Validate(); (err == nil) != fits {
			t.Fatalf("%+v: %v", l, err)
		}
		if want := 1 + min(max(l.ActiveThreadPercentage, 0), 1) + int(min(max(l.PinnedMemoryBytes, 0), 1)); fits && len(l.variables()) != want {
			t.Fatalf("%+v: %v", l, l.variables())
		}
	})
}

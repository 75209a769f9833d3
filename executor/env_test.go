package executor

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestEnvironmentWithoutSecrets(t *testing.T) {
	env := []string{
		"PATH=/bin", "OTEL_EXPORTER_OTLP_HEADERS=authorization=secret", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=x",
		"OVERLAPD_TOKEN_FILE=/t", "OVERLAPD_ORT=/lib", "CREDENTIALS_DIRECTORY=/run/c", "NOTIFY_SOCKET=@x",
		"WATCHDOG_USEC=1", "LISTEN_FDS=1", "CUDA_VISIBLE_DEVICES=GPU-1", "LD_LIBRARY_PATH=/cuda",
	}
	want := []string{"PATH=/bin", "OVERLAPD_ORT=/lib", "CUDA_VISIBLE_DEVICES=GPU-1", "LD_LIBRARY_PATH=/cuda"}
	before := slices.Clone(env)
	if got := withoutSecrets(env); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if !slices.Equal(env, before) {
		t.Error("the environment that was given has changed")
	}
}

// TestWorkersGetNoSecrets looks at what a process was really started with.
func TestWorkersGetNoSecrets(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
	f := startReady(t, nil, 1)
	state, err := f.State(0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(state.PID) + "/environ")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "OTEL_") || !strings.Contains(string(text), "PATH=") {
		t.Errorf("%q", strings.Split(string(text), "\x00"))
	}
}

package executor

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

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

package ort

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNothingIsCollected looks at what a process with an environment has open:
// neither the database nor the log of ONNX Runtime's telemetry.
func TestNothingIsCollected(t *testing.T) {
	openEnv(t, EnvOptions{})
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		name, err := os.Readlink(f)
		if err != nil {
			continue // it is closed again, as that of the folder
		}
		if strings.Contains(name, "onnxruntime.db") || strings.Contains(name, "mat-debug") {
			t.Errorf("%s is open", name)
		}
	}
	if log := fmt.Sprintf("/tmp/mat-debug-%d.log", os.Getpid()); exists(log) {
		t.Errorf("there is %s", log)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

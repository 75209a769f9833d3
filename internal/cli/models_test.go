package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestModelPath(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("own.onnx", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(cache, "overlapd", "models", "tiny_add.onnx")
	for name, want := range map[string]string{
		"tiny_add":     built,
		"zoo:tiny_add": built,
		"own.onnx":     "own.onnx",
		"./own.onnx":   "./own.onnx",
	} {
		got, err := ModelPath(name)
		if got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
		if _, err := os.Stat(want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"tiny_subtract", "zoo:tiny_subtract", "./tiny_add"} {
		if got, err := ModelPath(name); err == nil || !strings.Contains(err.Error(), "models list") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/var/cache")
	if got, err := CacheDir("models"); got != "/var/cache/overlapd/models" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("CACHE_DIRECTORY", "/var/cache/overlapd/cpu:/var/cache/other")
	if got, err := CacheDir("models"); got != "/var/cache/overlapd/cpu/models" || err != nil {
		t.Errorf("below systemd: got %q, %v", got, err)
	}
	t.Setenv("CACHE_DIRECTORY", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got, err := CacheDir("models"); err == nil || !strings.Contains(err.Error(), "set XDG_CACHE_HOME") {
		t.Errorf("without a home: got %q, %v", got, err)
	}
}

func TestProcessorName(t *testing.T) {
	cores := fmt.Sprintf(", %d cores", runtime.NumCPU())
	for info, want := range map[string]string{
		"processor\t: 0\nmodel name\t: Fast: 3 GHz\nmodel name\t: other\n": "Fast: 3 GHz" + cores,
		"processor\t: 0\n": "cpu" + cores,
		"":                 "cpu" + cores,
	} {
		file := filepath.Join(t.TempDir(), "cpuinfo")
		if err := os.WriteFile(file, []byte(info), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := processorName(file); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := CPU(); !strings.HasSuffix(got, cores) {
		t.Errorf("this machine: %q", got)
	}
}

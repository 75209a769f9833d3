package main

import (
	"os"
	"path/filepath"
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
		got, err := modelPath(name)
		if got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
		if _, err := os.Stat(want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"tiny_subtract", "zoo:tiny_subtract", "./tiny_add"} {
		if got, err := modelPath(name); err == nil || !strings.Contains(err.Error(), "models list") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/var/cache")
	if got, err := cacheDir("models"); got != "/var/cache/overlapd/models" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("CACHE_DIRECTORY", "/var/cache/overlapd/cpu:/var/cache/other")
	if got, err := cacheDir("models"); got != "/var/cache/overlapd/cpu/models" || err != nil {
		t.Errorf("below systemd: got %q, %v", got, err)
	}
	t.Setenv("CACHE_DIRECTORY", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got, err := cacheDir("models"); err == nil || !strings.Contains(err.Error(), "set XDG_CACHE_HOME") {
		t.Errorf("without a home: got %q, %v", got, err)
	}
}

func TestMetric(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 99_949: "99.9 kB", 99_950: "100 kB", 999_499: "999 kB",
		999_500: "1.0 MB", 102_000_000: "102 MB", 3_000_000_000: "3.0 GB", 5_000_000_000_000_000: "5000 TB",
	} {
		if got := metric(n, "B"); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
	if got := metric(12, ""); got != "12" {
		t.Errorf("without a unit: %q", got)
	}
}

package ort

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindByVariable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.so")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(PathVariable, file)
	if got, err := Find(); got != file || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for value, why := range map[string]string{
		dir:                      "not a file",
		file + "x":               "no such file",
		file + "/x":              "not a directory",
		strings.Repeat("x", 300): "name too long",
	} {
		t.Setenv(PathVariable, value)
		got, err := Find()
		if got != "" || !errors.Is(err, ErrNotFound) {
			t.Fatalf("got %q, %v", got, err)
		}
		for _, part := range []string{why, value, remedy} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in: %v", part, err)
			}
		}
	}
}

func TestFindInCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(PathVariable, "")
	t.Setenv("XDG_CACHE_HOME", cache)
	dir := filepath.Join(cache, "overlapd", "onnxruntime-"+PinnedVersion+"-cpu")

	if got, err := Find(); err == nil {
		t.Skipf("this host has a library in %s, which comes first or last", got)
	} else if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), dir) ||
		!strings.Contains(err.Error(), "/usr/lib/overlapd") || !strings.Contains(err.Error(), remedy) {
		t.Error(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(dir, libraryName)
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Find(); got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestFindWithoutHome(t *testing.T) {
	t.Setenv(PathVariable, "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := Find(); err != nil && !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	for _, dir := range places() {
		if !filepath.IsAbs(dir) {
			t.Errorf("%q depends on where one stands", dir)
		}
	}
}

package ort

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	l := openLibrary(t)
	if l.Version() == "" || l.Path() == "" || l.Pinned() != (l.Version() == PinnedVersion || l.Version() == PinnedCUDAVersion) {
		t.Errorf("%s is version %q, pinned %v", l.Path(), l.Version(), l.Pinned())
	}
	again, err := Open(l.Path())
	if err != nil || again.Version() != l.Version() {
		t.Errorf("the second time: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		name, path string
		want       error
	}{
		{"absent", filepath.Join(dir, "absent.so"), ErrNotFound},
		{"folder", dir, ErrNotFound},
		{"empty file", write("empty.so", ""), ErrNotRuntime},
		{"text", write("text.so", "INPUT(libc.so.6)"), ErrNotRuntime},
		{"other library", build(t, "int nothing;"), ErrNotRuntime},
		{"no base", build(t, "void *OrtGetApiBase(void) { return 0; }"), ErrNotRuntime},
		{"old", fake(t, "1.23.9"), ErrTooOld},
		{"ancient", fake(t, "0.99.0"), ErrTooOld},
		{"no version", fake(t, "nightly"), ErrTooOld},
		{"without our functions", fake(t, "1.24.0"), ErrTooOld},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := Open(test.path)
			if l != nil || !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			text := err.Error()
			if !strings.Contains(text, test.path) || !strings.HasSuffix(text, remedy) || strings.Contains(text, "\n") {
				t.Errorf("not one sentence with the file and the remedy: %s", text)
			}
		})
	}
}

func TestOpenAnotherVersion(t *testing.T) {
	for _, version := range []string{"1.30.1", "1.42.0", "2.0.0"} {
		l, err := Open(fake(t, version))
		if err != nil {
			t.Fatal(err)
		}
		if l.Pinned() || l.Version() != version {
			t.Errorf("%s is version %s, pinned %v", version, l.Version(), l.Pinned())
		}
	}
	for _, version := range []string{PinnedVersion, PinnedCUDAVersion} {
		if l, err := Open(fake(t, version)); err != nil || !l.Pinned() {
			t.Errorf("the pinned version %s is not: %v", version, err)
		}
	}
}

func TestOpenRelativePath(t *testing.T) {
	path := fake(t, PinnedVersion)
	t.Chdir(filepath.Dir(path))
	if _, err := Open(filepath.Base(path)); err != nil {
		t.Error(err)
	}
}

// fake builds a library that says it is the given version of the runtime. It
// hands out a table, of nothing, from 1.25 on.
func fake(t *testing.T, version string) string {
	t.Helper()
	return build(t, `
static void *table[1];
static const char *version(void) { return "`+version+`"; }
static void *api(unsigned wanted) { return wanted == 24 && __builtin_strcmp(version(), "1.24.0") ? table : 0; }
static void *base[] = {(void *)api, (void *)version};
void *OrtGetApiBase(void) { return base; }
`)
}

func build(t *testing.T, source string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler to build a library with")
	}
	path := filepath.Join(t.TempDir(), "built.so")
	command := exec.Command(compiler, "-shared", "-fPIC", "-o", path, "-x", "c", "-")
	command.Stdin = strings.NewReader(source)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

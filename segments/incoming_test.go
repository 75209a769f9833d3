package segments

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
)

// A worker that is killed while it optimizes leaves a file as large as its model.
// The next one that optimizes removes it, but not what another may be at.
func TestCacheForgetsTheKilled(t *testing.T) {
	dir := t.TempDir()
	long := time.Now().Add(-2 * incomingGrace)
	files := map[string]*os.File{}
	for _, name := range []string{".incoming-dead.onnx", ".incoming-dead.onnx.bridged", ".incoming-new.onnx", "other.onnx"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[name] = f
		if name == ".incoming-new.onnx" {
			continue
		}
		if err := os.Chtimes(f.Name(), long, long); err != nil {
			t.Fatal(err)
		}
	}
	g := xGraph()
	g.node("Relu", list("x"), list("y"))
	g.output("y", models.Float32)
	openCut(t, openEnv(t), Config{Path: g.write(t), CacheDir: dir})
	for name, f := range files {
		dead := name == ".incoming-dead.onnx" || name == ".incoming-dead.onnx.bridged"
		if _, err := os.Stat(f.Name()); os.IsNotExist(err) != dead {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".incoming-*")); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// TestNoRoomForTheCache loads a model where the cache cannot be written, because its
// disk is full or because it is none. It runs as it does otherwise, and nothing is left.
func TestNoRoomForTheCache(t *testing.T) {
	full := t.TempDir()
	if err := unix.Mount("full", full, "tmpfs", 0, "size=32k"); err != nil {
		t.Log("no small file system can be mounted:", err)
		full = ""
	} else {
		t.Cleanup(func() { unix.Unmount(full, unix.MNT_DETACH) })
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	memory := t.TempDir()
	env, model := openEnv(t), openZoo(t, "tiny_bert")
	want, err := runAll(openCut(t, env, Config{Path: model}), 1, queryOf(t, openCut(t, env, Config{Path: model}), 1, 4))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{full, filepath.Join(file, "cache")} {
		if dir == "" {
			continue
		}
		said := stderrOf(t, func() {
			m := openCut(t, env, Config{Path: model, CacheDir: dir, memoryDir: memory})
			got, err := runAll(m, 1, queryOf(t, m, 1, 4))
			if err = errors.Join(err, compare(got, want)); err != nil {
				t.Errorf("%s: %v", dir, err)
			}
		})
		why := map[bool]error{true: unix.ENOSPC, false: unix.ENOTDIR}[dir == full]
		if strings.Count(said, why.Error()) != 1 || !strings.Contains(said, "served uncached") {
			t.Errorf("%s: it says %q", dir, said)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(memory, "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// stderrOf returns what f writes to standard error.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stderr
	os.Stderr = w
	f()
	os.Stderr = before
	w.Close()
	said, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

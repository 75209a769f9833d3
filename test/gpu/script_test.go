package gpu

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scriptBundle lays out a bundle whose test program prints what it is given.
func scriptBundle(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "overlapd-gpu-check")
	var sums strings.Builder
	for name, text := range map[string]string{
		"bin/overlapd":      "#!/bin/sh\n",
		"bin/gpu.test":      "#!/bin/sh\necho \"program: $0\"\necho \"arguments: $*\"\necho \"libraries: $LD_LIBRARY_PATH\"\necho \"path: $PATH\"\necho \"flash: $ORT_DISABLE_FLASH_ATTENTION\"\n",
		"lib/architectures": "90\n",
		"cuda-libs":         "libmade-up.so.13\nlibmade-up-later.so.9\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(text)), name)
	}
	if err := os.WriteFile(filepath.Join(root, "contents.sha256"), []byte(sums.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../scripts/gpu-check")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "gpu-check"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// runScript runs gpu-check of a folder with more of an environment, and returns all that
// was printed.
func runScript(t *testing.T, dir string, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "gpu-check"), args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// needs skips a test where programs that the script calls are missing.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip(err)
		}
	}
}

// TestScriptFinds: gpu-check finds CUDA's libraries in a Python environment, names those
// that it does not find, and has MPS's programs looked for where containers have them.
func TestScriptFinds(t *testing.T) {
	needs(t, "bash", "python3", "sha256sum", "timeout")
	root := scriptBundle(t)
	out, err := runScript(t, root, nil)
	if err == nil || !strings.Contains(out, "not found: libmade-up.so.13.") || !strings.Contains(out, "libmade-up-later.so.9 is not here") {
		t.Errorf("without libraries: %v\n%s", err, out)
	}
	place := t.TempDir()
	lib := filepath.Join(place, "nvidia", "made_up", "lib")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libmade-up.so.13", "libmade-up-later.so.9", "libcudnn.so.9"} {
		if err := os.WriteFile(filepath.Join(lib, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err = runScript(t, root, []string{"PYTHONPATH=" + place, "LD_LIBRARY_PATH=/named"}, "-steps", "facts")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"libraries: " + root + "/lib:/named:", ":" + lib, root + "/links", "/usr/local/nvidia/bin", "flash: 1", "-device cuda", "-steps facts\n", "results: ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(out, "is not here") {
		t.Error(out)
	}
}

// TestScriptUnpacks: the archive is unpacked once, without xz as well; a damaged one is
// refused.
func TestScriptUnpacks(t *testing.T) {
	needs(t, "bash", "python3", "sha256sum", "timeout", "tar", "xz")
	root := scriptBundle(t)
	for _, xz := range []bool{true, false} {
		dir, env := t.TempDir(), []string(nil)
		archive := filepath.Join(dir, "overlapd-gpu-check.tar.xz")
		if out, err := exec.Command("tar", "--create", "--xz", "--file", archive, "--directory", filepath.Dir(root), filepath.Base(root)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		data, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		sum := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), filepath.Base(archive))
		if err := os.WriteFile(filepath.Join(dir, "whole.sha256"), []byte(sum), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(root, "gpu-check"), filepath.Join(dir, "gpu-check")); err != nil {
			t.Fatal(err)
		}
		if !xz { // programs that the script calls, without it
			bin := t.TempDir()
			for _, name := range strings.Fields("bash dirname realpath sha256sum tar python3 cmp cp rm mkdir ls awk tee tr timeout gzip basename ln env sh") {
				path, err := exec.LookPath(name)
				if name == "python3" { // what is found may be a script that looks for the program
					var real []byte
					real, err = exec.Command(name, "-c", "import sys; print(sys.executable, end='')").Output()
					path = string(real)
				}
				if err == nil {
					if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			env = []string{"PATH=" + bin}
		}
		for range 2 {
			if out, err := runScript(t, dir, env, "-device", "cpu"); err != nil || !strings.Contains(out, "program: "+dir) {
				t.Fatalf("xz %t: %v\n%s", xz, err, out)
			}
		}
		if out, err := runScript(t, dir, env, "--dry-run"); err != nil || !strings.Contains(out, "-device cuda --dry-run") {
			t.Errorf("a plan: %v\n%s", err, out)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(archive, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "overlapd-gpu-check")); err != nil {
			t.Fatal(err)
		}
		if out, err := runScript(t, dir, env, "-device", "cpu"); err == nil || !strings.Contains(out, "is damaged") {
			t.Errorf("damaged: %v\n%s", err, out)
		}
	}
}

// TestBundleLimits: what is carried to a machine has at most 51 MB, and a piece of the
// reserve at most 50 MB; a bundle that was made is held to that, too.
func TestBundleLimits(t *testing.T) {
	needs(t, "bash", "awk", "find", "stat")
	check := func(dir string, fits bool) {
		if out, err := exec.Command("../../scripts/gpu-bundle", "--check", dir).CombinedOutput(); (err == nil) != fits {
			t.Errorf("%v, and it should fit: %t\n%s", err, fits, out)
		}
	}
	for _, c := range []struct {
		archive, piece int64
		fits           bool
	}{{50_900_000, 50_000_000, true}, {51_000_000, 0, false}, {1, 50_000_001, false}} {
		dir := t.TempDir()
		for name, bytes := range map[string]int64{"overlapd-gpu-check.tar.xz": c.archive, "whole.sha256": 92, "gpu-check": 8000, "full/overlapd-gpu-check.tar.gz.001": c.piece} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644), os.Truncate(path, bytes)); err != nil { // a hole takes no room
				t.Fatal(err)
			}
		}
		check(dir, c.fits)
	}
	made := "../../bin/gpu-bundle"
	if _, err := os.Stat(filepath.Join(made, "full", "gpu-check")); err == nil { // what is made last
		check(made, true)
	}
}

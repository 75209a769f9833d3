package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
)

// child is the command line of a child process that plays a role.
func child(t *testing.T, role string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(roleVariable, role)
	return []string{self}
}

// folderOf makes empty models of these names.
func folderOf(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name+".onnx"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func modelNames(results []Result) []string {
	var names []string
	for _, r := range results {
		names = append(names, filepath.Base(r.Model))
	}
	return names
}

// TestCrashes counts what a child does not survive and goes on behind it.
func TestCrashes(t *testing.T) {
	dir := folderOf(t, "a", "crashes", "crashes ONNX Runtime", "differs", "hangs", "z")
	var steps int
	r, err := Run(context.Background(), Options{
		Data:    []string{dir},
		Child:   child(t, "fake"),
		Timeout: 2 * time.Second,
		Progress: func(done, total int) {
			if steps++; done != steps || total != 6 {
				t.Errorf("progress %d of %d after %d", done, total, steps-1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Models != 6 || r.Equal != 2 || r.Plain != 5 || r.OK() || steps != 6 {
		t.Errorf("%+v after %d steps", r, steps)
	}
	if got, want := modelNames(r.Failures), []string{"crashes", "differs", "hangs"}; !slices.Equal(got, want) {
		t.Errorf("failures %q, expected %q", got, want)
	}
	if got, want := modelNames(r.Skips), []string{"crashes ONNX Runtime"}; !slices.Equal(got, want) {
		t.Errorf("skipped %q, expected %q", got, want)
	}
	if !strings.Contains(r.Failures[0].Reason, "last words") {
		t.Errorf("reason %q", r.Failures[0].Reason)
	}
	var text bytes.Buffer
	if r.Print(&text); !strings.Contains(text.String(), "FAILED") || !strings.Contains(text.String(), "element 3 is 1") {
		t.Errorf("printed:\n%s", &text)
	}
}

// TestBrokenChild ends the run when the child cannot work at all.
func TestBrokenChild(t *testing.T) {
	p := parent{options: Options{Child: child(t, "fake"), Timeout: time.Minute}, report: &Report{Models: 1}}
	_, err := p.lead(context.Background(), []model{{Name: "cannot load"}})
	if err == nil || !strings.Contains(err.Error(), "no library") {
		t.Errorf("%v, expected what the child said", err)
	}
	if _, err := Run(context.Background(), Options{Data: []string{t.TempDir()}}); !errors.Is(err, ErrNoModels) {
		t.Errorf("an empty folder: %v, expected %v", err, ErrNoModels)
	}
	if _, err := Run(context.Background(), Options{Data: []string{filepath.Join(t.TempDir(), "none")}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Run(ctx, Options{Data: []string{folderOf(t, "a")}, Child: child(t, "fake")})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, expected %v", err, context.Canceled)
	}
}

// TestRealChild compares models of the zoo, beside one that is none.
func TestRealChild(t *testing.T) {
	if _, err := ort.Find(); err != nil {
		t.Skip(err)
	}
	dir := folderOf(t, "empty")
	for _, name := range []string{"tiny_add", "tiny_cnn", "tiny_mlp"} {
		if _, err := zoo.Build(name, dir, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Run(context.Background(), Options{Data: []string{dir}, Child: child(t, "child")})
	if err != nil {
		t.Fatal(err)
	}
	if r.Models != 4 || r.Plain != 3 || r.Equal != 3 || r.Checked != 0 || !r.OK() || r.Operators < 10 {
		t.Errorf("%+v", r)
	}
	if got := modelNames(r.Skips); len(got) != 1 || got[0] != "empty" {
		t.Errorf("skipped %q", got)
	}
}

// TestCancelledMidway counts no failure of a model that was being compared.
func TestCancelledMidway(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := Run(ctx, Options{
		Data:     []string{folderOf(t, "a", "hangs")},
		Child:    child(t, "fake"),
		Progress: func(int, int) { cancel() },
	})
	if !errors.Is(err, context.Canceled) || len(r.Failures) != 0 || r.Equal != 1 {
		t.Errorf("%v with %+v", err, r)
	}
}

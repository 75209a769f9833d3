package textfile

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(file); err != nil || string(data) != "text" {
		t.Errorf("read %q, %v", data, err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	for path, c := range map[string]struct {
		want error
		says string
	}{
		dir:                          {errFolder, dir + ": it is a folder; name a file"},
		filepath.Join(dir, "absent"): {fs.ErrNotExist, "check the path"},
	} {
		if _, err := Open(path); !errors.Is(err, c.want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if os.Geteuid() == 0 {
		return // who may read everything
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "let this user read it") {
		t.Errorf("no permission: %v", err)
	}
}

func TestFault(t *testing.T) {
	for want, f := range map[string]Fault{
		"wrong syntax":         {},
		"line 3: wrong syntax": {Line: 3},
		"f: wrong syntax":      {File: "f"},
		"f:3: wrong syntax":    {File: "f", Line: 3},
	} {
		f.Err = errSyntax
		if f.Error() != want || !errors.Is(&f, errSyntax) {
			t.Errorf("%v, want %s", &f, want)
		}
	}
}

// Any text is text, however long its characters are and wherever the look at
// its beginning ends.
func TestTextIsTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := "a" + strings.Repeat("x", rapid.IntRange(0, 8).Draw(t, "before"))
		text += strings.Repeat(rapid.SampledFrom([]string{"é", "語", "😀", "z"}).Draw(t, "character"), rapid.IntRange(0, 5000).Draw(t, "times"))
		r, err := newText(strings.NewReader(mark + text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != text {
			t.Fatalf("%d bytes of %d, %v", len(got), len(text), err)
		}
	})
	if _, err := newText(bufio.NewReader(broken{})); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

// What a configuration names is read only if it is a regular file, and only so much of it.
func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(file, []byte("12345"), 0o600), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadRegular(file, 5); err != nil || string(data) != "12345" {
		t.Errorf("%q, %v", data, err)
	}
	for path, want := range map[string]error{
		file: errTooLarge, pipe: errNotRegular, dir: errFolder, "/dev/zero": errNotRegular, file + "x": os.ErrNotExist,
	} {
		if _, err := ReadRegular(path, 4); !errors.Is(err, want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

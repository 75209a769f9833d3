package mps

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDirectoryIsPrivate(t *testing.T) {
	for name, test := range map[string]struct {
		make func(path string) error
		text string
	}{
		"writable by others": {func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o770)) }, "chmod go-w"},
		"a file":             {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "not a directory"},
		"a link":             {func(path string) error { return os.Symlink(os.TempDir(), path) }, "not a directory"},
		"a pipe that is a link": {func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Symlink(os.TempDir(), filepath.Join(path, pipeName)))
		}, "not a directory"},
	} {
		path := filepath.Join(t.TempDir(), "d")
		if err := test.make(path); err != nil {
			t.Fatal(err)
		}
		if _, err := openDirectory(path); !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDirectoryOfAnother(t *testing.T) {
	path := "/proc/1" // root's, unless we are root
	if os.Geteuid() == 0 {
		path = filepath.Join(t.TempDir(), "d")
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkOwner(path); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Error(err)
	}
}

func TestDirectoryLock(t *testing.T) {
	path := t.TempDir()
	for range 3 { // it can be taken again once it was given up
		d, err := openDirectory(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openDirectory(path); !errors.Is(err, ErrInUse) {
			t.Error(err)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 1 || entries[0].Name() != logName {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestLogs(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, logName), 0o700); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("line of a log\n"), logMax/14+1)
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(path, logName, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("control.log", long)
	write("server.log", []byte("first\nlast\n"))
	d := &directory{path: path}
	if text := d.tail("control.log"); len(text) != logTail {
		t.Errorf("%d bytes", len(text))
	}
	opened, err := openDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.close()
	if err := opened.rotate(); err != nil {
		t.Error(err)
	}
	if text := d.tail("control.log"); text != "" {
		t.Errorf("the long log is still there: %d bytes", len(text))
	}
	if text := d.tail("control.log.old"); len(text) != logTail {
		t.Errorf("%d bytes were kept", len(text))
	}
	if text := d.tail("server.log"); text != "first\nlast\n" {
		t.Errorf("%q", text)
	}
}

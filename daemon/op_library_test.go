package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/internal/fakes/fakeops"
	"github.com/overlapd/overlapd/models/zoo"
)

// A file that workers cannot use is a fault. One that cannot be read may change.
func TestCheckOpLibrary(t *testing.T) {
	good := fakeops.Build(t)
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, mode os.FileMode, data []byte) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, data, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const machineAt, typeAt, executable, sparc = 18, 16, 2, 43 // in the header of an ELF file
	changed := func(at int, to uint16) []byte {
		other := bytes.Clone(data)
		binary.LittleEndian.PutUint16(other[at:], to)
		return other
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ path, fault, err string }{
		"good":              {good, "", ""},
		"not there":         {filepath.Join(dir, "none.so"), "", "no such file"},
		"a pipe":            {pipe, "", "regular file"},
		"a folder":          {dir, "", "name a file"},
		"text":              {file("text", 0o600, []byte("#!/bin/sh\n")), "name the .so file", ""},
		"another machine":   {file("machine", 0o600, changed(machineAt, sparc)), "take the build for this machine", ""},
		"a program":         {file("program", 0o700, changed(typeAt, executable)), "link it with -shared", ""},
		"another library":   {fakeops.Build(t, "NAMELESS"), "has no function RegisterCustomOps", ""},
		"cut short":         {file("short", 0o600, data[:len(data)/2]), "short: it", ""},
		"writable by all":   {file("open", 0o666, data), "chmod o-w", ""},
		"writable by group": {file("group", 0o664, data), "", ""},
	} {
		fault, err := checkOpLibrary(t.Context(), test.path, time.Minute)
		if !reads(fault, test.fault) || !reads(err, test.err) {
			t.Errorf("%s: got fault %v and error %v, want %q and %q", name, fault, err, test.fault, test.err)
		}
	}
}

// reads reports whether an error has a text, and whether there is none if the text is "".
func reads(err error, text string) bool {
	return err == nil && text == "" || err != nil && text != "" && strings.Contains(err.Error(), text)
}

// A damaged library is a fault, and never a panic.
func FuzzOpLibrary(f *testing.F) {
	data, err := os.ReadFile(fakeops.Build(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:64])
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = operatorFault(bytes.NewReader(data)) // whatever it is
	})
}

// The hash of a model depends on its libraries, and on their order.
func TestHashWithLibraries(t *testing.T) {
	dir := t.TempDir()
	model, err := zoo.Build("tiny_add", dir, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	writeFile(t, a, "a")
	writeFile(t, b, "b")
	seen := map[string]bool{}
	for _, libraries := range [][]string{nil, {a}, {b}, {a, b}, {b, a}} {
		hash, err := hashModel(t.Context(), model, time.Minute, libraries...)
		if err != nil || len(hash) != 64 || seen[hash] {
			t.Errorf("libraries %v: hash %q, %v", libraries, hash, err)
		}
		seen[hash] = true
	}
	if _, err := hashModel(t.Context(), model, time.Minute, filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a library that is not there: %v", err)
	}
}

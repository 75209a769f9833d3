package models

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// swapped opens a first, then b, as if b had been moved to the place of a.
func swapped(a, b string) func(flags int) (int, error) {
	path := a
	return func(flags int) (int, error) {
		fd, err := unix.Open(path, flags, 0)
		path = b
		return fd, err
	}
}

func TestFileReplacedWhileOpened(t *testing.T) {
	dir := t.TempDir()
	a, b, fifo := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "fifo")
	write(t, a, []byte("aaaa"))
	write(t, b, []byte("bbbb"))
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := mapRegular(swapped(a, b), 4, 1)
	wantRefused(t, err, ErrExternal, "replaced")
	_, err = mapRegular(swapped(a, fifo), 4, 1)
	wantRefused(t, err, ErrExternal, "regular")
	if _, err := mapRegular(swapped(a, filepath.Join(dir, "none")), 4, 1); err == nil {
		t.Error("a file that vanished was read")
	}
}

func TestMapRegular(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	write(t, path, []byte("aaaa"))
	open := swapped(path, path)
	m, err := mapRegular(open, 4, 1)
	if err != nil || string(m) != "aaaa" {
		t.Fatalf("%q %v", m, err)
	}
	if err := unmap(m); err != nil {
		t.Error(err)
	}
	_, err = mapRegular(open, 3, 1)
	wantRefused(t, err, ErrLimit, "4 bytes")
	if err := os.Link(path, filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	_, err = mapRegular(open, 4, 1)
	wantRefused(t, err, ErrExternal, "2 names")
	if m, err = mapRegular(open, 4, 0); err != nil {
		t.Errorf("any number of names: %v", err)
	}
	unmap(m)
}

// A file of external data is mapped once, and what was mapped stays although
// another one takes its place.
func TestExternalDataStay(t *testing.T) {
	path := externalModel(t, withInitializers(
		testExternal("a", "location", "data"), testExternal("b", "location", "data", "offset", "8")))
	f := mustOpen(t, path)
	other := filepath.Join(filepath.Dir(path), "other")
	write(t, other, make([]byte, 16))
	if err := os.Rename(other, filepath.Join(filepath.Dir(path), "data")); err != nil {
		t.Fatal(err)
	}
	got, err := f.ExternalBytes(f.Graph.Initializers[1].External)
	if err != nil || string(got) != "89abcdef" {
		t.Errorf("%q %v", got, err)
	}
	if len(f.folder.files) != 1 {
		t.Errorf("%d files mapped", len(f.folder.files))
	}
}

func TestEmptyExternalData(t *testing.T) {
	tensor := testTensor("w", Float32, 0).int(14, 1).sub(13, pb(nil).str(1, "location").str(2, "empty"))
	path := externalModel(t, withInitializers(tensor))
	write(t, filepath.Join(filepath.Dir(path), "empty"), nil)
	f := mustOpen(t, path)
	if got, err := f.ExternalBytes(f.Graph.Initializers[0].External); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
}

package zoo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Build makes sure that dir holds the file of the model called name with the
// weights of seed, and returns its path. It creates dir if needed. The file
// appears whole or not at all; one that is already right is left alone.
// progress, if not nil, is told how many bytes of all are written.
func Build(name, dir string, seed uint64, progress func(done, total int64)) (string, error) {
	e, ok := Lookup(name)
	if !ok {
		return "", fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	l := encode(e.graph(), seed)
	path := filepath.Join(dir, name+".onnx")
	if l.matches(path) {
		return path, nil
	}
	var report func(int64)
	if progress != nil {
		report = func(done int64) { progress(done, l.size) }
	}
	if err := l.replace(path, report); err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return path, nil
}

// matches reports whether the file at path is the one that l describes. The
// weights are not read: files are put in place whole, and a change of their
// making changes the recipe, which stands in the head.
func (l *layout) matches(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() != l.size {
		return false
	}
	head := make([]byte, len(l.head))
	_, err = io.ReadFull(f, head)
	return err == nil && bytes.Equal(head, l.head)
}

// replace writes the file beside path and moves it there when all of it is on
// disk.
func (l *layout) replace(path string, progress func(int64)) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*.part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := errors.Join(f.Chmod(0o644), l.write(f, progress)); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// syncFolder makes a rename in dir survive a power failure.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FileName is the name of the file that is being written. Those before it
// have .1, .2 and so on behind their name, the older the higher.
const FileName = "decisions.log"

// file is what the writer needs of an open file.
type file interface {
	Write(b []byte) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// files is the files of a log in one folder.
type files struct {
	dir     string
	max     int
	create  func(path string) (file, error)
	current file // nil if none is open
	// size is that of the current file up to its last whole record.
	size int64
}

func createFile(path string) (file, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
}

func (f *files) path(n int) string {
	p := filepath.Join(f.dir, FileName)
	if n > 0 {
		p += "." + strconv.Itoa(n)
	}
	return p
}

// rotate gives every file the next number and begins a new one. An empty file
// makes way, so that trying again and again loses no older ones.
func (f *files) rotate() error {
	if err := f.close(); err != nil {
		return err
	}
	info, err := os.Lstat(f.path(0))
	switch {
	case err == nil && (info.Size() == 0 || f.max == 1):
		err = os.Remove(f.path(0))
	case err == nil:
		err = f.shift()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	current, err := f.create(f.path(0))
	if err != nil {
		return err
	}
	f.current, f.size = current, 0
	return nil
}

func (f *files) shift() error {
	if err := f.prune(); err != nil {
		return err
	}
	for n := f.max - 2; n >= 0; n-- {
		if err := os.Rename(f.path(n), f.path(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// prune removes the files that would have too high a number after the next
// step of rotation.
func (f *files) prune() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	var faults []error
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), FileName+".")
		n, err := strconv.Atoi(number)
		if ok && err == nil && n >= max(1, f.max-1) && e.Name() == filepath.Base(f.path(n)) {
			faults = append(faults, os.Remove(filepath.Join(f.dir, e.Name())))
		}
	}
	return errors.Join(faults...)
}

// write appends whole records. After an error none of them is in the file, as
// far as that can be.
func (f *files) write(records []byte) error {
	if _, err := f.current.Write(records); err != nil {
		return errors.Join(err, f.current.Truncate(f.size))
	}
	f.size += int64(len(records))
	return nil
}

func (f *files) close() error {
	if f.current == nil {
		return nil
	}
	current := f.current
	f.current = nil
	err := errors.Join(current.Sync(), current.Close())
	if f.size == 0 {
		err = errors.Join(err, os.Remove(f.path(0)))
	}
	return err
}

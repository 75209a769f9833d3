package journal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// FileName is the name of the file that is being written. Those before it
// have .1, .2 and so on behind their name, the older the higher.
const FileName = "decisions.log"

// mostFiles is the largest number of files that a configuration may ask for.
const mostFiles = 1024

// file is what the writer needs of an open file.
type file interface {
	io.WriteCloser
	Sync() error
}

// files is the files of a log in one folder.
type files struct {
	dir     string
	max     int
	create  func(path string) (file, error)
	current file // nil if none is open
	used    bool // something was written to the current file
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

// prune removes the files that an earlier configuration kept and this one does not.
func (f *files) prune() (err error) {
	for n := f.max; n < mostFiles; n++ {
		err = errors.Join(err, absent(os.Remove(f.path(n))))
	}
	return err
}

// rotate gives every file the next number, which replaces the oldest, and begins a new one. An empty
// file makes way, so that trying again and again loses no older ones.
func (f *files) rotate() error {
	if err := f.close(); err != nil {
		return err
	}
	if info, err := os.Lstat(f.path(0)); err == nil && info.Size() > 0 {
		for n := f.max - 2; n >= 0; n-- {
			if err := absent(os.Rename(f.path(n), f.path(n+1))); err != nil {
				return err
			}
		}
	}
	if err := absent(os.Remove(f.path(0))); err != nil {
		return err
	}
	current, err := f.create(f.path(0))
	if err == nil {
		f.current, f.used = current, false
	}
	return err
}

// write appends records. After an error only the first n bytes are in the file.
func (f *files) write(records []byte) (n int, err error) {
	n, err = f.current.Write(records)
	f.used = f.used || err == nil
	return n, err
}

// close closes the current file, and removes it if nothing was written to it.
func (f *files) close() error {
	if f.current == nil {
		return nil
	}
	err := errors.Join(f.current.Sync(), f.current.Close())
	if f.current = nil; !f.used {
		err = errors.Join(err, os.Remove(f.path(0)))
	}
	return err
}

// absent returns an error unless it says that there is no file.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

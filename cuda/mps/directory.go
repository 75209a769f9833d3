package mps

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What lies in a directory of ours.
const (
	pipeName = "pipe"
	logName  = "log"
	lockName = "lock"
)

const (
	logMax    = 1 << 20 // bytes of a log file that a start leaves in place
	logTail   = 8 << 10 // bytes of it that are read for an error
	lockTries = 10      // in case another control gives the lock file up meanwhile
)

// logNames are the files that the control daemon and its servers write.
var logNames = []string{"control.log", "server.log"}

// directory is what one control daemon of ours has to itself. Whoever holds
// the lock may take what serves the pipe directory for a leftover.
type directory struct {
	path string
	lock *os.File
}

func (d *directory) pipe() string { return filepath.Join(d.path, pipeName) }
func (d *directory) log() string  { return filepath.Join(d.path, logName) }

// variables tell a daemon and its clients where to meet and where to log.
func (d *directory) variables() []string {
	return []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.pipe(), "CUDA_MPS_LOG_DIRECTORY=" + d.log()}
}

// openDirectory makes the directory, locks it and makes room in its logs.
func openDirectory(path string) (*directory, error) {
	d := &directory{path: path}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	if err := errors.Join(checkOwner(path), checkWay(path)); err != nil {
		return nil, err
	}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	if err := d.prepare(); err != nil {
		d.lock.Close()
		return nil, err
	}
	return d, nil
}

// checkOwner refuses a directory in which another user could put a socket.
func checkOwner(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch self := os.Geteuid(); {
	case !info.IsDir():
		return fmt.Errorf("%w: %s is a %v, not a directory: name another path", ErrDirectory, path, info.Mode().Type())
	case !ok || int(stat.Uid) != self:
		return fmt.Errorf("%w: %s belongs to another user than %d: name a directory of this user", ErrDirectory, path, self)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: others may write to %s (mode %v): chmod go-w %[2]s", ErrDirectory, path, info.Mode().Perm())
	}
	return nil
}

// acquire takes the lock. The file goes away with its holder, so that a locked
// file may be one that no path leads to any more.
func (d *directory) acquire() error {
	path := filepath.Join(d.path, lockName)
	for range lockTries {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			holder, _ := io.ReadAll(io.LimitReader(f, 32))
			f.Close()
			return fmt.Errorf("%w: process %s has locked %s: stop it, or give each daemon a directory of its own",
				ErrInUse, strings.TrimSpace(string(holder)), path)
		}
		if same(f, path) {
			d.lock = f
			return nil
		}
		f.Close()
	}
	return fmt.Errorf("%w: the lock %s changes hands all the time", ErrInUse, path)
}

func same(f *os.File, path string) bool {
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	theirs, err := os.Stat(path)
	return err == nil && os.SameFile(ours, theirs)
}

// prepare signs the lock and makes the directories below.
func (d *directory) prepare() error {
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	if _, err := d.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	for _, path := range []string{d.pipe(), d.log()} {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
		if err := checkOwner(path); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o700); err != nil {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
	}
	return d.rotate()
}

// rotate puts long logs aside, in place of what was put aside before.
func (d *directory) rotate() error {
	for _, name := range logNames {
		path := filepath.Join(d.log(), name)
		info, err := os.Lstat(path)
		if err != nil || info.Size() <= logMax {
			continue
		}
		if err := os.Rename(path, path+".old"); err != nil {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
	}
	return nil
}

// clear removes what a dead daemon left in the pipe directory. Folders are not
// a control daemon's and stay.
func (d *directory) clear() error {
	entries, err := os.ReadDir(d.pipe())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(d.pipe(), e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
	}
	return nil
}

// close removes all but the logs and gives the directory up.
func (d *directory) close() error {
	err := d.clear()
	os.Remove(d.pipe()) // unless something else is in it
	os.Remove(filepath.Join(d.path, lockName))
	return errors.Join(err, d.lock.Close())
}

// tail returns the end of a log, or "" if there is none.
func (d *directory) tail(name string) string {
	f, err := os.Open(filepath.Join(d.log(), name))
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	text := make([]byte, min(size, logTail))
	n, _ := f.ReadAt(text, size-int64(len(text)))
	return string(text[:n])
}

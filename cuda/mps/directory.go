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

// The entries of a directory of ours. The lock file contains the PID of the process that
// holds the lock.
const (
	pipeName = "pipe"
	logName  = "log"
	lockName = "lock"
)

const (
	// logMax is the size from which a log file is rotated when the daemon starts.
	logMax = 1 << 20

	// logTail is how many bytes at its end are read for an error.
	logTail = 8 << 10
)

// logNames are the files that the control daemon and its servers write.
var logNames = []string{"control.log", "server.log"}

// directory is the private directory of one control daemon of ours. The holder of its
// lock may treat any process that serves its pipe directory as a leftover.
type directory struct {
	path string

	// lock is the open directory itself.
	lock *os.File
}

func (d *directory) pipe() string { return filepath.Join(d.path, pipeName) }
func (d *directory) log() string  { return filepath.Join(d.path, logName) }

// variables tell a daemon and its clients where the sockets and the logs are.
func (d *directory) variables() []string {
	return []string{pipeVariable + "=" + d.pipe(), "CUDA_MPS_LOG_DIRECTORY=" + d.log()}
}

// openDirectory creates and locks the directory, then creates those below it.
func openDirectory(path string) (*directory, error) {
	path, err := filepath.Abs(path) // workers may have another working directory
	d := &directory{path: path}
	if err == nil {
		err = checkLength(path)
	}
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err == nil {
		err = errors.Join(checkOwner(path), checkWay(path))
	}
	if err == nil {
		err = d.acquire()
	}
	if err != nil {
		return nil, unusable(err)
	}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(unusable(err), d.lock.Close())
	}
	return d, nil
}

// unusable wraps an error in ErrDirectory, unless it is ErrInUse.
func unusable(err error) error {
	if err == nil || errors.Is(err, ErrInUse) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDirectory, err)
}

// acquire locks the directory without waiting. The kernel releases the lock when this
// process ends.
func (d *directory) acquire() (err error) {
	if d.lock, err = os.Open(d.path); err != nil {
		return err
	}
	if unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return nil
	}
	holder, _ := os.ReadFile(filepath.Join(d.path, lockName))
	return errors.Join(d.lock.Close(), fmt.Errorf("%w: process %s has locked %s: stop it, or give each daemon a directory of its own",
		ErrInUse, strings.TrimSpace(string(holder)), d.path))
}

// prepare writes the PID to the lock file and creates the directories below.
func (d *directory) prepare() error {
	if err := os.WriteFile(filepath.Join(d.path, lockName), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return err
	}
	for _, path := range []string{d.pipe(), d.log()} {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := checkOwner(path); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// rotate renames long logs, and overwrites those renamed earlier.
func (d *directory) rotate() error {
	for _, name := range logNames {
		path := filepath.Join(d.log(), name)
		info, err := os.Lstat(path)
		if err != nil || info.Size() <= logMax {
			continue
		}
		if err := os.Rename(path, path+".old"); err != nil {
			return unusable(err)
		}
	}
	return nil
}

// clear removes the files of a dead daemon from the pipe directory. Subdirectories are
// not a control daemon's and stay.
func (d *directory) clear() error {
	entries, err := os.ReadDir(d.pipe())
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if rerr := os.Remove(filepath.Join(d.pipe(), e.Name())); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return unusable(err)
}

// close removes everything but the logs and releases the directory.
func (d *directory) close() error {
	err := d.clear()
	os.Remove(d.pipe()) // fails if something else is in it, which then stays
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
	_, _ = f.Seek(-logTail, io.SeekEnd) // fails for a shorter file, which is then read from its start
	text, _ := io.ReadAll(io.LimitReader(f, logTail))
	return string(text)
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// checkOwner returns an error for a directory in which another user could create a
// socket.
func checkOwner(path string) error {
	info, err := os.Lstat(path)
	switch self := os.Geteuid(); {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is a %v, not a directory: name another path", path, info.Mode().Type())
	case ownerOf(info) != self:
		return fmt.Errorf("%s belongs to another user than %d: name a directory of this user", path, self)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to %s (mode %v): chmod go-w %[1]s", path, info.Mode().Perm())
	}
	return nil
}

// checkWay returns an error for a directory that another user could replace with his own,
// whose sockets would then receive the workers' tensors. The owner of a folder above it can
// rename what lies there, and so can everybody if that folder is writable and not sticky.
func checkWay(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, end := range []string{path, resolved} { // with symbolic links, both paths matter
		for at := filepath.Dir(end); ; at = filepath.Dir(at) {
			if err := checkAbove(at, path); err != nil {
				return err
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return nil
}

// checkAbove checks one folder or symbolic link on the path of a directory.
func checkAbove(at, path string) error {
	info, err := os.Lstat(at)
	switch self := os.Geteuid(); {
	case err != nil:
		return err
	case ownerOf(info) != 0 && ownerOf(info) != self:
		return fmt.Errorf("%s, on the way to %s, belongs to another user than %d or root, who could put another directory there: name a path of this user's",
			at, path, self)
	case info.IsDir() && info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("everybody may rename what lies in %s, on the way to %s (mode %v): chmod o-w %[1]s", at, path, info.Mode().Perm())
	}
	return nil
}

// unmapped is the owner of files whose user has no ID in this user namespace.
const unmapped = 65534

// checkExisting returns an error for the pipe directory of another user. Anybody can
// create one below /tmp, where root's is expected, and would receive the workers' tensors.
// A directory that does not exist is no risk; the first command reports that.
func checkExisting(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // a missing directory is reported by the first command
	}
	if owner, self := ownerOf(info), os.Geteuid(); owner != 0 && owner != self && owner != unmapped {
		return fmt.Errorf("%w: %s belongs to user %d, and to neither %d nor root: have root or this user run MPS, or set mode = \"own\" in [mps]",
			ErrDirectory, path, owner, self)
	}
	return nil
}

// CheckDirectory returns an error if a directory cannot be used for a control daemon of
// ours: the paths of its sockets would be too long, another user could place a socket
// there, or this user cannot create it. It does not create the directory.
func CheckDirectory(path string) error {
	if err := checkLength(path); err != nil {
		return unusable(err)
	}
	if _, err := os.Lstat(path); err == nil {
		return unusable(errors.Join(checkOwner(path), checkWay(path)))
	}
	above := filepath.Dir(path)
	for _, err := os.Lstat(above); errors.Is(err, fs.ErrNotExist); _, err = os.Lstat(above) {
		above = filepath.Dir(above)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, above, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return unusable(fmt.Errorf("it cannot be made in %s: %w", above, err))
	}
	return unusable(errors.Join(checkAbove(above, path), checkWay(above)))
}

// checkLength returns an error for a directory whose sockets could not be bound.
func checkLength(path string) error {
	if socket := filepath.Join(path, pipeName, longestSocket); len(socket) > socketLimit {
		return fmt.Errorf("the socket %s has a path of %d bytes, the system's limit is %d: use a directory whose path is %d bytes shorter",
			socket, len(socket), socketLimit, len(socket)-socketLimit)
	}
	return nil
}

package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkWay refuses a directory that another user could put one of his own in the
// place of, with sockets that workers then give their tensors to: who owns a
// folder above it may rename what lies there, and so may everybody if the folder
// is writable and not sticky.
func checkWay(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	for _, end := range []string{path, resolved} { // what leads through a link leads through both
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

// checkAbove looks at one folder, or link, on the way to a directory.
func checkAbove(at, path string) error {
	info, err := os.Lstat(at)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch self := os.Geteuid(); {
	case !ok || stat.Uid != 0 && int(stat.Uid) != self:
		return fmt.Errorf("%w: %s, on the way to %s, belongs to another user than %d or root, who could put another directory there: name a path of this user's",
			ErrDirectory, at, path, self)
	case info.IsDir() && info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("%w: everybody may rename what lies in %s, on the way to %s (mode %v): chmod o-w %[2]s", ErrDirectory, at, path, info.Mode().Perm())
	}
	return nil
}

// unmapped is whom files belong to whose user has no number in this namespace.
const unmapped = 65534

// checkExisting refuses the pipe directory of a stranger: who may make one where
// root's is looked for, below /tmp, could have workers give their tensors to him.
// One that is not there is no stranger's; asking it says so.
func checkExisting(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if self := os.Geteuid(); ok && stat.Uid != 0 && int(stat.Uid) != self && stat.Uid != unmapped {
		return fmt.Errorf("%w: %s belongs to user %d, and to neither %d nor root: have root or this user run MPS, or set mode = \"own\" in [mps]",
			ErrDirectory, path, stat.Uid, self)
	}
	return nil
}

// CheckDirectory returns, without making it, why a directory cannot be that of a
// control daemon of ours: its sockets would have too long a path, somebody else could
// put one there, or this user cannot make it.
func CheckDirectory(path string) error {
	if err := checkLength(path); err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	if _, err := os.Lstat(path); err == nil {
		return errors.Join(checkOwner(path), checkWay(path))
	}
	above := filepath.Dir(path)
	for _, err := os.Lstat(above); errors.Is(err, fs.ErrNotExist); _, err = os.Lstat(above) {
		above = filepath.Dir(above)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, above, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("%w: it cannot be made in %s: %w", ErrDirectory, above, err)
	}
	return errors.Join(checkAbove(above, path), checkWay(above))
}

// checkLength refuses a directory whose sockets the system could not bind.
func checkLength(path string) error {
	if socket := filepath.Join(path, pipeName, longestSocket); len(socket) > socketLimit {
		return fmt.Errorf("the socket %s has a path of %d bytes, the system's limit is %d: use a directory whose path is %d bytes shorter",
			socket, len(socket), socketLimit, len(socket)-socketLimit)
	}
	return nil
}

package admin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
)

const (
	// socketMode lets the group of the socket connect; who of them may ask for
	// anything is looked at then.
	socketMode = 0o660

	// folderMode is of the folder of the socket, if it has to be made.
	folderMode = 0o700

	// staleTimeout is how long whoever listens at the path may take to accept.
	staleTimeout = time.Second
)

// socket is a listening Unix socket, and its file.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// listen makes a socket at path for a group, -1 for none. The socket file of a
// daemon that is gone is replaced.
func listen(path string, group int) (*socket, error) {
	if len(path) > config.MaxSocketPath {
		return nil, fmt.Errorf("%s: %w", path, errPathTooLong)
	}
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	s := &socket{UnixListener: ln, path: path}
	if s.file, err = os.Lstat(path); err == nil {
		err = give(path, s.file, group)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// give lets a group connect to a socket. What is given is the file that was made,
// held open meanwhile: whoever may write in its folder could have put a link in
// its place, to a file that is not his.
func give(path string, made os.FileInfo, group int) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	held := os.NewFile(uintptr(fd), path)
	defer held.Close()
	if now, err := held.Stat(); err != nil || !os.SameFile(now, made) || now.Mode().Type() != os.ModeSocket {
		return errors.Join(errReplaced, err)
	}
	by := fmt.Sprintf("/proc/self/fd/%d", fd)
	if group >= 0 {
		if err := os.Chown(by, -1, group); err != nil {
			return fmt.Errorf("%w: %w; the daemon's user must be in that group", errGroup, err)
		}
	}
	return os.Chmod(by, socketMode)
}

// Close ends listening and removes the file, unless another one has taken its
// place meanwhile.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if now, serr := os.Lstat(s.path); serr == nil && s.file != nil && os.SameFile(now, s.file) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}

// removeStale removes a socket that nobody listens to.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return errNoSocket
	}
	c, err := net.DialTimeout("unix", path, staleTimeout)
	switch {
	case err == nil:
		return errors.Join(errSocketInUse, c.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, unix.EAGAIN): // its backlog is full
		return errSocketInUse
	}
	return err
}

// findGroup returns the number of a group, -1 of none.
func findGroup(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1, config.Faults{{Key: "admin_group", Message: fmt.Sprintf("this host has no group %q: make it (groupadd --system %s), or name another one", name, name)}}
	}
	return strconv.Atoi(g.Gid)
}

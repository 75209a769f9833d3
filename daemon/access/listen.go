package access

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
)

// socketMode lets the owner and the group connect.
const socketMode = 0o660

// staleTimeout is how long another daemon at a path may take to accept.
const staleTimeout = time.Second

// Errors of ListenUnix.
var (
	errSocketInUse = errors.New("another daemon listens there: stop it, or choose another path")
	errNoSocket    = errors.New("there is a file that is not a socket: remove it, or choose another path")
	errReplaced    = errors.New("another process keeps replacing the socket: choose a path in a folder of the daemon's user")
	errGroup       = errors.New("the socket's group cannot be set")
)

// Listen opens an address of the configuration: "host:port" or "unix:/path".
func Listen(address string) (net.Listener, error) {
	if path, unix := strings.CutPrefix(address, config.UnixPrefix); unix {
		return ListenUnix(path, -1)
	}
	return net.Listen("tcp", address)
}

// socket is a listening Unix socket and the file it has created.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// ListenUnix creates a Unix socket to which members of group may connect; -1 keeps the
// daemon's group. A socket left by a daemon that died is replaced. If another daemon
// listens there, ListenUnix fails.
func ListenUnix(path string, group int) (net.Listener, error) {
	ln, err := listenUnix(path, group)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ln, nil
}

// listenUnix is ListenUnix without the path in errors.
func listenUnix(path string, group int) (*socket, error) {
	if err := removeStale(path); err != nil {
		return nil, err
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

// give changes the group and mode of a socket. It works on an open descriptor of the file
// that was created: a user who may write to the folder could have replaced the path by a link
// to another user's file.
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
			return fmt.Errorf("%w: %w; the daemon's user must be in it", errGroup, err)
		}
	}
	return os.Chmod(by, socketMode)
}

// Close stops listening and removes the file, unless another file has replaced it.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if now, serr := os.Lstat(s.path); serr == nil && s.file != nil && os.SameFile(now, s.file) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}

// removeStale removes a socket that nobody listens on. It fails if somebody does, or if the
// file is not a socket.
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
	case errors.Is(err, unix.EAGAIN): // its backlog is full, so it has a listener
		return errSocketInUse
	}
	return err
}

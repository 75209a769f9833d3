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

// socketMode lets the group of a socket connect.
const socketMode = 0o660

// staleTimeout is how long whoever listens at a path may take to accept.
const staleTimeout = time.Second

// Errors of ListenUnix.
var (
	errSocketInUse = errors.New("another daemon listens there: stop it, or choose another path")
	errNoSocket    = errors.New("there is something that is no socket: remove it, or choose another path")
	errReplaced    = errors.New("somebody puts other files in the place of the socket: choose a path in a folder of your own")
	errGroup       = errors.New("the socket cannot be given to its group")
)

// Listen opens the address of a configuration: "host:port" or "unix:/path".
func Listen(address string) (net.Listener, error) {
	if path, unix := strings.CutPrefix(address, config.UnixPrefix); unix {
		return ListenUnix(path, -1)
	}
	return net.Listen("tcp", address)
}

// socket is a listening Unix socket, and its file.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// ListenUnix makes a socket at a path to which a group may connect, -1 for that of
// the daemon. The socket of a daemon that died is taken over; that of a living one
// is not.
func ListenUnix(path string, group int) (net.Listener, error) {
	ln, err := listenUnix(path, group)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ln, nil
}

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
			return fmt.Errorf("%w: %w; the daemon's user must be in it", errGroup, err)
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

package access

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mustListen makes a socket that the test ends.
func mustListen(t *testing.T, path string, group int) *socket {
	t.Helper()
	s, err := listenUnix(path, group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// socketPath returns a path that is short enough.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "access")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "a.sock")
}

// reaches fails the test unless somebody listens at a path.
func reaches(t *testing.T, path string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestSocketComesAndGoes(t *testing.T) {
	path := socketPath(t)
	s := mustListen(t, path, os.Getegid())
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|socketMode {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}

// What somebody put in the place of the socket is not given away.
func TestOnlyTheSocketIsGiven(t *testing.T) {
	path := socketPath(t)
	s := mustListen(t, path, -1)
	precious := filepath.Join(filepath.Dir(path), "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(filepath.Dir(path), "other.sock")
	mustListen(t, other, -1)
	for name, replace := range map[string]func() error{
		"a link":         func() error { return os.Symlink(precious, path) },
		"a file":         func() error { return os.Link(precious, path) },
		"another socket": func() error { return os.Link(other, path) },
		"a link to it":   func() error { return os.Symlink(other, path) },
	} {
		if err := errors.Join(os.Remove(path), replace()); err != nil {
			t.Fatal(err)
		}
		if err := give(path, s.file, os.Getegid()); !errors.Is(err, errReplaced) {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(precious); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: the file has mode %v, %v", name, info.Mode(), err)
		}
	}
}

func TestSocketOfADeadDaemonIsReplaced(t *testing.T) {
	path := socketPath(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	mustListen(t, path, -1)
	reaches(t, path)
}

func TestSocketOfALivingDaemonIsRefused(t *testing.T) {
	path := socketPath(t)
	mustListen(t, path, -1)
	if s, err := listenUnix(path, -1); !errors.Is(err, errSocketInUse) {
		t.Errorf("got %v, %v", s, err)
	}
	reaches(t, path)
}

func TestSocketLeavesOthersAlone(t *testing.T) {
	path := socketPath(t)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path, -1); !errors.Is(err, errNoSocket) {
		t.Errorf("a file in its place: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s := mustListen(t, path, -1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other := mustListen(t, path, -1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("a socket that took its place was removed: %v", err)
	}
	other.Close()
}

func TestGroupThatCannotBeGiven(t *testing.T) {
	path := socketPath(t)
	s := mustListen(t, path, -1)
	const foreign = 12345
	if err := withoutRights(t, func() error { return give(path, s.file, foreign) }); !errors.Is(err, errGroup) || !strings.Contains(err.Error(), "must be in it") {
		t.Errorf("got %v", err)
	}
}

// withoutRights calls f as somebody who may do no more than any user.
func withoutRights(t *testing.T, f func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			ended <- err
			return
		}
		ended <- f()
	}()
	return <-ended
}

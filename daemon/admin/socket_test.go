package admin

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
)

// mustListen makes a socket that the test ends.
func mustListen(t *testing.T, path string, group int) *socket {
	t.Helper()
	s, err := listen(path, group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSocketComesAndGoes(t *testing.T) {
	path := filepath.Join(filepath.Dir(socketPath(t)), "folder", "a.sock")
	s := mustListen(t, path, os.Getegid())
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|socketMode {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != folderMode {
		t.Errorf("its folder has mode %v, %v", info.Mode(), err)
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
	if err := connect(t, path); err != nil {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestSocketOfALivingDaemonIsRefused(t *testing.T) {
	path := socketPath(t)
	mustListen(t, path, -1)
	if s, err := listen(path, -1); !errors.Is(err, errSocketInUse) {
		t.Errorf("got %v, %v", s, err)
	}
	if err := connect(t, path); err != nil {
		t.Errorf("the living one was disturbed: %v", err)
	}
}

func TestSocketLeavesOthersAlone(t *testing.T) {
	path := socketPath(t)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path, -1); !errors.Is(err, errNoSocket) {
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

func TestSocketPathTooLong(t *testing.T) {
	dir := filepath.Dir(socketPath(t))
	exact := filepath.Join(dir, strings.Repeat("x", config.MaxSocketPath-len(dir)-1))
	mustListen(t, exact, -1)
	if _, err := listen(exact+"x", -1); !errors.Is(err, errPathTooLong) {
		t.Errorf("108 bytes: %v", err)
	}
}

func TestFindGroup(t *testing.T) {
	for name, want := range map[string]int{"": -1, "1234": 1234, "root": 0} {
		if got, err := findGroup(name); err != nil || got != want {
			t.Errorf("%q: %d, %v", name, got, err)
		}
	}
	_, err := findGroup("no-such-group")
	if faults, ok := errors.AsType[config.Faults](err); !ok || !strings.Contains(faults.Error(), "groupadd") {
		t.Errorf("a group that is not there: %v", err)
	}
}

func TestGroupThatCannotBeGiven(t *testing.T) {
	path := socketPath(t)
	s := mustListen(t, path, -1)
	const foreign = 12345
	if err := withoutRights(t, func() error { return give(path, s.file, foreign) }); !errors.Is(err, errGroup) || !strings.Contains(err.Error(), "must be in that group") {
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

package admin

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
)

func TestRule(t *testing.T) {
	own := rule{own: 1000, group: -1}
	group := rule{own: 1000, group: 50}
	for name, test := range map[string]struct {
		rule rule
		peer peer
		want bool
	}{
		"root":                       {own, peer{UID: 0}, true},
		"itself":                     {own, peer{UID: 1000}, true},
		"another":                    {own, peer{UID: 1001}, false},
		"another of its group":       {own, peer{UID: 1001, Groups: []uint32{1000}}, false},
		"a member":                   {group, peer{UID: 1001, Groups: []uint32{1001, 50}}, true},
		"no member":                  {group, peer{UID: 1001, Groups: []uint32{1001}}, false},
		"root's group without group": {own, peer{UID: 1001, Groups: []uint32{0}}, false},
		"nobody":                     {own, peer{UID: 65534, Groups: []uint32{65534}}, false},
	} {
		if got := test.rule.allows(test.peer); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if !strings.Contains(own.sentence(), "admin_group") || !strings.Contains(group.sentence(), "group 50") {
		t.Errorf("sentences: %s; %s", own.sentence(), group.sentence())
	}
}

// connected returns the server's end of a connection that dial makes.
func connected(t *testing.T, path string, dial func() error) *net.UnixConn {
	t.Helper()
	s, err := access.ListenUnix(path, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for at := path; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o777); err != nil { // anybody may connect: who it is, is looked at
			break
		}
	}
	dialled := make(chan error, 1)
	go func() { dialled <- dial() }()
	if err := await(t, dialled, "a connection"); err != nil {
		t.Fatal(err)
	}
	c, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn)
}

// connect connects and stays so until the test ends.
func connect(t *testing.T, path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	t.Cleanup(func() { unix.Close(fd) })
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

func TestCredentials(t *testing.T) {
	path := socketPath(t)
	p, err := credentials(connected(t, path, func() error { return connect(t, path) }))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	want := []uint32{uint32(os.Getegid())}
	for _, g := range groups {
		want = append(want, uint32(g))
	}
	for _, list := range []*[]uint32{&want, &p.Groups} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if p.PID != os.Getpid() || p.UID != uint32(os.Geteuid()) || !slices.Equal(p.Groups, want) {
		t.Errorf("got %+v, want process %d, user %d, groups %v", p, os.Getpid(), os.Geteuid(), want)
	}
	if !(rule{own: uint32(os.Geteuid()), group: -1}).allows(p) {
		t.Error("the daemon's own user may not")
	}
}

// Somebody else, really: one thread becomes another user, with groups of his.
func TestCredentialsOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	const uid, gid = 65533, 65532
	groups := make([]int, 100) // more than a first look has room for
	for i := range groups {
		groups[i] = 70000 + i
	}
	path := socketPath(t)
	p, err := credentials(connected(t, path, func() error {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		return become(uid, gid, groups, func() error { return connect(t, path) })
	}))
	if err != nil {
		t.Fatal(err)
	}
	if p.UID != uid || p.Groups[0] != gid || len(p.Groups) != len(groups)+1 || !slices.Contains(p.Groups, 70099) {
		t.Errorf("got user %d, groups %v", p.UID, p.Groups)
	}
	for group, want := range map[int]bool{-1: false, gid: true, 70050: true, 70200: false} {
		if got := (rule{own: uint32(os.Geteuid()), group: group}).allows(p); got != want {
			t.Errorf("with admin_group %d it may: %t", group, got)
		}
	}
}

// become does something as another user. The thread stays one.
func become(uid, gid uintptr, groups []int, do func() error) error {
	if err := threadGroups(groups); err != nil {
		return err
	}
	for _, call := range [][2]uintptr{{unix.SYS_SETRESGID, gid}, {unix.SYS_SETRESUID, uid}} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[1], call[1]); errno != 0 {
			return errno
		}
	}
	return do()
}

func TestListenerAsks(t *testing.T) {
	path := socketPath(t)
	s, err := access.ListenUnix(path, -1)
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, 2)
	answers <- errors.New("it is gone")
	answers <- nil
	l := &listener{
		Listener: s, rule: rule{own: 1}, ask: func(*net.UnixConn) (peer, error) { return peer{UID: 1}, <-answers },
		places: make(chan struct{}, 1), refused: make(chan struct{}, 1),
	}
	defer l.Close()
	for range 2 {
		if err := connect(t, path); err != nil {
			t.Fatal(err)
		}
	}
	c, err := l.Accept()
	if err != nil || !c.(*conn).allowed || len(l.places) != 1 {
		t.Fatalf("accepted %v, %v", c, err)
	}
	c.Close()
	c.Close()
	if len(l.places) != 0 {
		t.Error("a place is not given back")
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

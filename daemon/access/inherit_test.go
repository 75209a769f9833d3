package access

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
)

// file returns a descriptor of a socket, with a name.
func file(t *testing.T, of any, name string) *os.File {
	t.Helper()
	f, err := of.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return named(t, f, name)
}

// named returns another descriptor of an open file, with a name.
func named(t *testing.T, f *os.File, name string) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), name)
}

func TestListensOn(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 8000} }
	path := &net.UnixAddr{Net: "unix", Name: "/run/overlapd/0/endpoint"}
	for _, one := range []struct {
		is      net.Addr
		address string
		want    bool
	}{
		{tcp("127.0.0.1"), "127.0.0.1:8000", true}, {tcp("127.0.0.1"), "127.0.0.1:0", true}, {tcp("127.0.0.1"), "127.0.0.1:8001", false},
		{tcp("127.0.0.1"), "0.0.0.0:8000", false}, {tcp("127.0.0.1"), ":8000", false}, {tcp("127.0.0.1"), "[::1]:8000", false},
		{tcp("::"), ":8000", true}, {tcp("::"), "0.0.0.0:8000", true}, {tcp("0.0.0.0"), "[::]:8000", true}, {tcp("::"), "127.0.0.1:8000", false},
		{tcp("::1"), "[::1]:8000", true}, {tcp("127.0.0.1"), "unix:/run/overlapd/0/endpoint", false},
		{path, "unix:/run/overlapd/0/endpoint", true}, {path, "unix:/run/overlapd//0/endpoint", true}, {path, "unix:/run/overlapd/1/endpoint", false}, {path, "127.0.0.1:8000", false},
	} {
		if got := listensOn(one.is, one.address); got != one.want {
			t.Errorf("%v for %q: %t", one.is, one.address, got)
		}
	}
}

// What does not listen, or for packets, is refused with what to change.
func TestInheritRefuses(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	connected, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c := config.Embedded()
	c.Listen = ln.Addr().String()
	for what, f := range map[string]*os.File{
		"a connection": file(t, connected, "http"), "packets": file(t, packets, "http"), "no socket": named(t, null, "http"),
	} {
		_, err := Inherit([]*os.File{f}, &c)
		if _, ok := errors.AsType[config.Faults](err); !ok || !strings.Contains(err.Error(), "listen: ") || !strings.Contains(err.Error(), "Accept=no") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A listener that was inherited leaves the socket, its file and who waits there.
func TestInheritedSocketOutlivesItsListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoint")
	held, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	c := config.Embedded()
	c.Listen = config.UnixPrefix + path
	s, err := Inherit([]*os.File{file(t, held, "http")}, &c)
	if err != nil || s.HTTP == nil || s.GRPC != nil || s.Admin != nil {
		t.Fatalf("%+v, %v", s, err)
	}
	waiting, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if err := s.HTTP.Close(); err != nil {
		t.Error(err)
	}
	next, err := Inherit([]*os.File{file(t, held, "http")}, &c)
	if err != nil {
		t.Fatal(err)
	}
	defer next.HTTP.Close()
	accepted, err := next.HTTP.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted.Close()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

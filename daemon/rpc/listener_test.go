package rpc

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/query"
)

// TestConnectionsAreProbed looks at what the kernel was told of a connection:
// it, and nothing that goes by the clock on the wall, finds clients that are
// gone.
func TestConnectionsAreProbed(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := &listener{Listener: inner, places: query.NewPlaces(1), memory: query.NewBudget(1), probes: query.NewBudget(1)}
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*conn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for _, o := range []struct {
			name                string
			level, option, want int
		}{
			{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(probeAfter.Seconds())},
			{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(probeWait.Seconds())},
			{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probeCount},
			{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheard.Milliseconds())},
		} {
			if got, err := unix.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
				t.Errorf("%s is %d, want %d: %v", o.name, got, o.want, err)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}

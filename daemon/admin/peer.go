package admin

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is in how many groups a process can be, the kernel's NGROUPS_MAX.
const maxGroups = 1 << 16

// peer is who connected, as of then.
type peer struct {
	PID    int
	UID    uint32
	Groups []uint32 // its primary group first
}

// rule is who may ask for anything.
type rule struct {
	own   uint32 // the user of the daemon
	group int    // -1 for none
}

func (r rule) allows(p peer) bool {
	return p.UID == 0 || p.UID == r.own || r.group >= 0 && slices.Contains(p.Groups, uint32(r.group))
}

// sentence returns the rule in words, for those who may not.
func (r rule) sentence() string {
	text := fmt.Sprintf("only root and the daemon's user (%d)", r.own)
	if r.group >= 0 {
		return text + fmt.Sprintf(" and members of group %d (admin_group) may administer it", r.group)
	}
	return text + " may administer it; admin_group in its configuration lets the members of a group"
}

func ownRule(group int) rule { return rule{own: uint32(os.Geteuid()), group: group} }

// credentials asks the kernel who is at the other end. It is who connected:
// what becomes of that process later changes nothing.
func credentials(c *net.UnixConn) (p peer, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return p, err
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		var u *unix.Ucred
		if u, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); asked != nil {
			return
		}
		p = peer{PID: int(u.Pid), UID: u.Uid}
		var more []uint32
		more, asked = peerGroups(fd)
		p.Groups = append([]uint32{u.Gid}, more...)
	})
	if err == nil {
		err = asked
	}
	return p, err
}

// peerGroups returns the groups that a peer is in besides its own.
func peerGroups(fd uintptr) ([]uint32, error) {
	const each = uint32(unsafe.Sizeof(uint32(0)))
	for room := uint32(64); room <= maxGroups; room = maxGroups {
		groups := make([]uint32, room)
		bytes := room * each
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&bytes)), 0)
		switch {
		case errno == 0:
			return groups[:bytes/each], nil
		case errno != unix.ERANGE || room == maxGroups:
			return nil, os.NewSyscallError("getsockopt", errno)
		}
	}
	return nil, unix.ERANGE
}

// Limits on connections. Who may not ask has few of his own, so that he cannot
// take those of who may.
const (
	maxConnections = 16
	maxRefused     = 4
)

// conn is a connection of which it is known who made it.
type conn struct {
	*net.UnixConn
	peer    peer
	allowed bool
	free    func()
}

// Close gives the connection's place back.
func (c *conn) Close() error {
	c.free()
	return c.UnixConn.Close()
}

// listener accepts connections and asks who makes them.
type listener struct {
	*socket
	rule    rule
	ask     func(*net.UnixConn) (peer, error)
	places  chan struct{} // holds an entry for each connection of those who may
	refused chan struct{} // and for each of those who may not
}

func newListener(s *socket, r rule, ask func(*net.UnixConn) (peer, error)) *listener {
	return &listener{
		socket: s, rule: r, ask: ask,
		places: make(chan struct{}, maxConnections), refused: make(chan struct{}, maxRefused),
	}
}

// Accept returns the next connection that there is a place for. One too many
// is closed at once.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := l.ask(c)
		if err != nil { // it is gone already
			c.Close()
			continue
		}
		places, allowed := l.refused, l.rule.allows(peer)
		if allowed {
			places = l.places
		}
		select {
		case places <- struct{}{}:
			return &conn{c, peer, allowed, sync.OnceFunc(func() { <-places })}, nil
		default:
			c.Close()
		}
	}
}

// connKey is where a request's context has its connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

package admin

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
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
	groups := make([]uint32, maxGroups)
	bytes := uint32(binary.Size(groups))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&bytes)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("getsockopt", errno)
	}
	return groups[:bytes/4], nil
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

// Limits on connections. Who may not ask has few of his own, so that he cannot
// take those of who may.
const (
	maxConnections = 16
	maxRefused     = 4
)

// conn is a connection of which it is known who made it.
type conn struct {
	net.Conn
	peer    peer
	allowed bool
	free    func()
}

// Close gives the connection's place back.
func (c *conn) Close() error {
	c.free()
	return c.Conn.Close()
}

// listener accepts connections and asks who makes them.
type listener struct {
	net.Listener
	rule    rule
	ask     func(*net.UnixConn) (peer, error)
	places  chan struct{} // holds an entry for each connection of those who may
	refused chan struct{} // and for each of those who may not

	mu struct {
		sync.Mutex
		silent []*conn // those that may whose next request has not come, the oldest first
	}
}

// silent notes whether a connection's next request has not come yet. Such a one loses its
// place to another that needs it.
func (l *listener) silent(c *conn, is bool) {
	if !c.allowed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.silent = slices.DeleteFunc(l.mu.silent, func(o *conn) bool { return o == c })
	if is {
		l.mu.silent = append(l.mu.silent, c)
	}
}

// evict closes the connection that has been silent for longest, if there is one.
func (l *listener) evict() {
	l.mu.Lock()
	var oldest *conn
	if len(l.mu.silent) > 0 {
		oldest = l.mu.silent[0]
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
}

// Accept returns the next connection that there is a place for. One too many
// is closed at once.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := l.ask(c.(*net.UnixConn))
		places, allowed := l.refused, l.rule.allows(peer)
		if allowed {
			places = l.places
		}
		if err == nil { // or it is gone already
			if allowed && len(places) == cap(places) {
				l.evict()
			}
			select {
			case places <- struct{}{}:
				taken := &conn{Conn: c, peer: peer, allowed: allowed}
				taken.free = sync.OnceFunc(func() {
					l.silent(taken, false)
					<-places
				})
				l.silent(taken, true)
				return taken, nil
			default:
			}
		}
		c.Close()
	}
}

// connKey is where a request's context has its connection.
type connKey struct{}

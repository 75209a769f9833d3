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

// maxGroups is the kernel's NGROUPS_MAX, the number of groups that a process can have.
const maxGroups = 1 << 16

// peer is the process that connected, with its credentials at that time.
type peer struct {
	PID int
	UID uint32

	// Groups begins with the primary group.
	Groups []uint32
}

// rule says who may administer the daemon.
type rule struct {
	// own is the user of the daemon.
	own uint32

	// group is the admin group, or -1 for none.
	group int
}

// allows reports whether a peer may administer the daemon: root, the daemon's own user, and
// members of the group.
func (r rule) allows(p peer) bool {
	return p.UID == 0 || p.UID == r.own || r.group >= 0 && slices.Contains(p.Groups, uint32(r.group))
}

// sentence describes the rule to those who are rejected.
func (r rule) sentence() string {
	text := fmt.Sprintf("only root and the daemon's user (%d)", r.own)
	if r.group >= 0 {
		return text + fmt.Sprintf(" and members of group %d (admin_group) may use the admin socket", r.group)
	}
	return text + " may use the admin socket; admin_group in the configuration adds a group"
}

// credentials returns the credentials of the peer of a connection. The kernel recorded them
// when it connected, so they do not change if the process does.
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

// peerGroups returns the supplementary groups of a peer. The unix package has no function
// for SO_PEERGROUPS.
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

// findGroup returns the ID of a group given by name or number, or -1 for "".
func findGroup(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1, config.Faults{{Key: "admin_group", Message: fmt.Sprintf("this host has no group %q: create it (groupadd --system %s), or name another one", name, name)}}
	}
	return strconv.Atoi(g.Gid)
}

// Limits on connections. Peers that may not administer the daemon have a separate limit, so
// that they cannot use up the connections of those that may.
const (
	maxConnections = 16
	maxRefused     = 4
)

// conn is a connection whose peer is known.
type conn struct {
	net.Conn
	peer    peer
	allowed bool
	free    func()
}

// Close closes the connection and frees its place.
func (c *conn) Close() error {
	c.free()
	return c.Conn.Close()
}

// listener accepts connections and identifies their peers.
type listener struct {
	net.Listener
	rule rule
	ask  func(*net.UnixConn) (peer, error)

	// places has an element for each connection of an allowed peer.
	places chan struct{}

	// refused has an element for each connection of any other peer.
	refused chan struct{}

	mu struct {
		sync.Mutex

		// silent has the connections of allowed peers that wait for a request, oldest
		// first.
		silent []*conn
	}
}

// silent records whether a connection waits for its next request. Such a connection may be
// evicted when another one needs its place.
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

// evict closes the connection that has been silent longest, if there is one.
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

// Accept returns the next connection for which there is a place. It closes others
// immediately.
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
		// On an error the peer has already gone.
		if err == nil {
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

// connKey is the context key of a request's connection.
type connKey struct{}

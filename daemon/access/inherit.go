package access

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
)

// sockets are listening sockets that were opened before the daemon started (systemd socket
// activation) and stay open across restarts, so that new connections queue in the kernel
// meanwhile. The daemon opens those that are nil itself.
type sockets struct{ HTTP, GRPC, Admin net.Listener }

// Inherit takes listening sockets in the place of those that a configuration has addresses
// for, by their names: http, grpc and admin. It closes the files. Closing a socket takes
// neither its file nor waiting connections from others who have it. An error is a
// config.Faults: the same sockets and the same file would contradict each other again.
// Inherit assigns inherited files by name (http, grpc or admin) to the addresses of the
// configuration. It closes the files, which leaves the sockets of other holders open. The
// error is a config.Faults, because the same sockets and configuration would fail again:
// restarting cannot help.
func Inherit(files []*os.File, c *config.Config) (s sockets, err error) {
	admin := ""
	if path := c.AdminPath(); path != "" {
		admin = config.UnixPrefix + path
	}
	known := map[string]struct {
		key, address string
		to           *net.Listener
	}{
		"http":  {"listen", c.Listen, &s.HTTP},
		"grpc":  {"grpc_listen", c.GRPCListen, &s.GRPC},
		"admin": {"admin_socket", admin, &s.Admin},
	}
	var faults config.Faults
	for _, f := range files {
		name := f.Name()
		ln, fault := listening(f)
		at, ok := known[name]
		switch {
		case !ok:
			faults.At("", 0, "an inherited socket is named %q: set FileDescriptorName= of its socket unit to http, grpc or admin, or disable the unit", name)
		case fault != nil:
			faults.At("", 0, "%s: the inherited socket %q cannot be used: %v", at.key, name, fault)
		case at.address == "":
			faults.At("", 0, "%s is off, but an inherited socket %q listens on %s: set %[1]s, or disable the socket unit", at.key, name, ln.Addr())
		case !listensOn(ln.Addr(), at.address):
			faults.At("", 0, "%s: the inherited socket %q listens on %s, not on %q: change %[1]s, or ListenStream= of the socket unit", at.key, name, ln.Addr(), at.address)
		case *at.to != nil:
			faults.At("", 0, "%s: two sockets named %q are inherited: keep one ListenStream= in the socket units", at.key, name)
		default:
			*at.to = ln
		}
	}
	if len(faults) > 0 {
		return s, faults
	}
	return s, nil
}

// Each calls do with each inherited socket and its name.
func (s sockets) Each(do func(name string, ln net.Listener)) {
	for _, of := range []struct {
		name string
		ln   net.Listener
	}{{"http", s.HTTP}, {"grpc", s.GRPC}, {"admin", s.Admin}} {
		if of.ln != nil {
			do(of.name, of.ln)
		}
	}
}

var errNotListening = errors.New("it does not listen for connections: its unit must have ListenStream= and Accept=no")

// listening returns a listener on a socket, and closes the file.
func listening(f *os.File) (net.Listener, error) {
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	is := 0
	if cerr := raw.Control(func(fd uintptr) {
		is, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	}); cerr != nil || err != nil || is == 0 {
		return nil, errors.Join(errNotListening, cerr, err)
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errNotListening, err)
	}
	return ln, nil
}

// listensOn reports whether a socket is what Listen would open for an address. Port 0 in
// the address matches any.
func listensOn(a net.Addr, address string) bool {
	if path, ok := strings.CutPrefix(address, config.UnixPrefix); ok {
		whole, err := filepath.Abs(path)
		return err == nil && a.Network() == "unix" && filepath.Clean(a.String()) == whole
	}
	is, ok := a.(*net.TCPAddr)
	want, err := net.ResolveTCPAddr("tcp", address)
	if !ok || err != nil || want.Port != 0 && want.Port != is.Port {
		return false
	}
	// Listen opens both IPv4 and IPv6 for an unspecified address, however it is written.
	if want.IP == nil || want.IP.IsUnspecified() {
		return is.IP.IsUnspecified()
	}
	return is.IP.Equal(want.IP)
}

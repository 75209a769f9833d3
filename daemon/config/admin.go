package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Values of admin_socket that are no paths.
const (
	adminAuto = "auto"
	adminOff  = "off"
)

// MaxSocketPath is how many bytes the path of a Unix socket may have, which
// the kernel says (sockaddr_un).
const MaxSocketPath = 107

// adminName is the admin socket in a folder of one daemon.
const adminName = "admin.sock"

// groupName is what a group may be called, or its number.
var groupName = regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,31}|[0-9]{1,9})$`)

// Admin says who may change the daemon while it runs, and where.
type Admin struct {
	Socket string // path, "auto", or "" or "off" for none
	Group  string // whose members may, "" for root and the daemon's own user alone
}

func (a *Admin) keys(k keys) {
	k.text("admin_socket", &a.Socket)
	k.text("admin_group", &a.Group)
}

// off reports whether there is no admin socket.
func (a *Admin) off() bool { return a.Socket == "" || a.Socket == adminOff }

// Chosen reports whether the socket's path was configured, so that a daemon
// without it is not what was asked for.
func (a *Admin) Chosen() bool { return !a.off() && a.Socket != adminAuto }

func (a *Admin) resolve(dir string) {
	if a.Chosen() && !filepath.IsAbs(a.Socket) {
		a.Socket = filepath.Join(dir, a.Socket)
	}
}

func (c *Config) checkAdmin(k *checker) {
	a := &c.Admin
	switch {
	case a.Chosen() && (len(a.Socket) > MaxSocketPath || strings.ContainsRune(a.Socket, 0)):
		k.fault("admin_socket", "a socket path has 1 to %d bytes, and this has %d: choose a shorter one, such as /run/overlapd.sock", MaxSocketPath, len(a.Socket))
	case a.Chosen() && (c.Listen == UnixPrefix+a.Socket || c.GRPCListen == UnixPrefix+a.Socket):
		k.fault("admin_socket", "%q is where clients are served, too: administration has a socket of its own", a.Socket)
	}
	switch {
	case a.Group != "" && !groupName.MatchString(a.Group):
		k.fault("admin_group", "must be the name or the number of a group, not %q", a.Group)
	case a.Group != "" && a.off():
		k.fault("admin_group", `there is no admin_socket for it: leave it out, or set admin_socket = "auto"`)
	}
}

// AdminPath returns where the admin socket is, "" for nowhere. Two daemons of
// one user have two, since each has a state folder of its own.
func (c *Config) AdminPath() string {
	if paths := c.AdminPaths(); len(paths) > 0 {
		return paths[0]
	}
	return ""
}

// AdminPaths returns where the admin socket of a daemon with this configuration
// may be, which depends on how it was started: the first is where one is that
// has this environment.
func (c *Config) AdminPaths() (paths []string) {
	switch {
	case c.Admin.off():
		return nil
	case c.Admin.Chosen():
		return []string{c.Admin.Socket}
	}
	if dir := SystemdFolder("RUNTIME_DIRECTORY"); dir != "" {
		paths = append(paths, filepath.Join(dir, adminName))
	}
	if dir := UserSockets(); dir != "" {
		paths = append(paths, filepath.Join(dir, c.adminID()+".sock"))
	}
	return append(paths, filepath.Join(c.StateDir, adminName))
}

// UserSockets returns the folder of the admin sockets of daemons that a user
// started, or "".
func UserSockets() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "overlapd")
}

// adminID tells daemons of one user apart, by what no two may share.
func (c *Config) adminID() string {
	dir, err := filepath.Abs(c.StateDir)
	if err != nil {
		dir = c.StateDir
	}
	sum := sha256.Sum256([]byte(dir))
	return "admin-" + hex.EncodeToString(sum[:4])
}

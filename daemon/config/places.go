package config

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// CacheDir is the folder of what can be built again: the models of the zoo and
// those that were cut. It is what systemd gives, else the state folder.
func (c *Config) CacheDir() string {
	if dir := SystemdFolder("CACHE_DIRECTORY"); dir != "" {
		return dir
	}
	return c.StateDir
}

// OpenFolders warns of folders that are there already and where others can put
// files: the daemon would take those for its own, and a model that was cut runs in a
// worker as it lies there. It is no fault, for who mounts a volume may mean it. User
// is the daemon's, -1 if that is not known.
func (c *Config) OpenFolders(user int) (all []string) {
	for _, dir := range slices.Compact([]string{c.StateDir, c.CacheDir()}) {
		info, err := os.Stat(dir)
		if err != nil {
			continue // it is made, or opening it says what is wrong
		}
		if info.Mode().Perm()&0o002 != 0 {
			all = append(all, fmt.Sprintf("every user of this machine can put files into %s (mode %04o), and the daemon believes them: chmod o-w %[1]s",
				dir, info.Mode().Perm()))
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && user >= 0 && stat.Uid != 0 && int(stat.Uid) != user {
			all = append(all, fmt.Sprintf("%s belongs to user %d, who can put files there, and the daemon believes them: give it to its own user (chown %d %[1]s), or set state_dir to another folder",
				dir, stat.Uid, user))
		}
	}
	return all
}

// Exposures returns what is unsafe about the addresses: those that other
// machines may reach although anybody may ask there, or everybody on the way
// can read along.
func (c *Config) Exposures() (all []string) {
	for _, at := range []struct{ key, address string }{{"listen", c.Listen}, {"grpc_listen", c.GRPCListen}} {
		if at.address == "" || local(at.address) {
			continue
		}
		if c.Access.TokenFile == "" && c.TLS.ClientCA == "" {
			all = append(all, fmt.Sprintf("%s = %q: whoever reaches this address may ask: set access.token_file, or listen on 127.0.0.1",
				at.key, at.address))
		}
		if c.TLS.Cert == "" {
			all = append(all, fmt.Sprintf("%s = %q: requests%s can be read and changed on the way: set tls.cert and tls.key, or listen on 127.0.0.1",
				at.key, at.address, map[bool]string{true: " and their tokens"}[c.Access.TokenFile != ""]))
		}
	}
	return all
}

// local reports whether only this machine can reach an address.
func local(address string) bool {
	if strings.HasPrefix(address, UnixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || err != nil && strings.EqualFold(host, "localhost")
}

// Values of admin_socket that are no paths.
const (
	adminAuto = "auto"
	adminOff  = "off"
)

// adminName is the admin socket in a folder of one daemon.
const adminName = "admin.sock"

func (c *Config) adminOff() bool { return c.Admin.Socket == "" || c.Admin.Socket == adminOff }

// AdminChosen reports whether the path of the admin socket was configured, so
// that a daemon without it is not what was asked for.
func (c *Config) AdminChosen() bool { return !c.adminOff() && c.Admin.Socket != adminAuto }

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
	case c.adminOff():
		return nil
	case c.AdminChosen():
		return []string{c.Admin.Socket}
	}
	if dir := SystemdFolder("RUNTIME_DIRECTORY"); dir != "" {
		paths = append(paths, filepath.Join(dir, adminName))
	}
	if dir := UserSockets(); dir != "" {
		own := c.StateDir // no two daemons share it
		if absolute, err := filepath.Abs(own); err == nil {
			own = absolute
		}
		sum := sha256.Sum256([]byte(own))
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("admin-%x.sock", sum[:4])))
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

// IsURL reports whether a place is a URL over HTTP, and no path.
func IsURL(place string) bool {
	return strings.HasPrefix(place, "http://") || strings.HasPrefix(place, "https://")
}

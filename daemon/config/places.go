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

// CacheDir returns the folder for files that can be built again: models of the zoo and cut
// models. It is systemd's cache folder, or else the state folder.
func (c *Config) CacheDir() string {
	if dir := SystemdFolder("CACHE_DIRECTORY"); dir != "" {
		return dir
	}
	return c.StateDir
}

// OpenFolders returns warnings about existing folders in which other users can create
// files. The daemon would trust these files, and a cut model is run as it is. They are not
// faults, because a mounted volume may be set up like that on purpose. user is the
// daemon's, or -1 if it is not known.
func (c *Config) OpenFolders(user int) (all []string) {
	for _, dir := range slices.Compact([]string{c.StateDir, c.CacheDir()}) {
		info, err := os.Stat(dir)
		if err != nil {
			continue // it will be created, or opening it reports the reason
		}
		if info.Mode().Perm()&0o002 != 0 {
			all = append(all, fmt.Sprintf("every user of this machine can put files into %s (mode %04o), and the daemon trusts them: chmod o-w %[1]s",
				dir, info.Mode().Perm()))
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && user >= 0 && stat.Uid != 0 && int(stat.Uid) != user {
			all = append(all, fmt.Sprintf("%s belongs to user %d, who can put files there, and the daemon trusts them: give it to the daemon's user (chown %d %[1]s), or set state_dir to another folder",
				dir, stat.Uid, user))
		}
	}
	return all
}

// Exposures returns warnings about addresses that other hosts can reach without a token or
// without encryption.
func (c *Config) Exposures() (all []string) {
	for _, at := range []struct{ key, address string }{{"listen", c.Listen}, {"grpc_listen", c.GRPCListen}} {
		if at.address == "" || local(at.address) {
			continue
		}
		if c.Access.TokenFile == "" && c.TLS.ClientCA == "" {
			all = append(all, fmt.Sprintf("%s = %q: anyone who reaches this address can send queries: set access.token_file, or listen on 127.0.0.1",
				at.key, at.address))
		}
		if c.TLS.Cert == "" {
			all = append(all, fmt.Sprintf("%s = %q: requests%s can be read and changed in transit: set tls.cert and tls.key, or listen on 127.0.0.1",
				at.key, at.address, map[bool]string{true: " and their tokens"}[c.Access.TokenFile != ""]))
		}
	}
	return all
}

// local reports whether only this host can reach an address.
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

// Values of admin_socket that are not paths.
const (
	adminAuto = "auto"
	adminOff  = "off"
)

// adminName is the name of the admin socket in a folder that belongs to one daemon.
const adminName = "admin.sock"

// adminOff reports whether the daemon has no admin socket.
func (c *Config) adminOff() bool { return c.Admin.Socket == "" || c.Admin.Socket == adminOff }

// AdminChosen reports whether the path of the admin socket was configured. A daemon that
// cannot create it then fails to start; otherwise it only logs that.
func (c *Config) AdminChosen() bool { return !c.adminOff() && c.Admin.Socket != adminAuto }

// AdminPath returns the path of the admin socket, or "" for none. Daemons of one user have
// different paths, because each has a state folder of its own.
func (c *Config) AdminPath() string {
	if paths := c.AdminPaths(); len(paths) > 0 {
		return paths[0]
	}
	return ""
}

// AdminPaths returns all paths that the admin socket of a daemon with this configuration
// may have, depending on how it was started. The first is the one for the current
// environment.
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
		// The hash of the state folder, which no two daemons share, makes the name unique.
		own := c.StateDir
		if absolute, err := filepath.Abs(own); err == nil {
			own = absolute
		}
		sum := sha256.Sum256([]byte(own))
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("admin-%x.sock", sum[:4])))
	}
	return append(paths, filepath.Join(c.StateDir, adminName))
}

// UserSockets returns the folder of the admin sockets of daemons started by a user, or "".
func UserSockets() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "overlapd")
}

// IsURL reports whether a string is an HTTP URL and not a path.
func IsURL(place string) bool {
	return strings.HasPrefix(place, "http://") || strings.HasPrefix(place, "https://")
}

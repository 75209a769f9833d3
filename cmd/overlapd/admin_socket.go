package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
)

// runtimeDir is where systemd makes the folders of the instances.
const runtimeDir = "/run/overlapd"

// socketOptions say which daemon is asked.
type socketOptions struct {
	path   string
	config string
}

func (o *socketOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.path, "admin", "", "its admin socket")
	f.StringVarP(&o.config, "config", "c", "", "its configuration file, to find the socket by")
	cmd.MarkFlagsMutuallyExclusive("admin", "config")
}

// client returns a client of the daemon that is meant.
func (o *socketOptions) client() (*admin.Client, error) {
	path, err := o.find(runtimeDir)
	if err != nil {
		return nil, err
	}
	return admin.NewClient(path), nil
}

// find returns the admin socket that is meant: one that was named, that of a
// configuration, or the only one of this host that a daemon listens at.
func (o *socketOptions) find(systemd string) (string, error) {
	switch {
	case o.path != "":
		return o.path, nil
	case o.config != "":
		return o.ofConfig(systemd)
	}
	var found []string
	for _, pattern := range socketPatterns(systemd) {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		found = append(found, slices.DeleteFunc(paths, func(path string) bool { return !listened(path) })...)
	}
	slices.Sort(found)
	switch found = slices.Compact(found); len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", errors.New("no daemon runs that can be administered here; name its configuration with --config, or its socket with --admin (admin_socket)")
	}
	return "", fmt.Errorf("%d daemons run here; name one:\n  --admin %s", len(found), strings.Join(found, "\n  --admin "))
}

// socketPatterns are where daemons without an admin_socket of their own have
// theirs.
func socketPatterns(systemd string) []string {
	c := config.Default()
	patterns := append(c.AdminPaths(), filepath.Join(systemd, "*", "admin.sock"))
	if dir := config.UserSockets(); dir != "" {
		patterns = append(patterns, filepath.Join(dir, "admin-*.sock"))
	}
	return patterns
}

// ofConfig returns the socket of the daemon that was started with a file. If
// none of the places has one it is the first, so that the error names it.
func (o *socketOptions) ofConfig(systemd string) (string, error) {
	c, err := config.Load(o.config)
	if err != nil {
		return "", err
	}
	paths := c.AdminPaths()
	if len(paths) == 0 {
		return "", fmt.Errorf(`%s: admin_socket is off; set it to "auto" and restart the daemon, or send it SIGHUP`, o.config)
	}
	instance := strings.TrimSuffix(filepath.Base(o.config), ".toml")
	if !c.AdminChosen() {
		paths = append(paths, filepath.Join(systemd, instance, "admin.sock"))
	}
	if i := slices.IndexFunc(paths, listened); i >= 0 {
		return paths[i], nil
	}
	return paths[0], nil
}

// listened reports whether a daemon listens at a path, whoever may ask it.
func listened(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	return !errors.Is(err, unix.ECONNREFUSED)
}

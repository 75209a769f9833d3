package serving

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
)

// socketOptions are the flags that name the admin socket of a daemon, by its path or by the file that
// the daemon reads.
type socketOptions struct {
	path   string
	config string
}

func (o *socketOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.path, "admin", "", "path of the daemon's admin socket")
	f.StringVarP(&o.config, "config", "c", "", "the daemon's configuration file, to find its admin socket")
	cmd.MarkFlagsMutuallyExclusive("admin", "config")
}

// client returns a client of the admin socket. It does not connect.
func (o *socketOptions) client() (*admin.Client, error) {
	// Systemd makes a runtime folder for each instance there.
	path, err := o.find("/run/overlapd")
	if err != nil {
		return nil, err
	}
	return admin.NewClient(path), nil
}

// find returns the admin socket that the flags name, the one of the configuration that
// they name, or the only one of this host that a daemon listens at. If none listens for
// a configuration it is the first that could, so that the error names it.
func (o *socketOptions) find(systemd string) (string, error) {
	if o.path != "" {
		return o.path, nil
	}
	c, instance := config.Default(), "*"
	if o.config != "" {
		var err error
		if c, err = config.Load(o.config); err != nil {
			return "", err
		}
		instance = strings.TrimSuffix(filepath.Base(o.config), ".toml")
	}
	places := c.AdminPaths()
	// That it is off is known without looking, and looking would find another daemon's.
	if len(places) == 0 {
		return "", fmt.Errorf(`%s: admin_socket is off; set it to "auto" and restart the daemon, or send it SIGHUP`, o.config)
	}
	if !c.AdminChosen() {
		places = append(places, filepath.Join(systemd, instance, "admin.sock"))
	}
	if dir := config.UserSockets(); dir != "" && o.config == "" {
		places = append(places, filepath.Join(dir, "admin-*.sock"))
	}
	var found []string
	for _, place := range places {
		paths, err := filepath.Glob(place)
		if err != nil {
			return "", err
		}
		// A daemon that was killed leaves its socket behind.
		found = append(found, slices.DeleteFunc(paths, func(path string) bool { return !listened(path) })...)
	}
	// The daemon of a file may listen at one of several places, but is only one.
	if o.config != "" {
		return append(found, places[0])[0], nil
	}
	// One of the configuration's places may be the user's or systemd's.
	slices.Sort(found)
	switch found = slices.Compact(found); len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", errors.New("no running daemon with an admin socket was found; name its configuration with --config, or its socket with --admin (admin_socket)")
	}
	return "", fmt.Errorf("%d daemons are running; name one:\n  --admin %s", len(found), strings.Join(found, "\n  --admin "))
}

// listened reports whether a daemon listens at a path, also one that refuses this user.
func listened(path string) bool {
	// EAGAIN is a queue of connections that is full, which only a socket that is listened at has.
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EAGAIN)
}

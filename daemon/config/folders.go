package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// cacheDir is the folder of what can be built again: the models of the zoo and
// those that were cut. It is what systemd gives, else the state folder.
func (c *Config) CacheDir() string {
	if dir := SystemdFolder("CACHE_DIRECTORY"); dir != "" {
		return dir
	}
	return c.StateDir
}

// SystemdFolder returns the folder that systemd made for the unit and names in
// a variable such as STATE_DIRECTORY, the first if there are several, or "".
func SystemdFolder(variable string) string {
	dir, _, _ := strings.Cut(os.Getenv(variable), ":")
	return dir
}

// openFolders warns of folders that are there already and where others can put
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

package daemon

import (
	"os"
	"strings"
)

// cacheDir is the folder of what can be built again: the models of the zoo and
// those that were cut. It is what systemd gives, else the state folder.
func (c *Config) cacheDir() string {
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

package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/segments/probe"
)

// ZooSeed is the seed of the weights of models that services name.
const ZooSeed = 1

// CacheDir returns a folder below the cache that systemd gives, else the user's.
func CacheDir(kind string) (string, error) {
	if dir := config.SystemdFolder("CACHE_DIRECTORY"); dir != "" {
		return filepath.Join(dir, kind), nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(base, "overlapd", kind), nil
}

// ModelPath returns the file of a path or of a model of the zoo, built if need be.
func ModelPath(name string) (string, error) {
	name = strings.TrimPrefix(name, "zoo:")
	if _, ok := zoo.Lookup(name); !ok {
		if _, err := os.Stat(name); err != nil {
			return "", fmt.Errorf("%q is neither a file nor a zoo model; overlapd models list shows the zoo", name)
		}
		return name, nil
	}
	dir, err := CacheDir("models")
	if err != nil {
		return "", err
	}
	return BuildZoo(name, dir, ZooSeed)
}

// BuildZoo builds a model of the zoo, with a progress bar on a terminal.
func BuildZoo(name, dir string, seed uint64) (string, error) {
	show, end := Bar()
	defer end()
	return zoo.Build(name, dir, seed, func(done, total int64) {
		show("building "+name, float64(done)/float64(max(total, 1)))
	})
}

// processorName names the processor that a file such as /proc/cpuinfo describes.
func processorName(file string) string {
	return fmt.Sprintf("%s, %d cores", cmp.Or(textfile.Field(file, "model name"), "cpu"), runtime.NumCPU())
}

// CPU names the processor of this machine.
func CPU() string { return processorName("/proc/cpuinfo") }

// ProbeCommand returns the hidden command that takes one measurement for [probe.Run].
func ProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "probe",
		Short:  "Take one measurement of a model (started by others)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return probe.Serve(cmd.InOrStdin(), cmd.OutOrStdout()) },
	}
}

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models/zoo"
)

// zooSeed is the seed of the weights that the zoo's models get unless another
// is asked for.
const zooSeed = 1

// cacheDir returns the folder for files of this kind: below the cache that
// systemd gives, else the user's.
func cacheDir(kind string) (string, error) {
	if dir := config.SystemdFolder("CACHE_DIRECTORY"); dir != "" {
		return filepath.Join(dir, kind), nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(base, "overlapd", kind), nil
}

// modelPath returns the file of a model given as a path or as the name of a
// model of the zoo, which is built if it is not there yet.
func modelPath(name string) (string, error) {
	name = strings.TrimPrefix(name, "zoo:")
	if _, ok := zoo.Lookup(name); !ok {
		if _, err := os.Stat(name); err != nil {
			return "", fmt.Errorf("%q is neither a file nor a model of the zoo; see overlapd models list", name)
		}
		return name, nil
	}
	dir, err := cacheDir("models")
	if err != nil {
		return "", err
	}
	return buildZoo(name, dir, zooSeed)
}

// buildZoo builds a model of the zoo, with a progress bar on a terminal.
func buildZoo(name, dir string, seed uint64) (string, error) {
	bar := newBar("building " + name)
	path, err := zoo.Build(name, dir, seed, func(done, total int64) {
		bar.ChangeMax64(total)
		_ = bar.Set64(done) // the bar is for looks
	})
	_ = bar.Exit()
	return path, err
}

// newBar returns a progress bar of bytes on stderr that is silent unless that
// is a terminal.
func newBar(what string) *progressbar.ProgressBar {
	return barOf(what, progressbar.OptionShowBytes(true))
}

// newCountBar returns one of things, which says itself how long it takes.
func newCountBar(what string) *progressbar.ProgressBar {
	return barOf(what, progressbar.OptionShowCount(), progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false))
}

func barOf(what string, options ...progressbar.Option) *progressbar.ProgressBar {
	to := io.Discard
	if term.IsTerminal(int(os.Stderr.Fd())) {
		to = os.Stderr
	}
	return progressbar.NewOptions64(1, append(options,
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(to),
		progressbar.OptionClearOnFinish(),
	)...)
}

package ort

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// PathVariable is the environment variable that names the library to load,
// before any other place.
const PathVariable = "OVERLAPD_ORT"

const (
	libraryName = "libonnxruntime.so.1"
	remedy      = "run `make ort` or set " + PathVariable
)

// Find returns the path of the library: $OVERLAPD_ORT if that is set, else the
// first of these that exists: next to the executable, ../lib and
// ../lib/overlapd from there, overlapd's folder in the user's cache,
// /usr/local/lib/overlapd, /usr/lib/overlapd.
func Find() (string, error) {
	if path := os.Getenv(PathVariable); path != "" {
		if err := checkFile(path); err != nil {
			return "", fmt.Errorf("%w: %s=%s: %v; %s", ErrNotFound, PathVariable, path, err, remedy)
		}
		return path, nil
	}
	places := places()
	for _, dir := range places {
		path := filepath.Join(dir, libraryName)
		if checkFile(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no %s in %s; %s", ErrNotFound, libraryName, strings.Join(places, ", "), remedy)
}

func places() []string {
	var dirs []string
	if executable, err := os.Executable(); err == nil {
		dir := filepath.Dir(executable)
		lib := filepath.Join(dir, "..", "lib")
		dirs = append(dirs, dir, lib, filepath.Join(lib, "overlapd"))
	}
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(cache, "overlapd", "onnxruntime-"+PinnedVersion+"-cpu"))
	}
	return append(dirs, "/usr/local/lib/overlapd", "/usr/lib/overlapd")
}

func checkFile(path string) error {
	info, err := os.Stat(path)
	var reason *os.PathError
	switch {
	case errors.As(err, &reason):
		return reason.Err // the path is in the message already
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("not a file")
	}
	return nil
}

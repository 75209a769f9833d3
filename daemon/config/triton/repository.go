package triton

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// configFile is the configuration of a model, in its folder. A model needs none
// whose file tells enough.
const configFile = "config.pbtxt"

// maxConfigBytes bounds the file of one model; those of real ones have a few
// kilobytes.
const maxConfigBytes = 256 << 10

// repository is a model repository. What it reads lies below its folder, also behind
// symbolic links.
type repository struct {
	dir  string // absolute
	root *os.Root
}

func openRepository(dir string) (*repository, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(absolute)
	if err != nil {
		return nil, err
	}
	return &repository{dir: absolute, root: root}, nil
}

// path returns where something below the repository lies.
func (r *repository) path(below ...string) string {
	return filepath.Join(r.dir, filepath.Join(below...))
}

// folders returns the names of the folders below another one, and of links to such.
// Hidden ones belong to tools.
func (r *repository) folders(below string) (names []string, err error) {
	entries, err := fs.ReadDir(r.root.FS(), below)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.Type().IsRegular() {
			continue
		}
		info, err := r.root.Stat(filepath.Join(below, e.Name()))
		if err != nil {
			return nil, r.explain(err, filepath.Join(below, e.Name()))
		}
		if info.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// explain returns the error of a path that could not be reached.
func (r *repository) explain(err error, below string) error {
	if info, lerr := r.root.Lstat(below); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link that leads out of the repository or nowhere: put the files themselves there", r.path(below))
	}
	if reason, ok := errors.AsType[*fs.PathError](err); ok {
		err = reason.Err
	}
	return fmt.Errorf("%s: %w", r.path(below), err)
}

// regular returns what a path is, which must be a regular file or, if that is allowed,
// a folder.
func (r *repository) regular(below string, folder bool) (fs.FileInfo, error) {
	info, err := r.root.Stat(below)
	if err != nil {
		return nil, r.explain(err, below)
	}
	if !info.Mode().IsRegular() && !(folder && info.IsDir()) {
		return nil, fmt.Errorf("%s is not a regular file", r.path(below))
	}
	return info, nil
}

// readConfig returns the text of a model's configuration, "" if there is none.
func (r *repository) readConfig(name string) ([]byte, error) {
	file := filepath.Join(name, configFile)
	info, err := r.regular(file, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > maxConfigBytes:
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", configFile, info.Size(), maxConfigBytes)
	}
	return r.root.ReadFile(file)
}

// modelFile returns the path of the ONNX file of a version, below the repository. In
// the place of the file there may be a folder of that name, which holds the file under
// the same name and its external data.
func (r *repository) modelFile(version, file string) (string, error) {
	if !filepath.IsLocal(file) {
		return "", fmt.Errorf("default_model_filename %q leads out of the folder of the version", file)
	}
	below := filepath.Join(version, file)
	info, err := r.regular(below, true)
	if err == nil && info.IsDir() {
		below = filepath.Join(below, filepath.Base(file))
		_, err = r.regular(below, false)
	}
	return below, err
}

// versions returns the numbers of a model's versions, the highest first, and the
// folders that are none. Like Triton it takes no number with zeros before it.
func (r *repository) versions(name string) (numbers []int64, others []string, err error) {
	folders, err := r.folders(name)
	for _, folder := range folders {
		n, err := strconv.ParseInt(folder, 10, 64)
		if err != nil || n < 1 || strconv.FormatInt(n, 10) != folder {
			others = append(others, strconv.Quote(folder))
			continue
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	return numbers, others, err
}

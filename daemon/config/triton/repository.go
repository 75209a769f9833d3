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

// configFile is the configuration in a model's folder. It is optional: the model file often
// says enough.
const configFile = "config.pbtxt"

// maxConfigBytes limits the size of a config.pbtxt. Real ones have a few kilobytes.
const maxConfigBytes = 256 << 10

// repository is a model repository. It only reads below its folder, also through symbolic
// links: a repository may come from somebody else.
type repository struct {
	// dir is an absolute path.
	dir  string
	root *os.Root
}

// openRepository opens a repository. Its root must be closed.
func openRepository(dir string) (*repository, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// os.Root keeps every later access below the folder, whatever links there are.
	root, err := os.OpenRoot(absolute)
	if err != nil {
		return nil, err
	}
	return &repository{dir: absolute, root: root}, nil
}

// path returns the absolute path of something in the repository, for messages.
func (r *repository) path(below ...string) string {
	return filepath.Join(r.dir, filepath.Join(below...))
}

// folders returns the names of the folders in another one, including links to folders. It
// skips hidden ones, which belong to tools such as git.
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

// explain returns a readable error for a path that could not be accessed.
func (r *repository) explain(err error, below string) error {
	// For a symbolic link the likely reason is more useful than the error.
	if info, lerr := r.root.Lstat(below); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link to outside the repository or to nothing: put the files themselves there", r.path(below))
	}
	if reason, ok := errors.AsType[*fs.PathError](err); ok {
		err = reason.Err
	}
	return fmt.Errorf("%s: %w", r.path(below), err)
}

// regular returns the file info of a path, which must be a regular file or, if folder is
// set, may be a folder.
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

// readConfig returns the text of a model's configuration, or nil if there is none.
func (r *repository) readConfig(name string) ([]byte, error) {
	file := filepath.Join(name, configFile)
	info, err := r.regular(file, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > maxConfigBytes:
		return nil, fmt.Errorf("%s has %d bytes, and the limit is %d", configFile, info.Size(), maxConfigBytes)
	}
	return r.root.ReadFile(file)
}

// modelFile returns the path of the ONNX file of a version, relative to the repository.
// Instead of the file there may be a folder of the same name that holds the file and its
// external data.
func (r *repository) modelFile(version, file string) (string, error) {
	// The configuration may come from somebody else.
	if !filepath.IsLocal(file) {
		return "", fmt.Errorf("default_model_filename %q is outside the folder of the version", file)
	}
	below := filepath.Join(version, file)
	info, err := r.regular(below, true)
	if err == nil && info.IsDir() {
		below = filepath.Join(below, filepath.Base(file))
		_, err = r.regular(below, false)
	}
	return below, err
}

// versions returns the version numbers of a model, highest first, and the other folders.
// Like Triton, it does not accept numbers with leading zeros.
func (r *repository) versions(name string) (numbers []int64, others []string, err error) {
	folders, err := r.folders(name)
	for _, folder := range folders {
		n, err := strconv.ParseInt(folder, 10, 64)
		// Formatting the number again detects leading zeros and signs.
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

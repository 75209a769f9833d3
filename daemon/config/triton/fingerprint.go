package triton

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	// maxDepth is how deep files may lie that a model consists of: MODEL/VERSION/model.onnx/FILE.
	maxDepth = 4

	// maxEntries limits how many files and folders Fingerprint looks at.
	maxEntries = 1 << 16
)

// Fingerprint returns a text that changes whenever a model of the repository in dir is added,
// removed or written. It reads no files, only their names, sizes and times. What cannot be
// read has its error as the fingerprint.
func Fingerprint(dir string) string {
	r, err := openRepository(dir)
	if err != nil {
		return err.Error()
	}
	defer r.root.Close()
	h, left := sha256.New(), maxEntries
	if err := r.stamp(h, ".", maxDepth, &left); err != nil {
		return err.Error()
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Stamp returns a text that changes when a file is written or replaced by another one.
func Stamp(info fs.FileInfo) string {
	inode := uint64(0)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = s.Ino
	}
	return fmt.Sprint(inode, info.Mode(), info.Size(), info.ModTime().UnixNano())
}

// stamp writes the stamps of everything in a folder to h. left is how many entries it may
// still look at.
func (r *repository) stamp(h io.Writer, folder string, depth int, left *int) error {
	f, err := r.root.Open(folder)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(*left + 1)
	_ = f.Close() // it was only read
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if *left -= len(names); *left < 0 {
		return fmt.Errorf("%s has more than %d files and folders", r.dir, maxEntries)
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue // see folders
		}
		below := filepath.Join(folder, name)
		info, err := r.root.Stat(below)
		if err != nil {
			fmt.Fprintf(h, "%q %v\n", below, err) // it may be gone by now
			continue
		}
		if !info.IsDir() {
			fmt.Fprintf(h, "%q %s\n", below, Stamp(info))
			continue
		}
		fmt.Fprintf(h, "%q\n", below)
		if depth > 1 {
			if err := r.stamp(h, below, depth-1, left); err != nil {
				return err
			}
		}
	}
	return nil
}

package models

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapped is a file mapped into memory, and its stat at the time it was opened.
type mapped struct {
	data []byte
	stat unix.Stat_t
}

// folder opens files below the folder of a model and keeps them mapped, so that later reads
// see exactly the content that was checked.
type folder struct {
	path string
	fd   int
	// files holds the external data files by location.
	files map[string]mapped
	// name is the file name of the model itself.
	name  string
	model mapped
	// origin is the folder of the model that this one was derived from, or nil. Files that both
	// models refer to are mapped only there.
	origin *folder
}

func openFolder(path string) (*folder, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &folder{path: path, fd: fd, files: map[string]mapped{}}, nil
}

// seal closes the folder's descriptor once all files are open. The mappings remain.
func (d *folder) seal() {
	unix.Close(d.fd)
	d.fd = -1
}

// close unmaps the external data files. The caller unmaps the model file, and mappings of
// origin belong to origin.
func (d *folder) close() error {
	var errs []error
	for _, m := range d.files {
		errs = append(errs, unmap(m.data))
	}
	d.files = nil
	return errors.Join(errs...)
}

// at returns the mapping of the file at location, here or in origin, if there is one.
func (d *folder) at(location string) ([]byte, bool) {
	if m, ok := d.files[location]; ok {
		return m.data, true
	}
	switch {
	case d.origin == nil:
		return nil, false
	case location == d.origin.name:
		return d.origin.model.data, true
	}
	return d.origin.at(location)
}

// file maps the file at location, a path that checkLocation has accepted.
func (d *folder) file(location string, l limits) ([]byte, error) {
	if m, ok := d.at(location); ok {
		return m, nil
	}
	if len(d.files) >= l.ExternalFiles {
		return nil, refuse(ErrLimit, "more than %d files of external data", l.ExternalFiles)
	}
	m, err := mapRegular(d.fd, location, l.ExternalBytes, 1)
	if e := (*formatError)(nil); err != nil && !errors.As(err, &e) {
		err = refuse(ErrExternal, "it cannot be opened: %v", err)
	}
	if err != nil {
		return nil, within(err, "file "+quote(location))
	}
	d.files[location] = m
	return m.data, nil
}

// openBeneath opens a handle (O_PATH) to a file below dir. It follows no symbolic link,
// neither in the last component of the path nor in those before it.
func openBeneath(dir int, path string) (int, error) {
	parts := strings.Split(filepath.Clean(path), "/")
	at := dir
	for i, part := range parts {
		flags := unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
		if i < len(parts)-1 {
			flags |= unix.O_DIRECTORY
		}
		fd, err := unix.Openat(at, part, flags, 0)
		if at != dir {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = fd
	}
	return at, nil
}

// mapRegular maps the file at path below dir. It first checks that this is a regular file of
// at most maxBytes with at most maxLinks hard links (0 for any number). The check has no side
// effects on devices or pipes. An empty file gives nil data.
func mapRegular(dir int, path string, maxBytes int64, maxLinks int) (m mapped, err error) {
	place, err := openBeneath(dir, path)
	switch {
	case err == unix.ELOOP || err == unix.ENOTDIR:
		return m, refuse(ErrExternal, "its path contains a symbolic link or a file; put the file itself there")
	case err != nil:
		return m, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(place)
	if err := unix.Fstat(place, &m.stat); err != nil {
		return m, os.NewSyscallError("fstat", err)
	}
	if err := checkRegular(&m.stat, maxBytes, maxLinks); err != nil || m.stat.Size == 0 {
		return m, err
	}
	// Opening through /proc opens the file that was checked, even if its name now refers to
	// another one.
	file, err := os.Open("/proc/self/fd/" + strconv.Itoa(place))
	if err != nil {
		return m, &os.PathError{Op: "open", Path: path, Err: errors.Unwrap(err)}
	}
	defer file.Close()
	m.data, err = unix.Mmap(int(file.Fd()), 0, int(m.stat.Size), unix.PROT_READ, unix.MAP_PRIVATE)
	return m, err
}

func checkRegular(st *unix.Stat_t, maxBytes int64, maxLinks int) error {
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return refuse(ErrExternal, "it is a symbolic link; put the file itself there")
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return refuse(ErrExternal, "it is a folder, not a regular file; name the file in it")
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return refuse(ErrExternal, "it is not a regular file")
	case maxLinks > 0 && st.Nlink > uint64(maxLinks):
		return refuse(ErrExternal, "it has %d names (hard links); copy the file instead", st.Nlink)
	case st.Size > maxBytes:
		return refuse(ErrLimit, "it has %d bytes, and the limit is %d", st.Size, maxBytes)
	}
	return nil
}

// touch makes the kernel read a part of a mapped file, which must begin at a page boundary.
// Without it, a goroutine that faults on a page of an unresponsive file system blocks the
// garbage collector and so the whole process. A goroutine in a system call does not.
func touch(m []byte) {
	if len(m) > 0 {
		// Errors are ignored: a page that cannot be read faults when it is used.
		_ = unix.Madvise(m, unix.MADV_POPULATE_READ)
	}
}

// release drops a part of a mapped file, which must begin at a page boundary, from memory. The
// kernel reads it again when it is used.
func release(m []byte) {
	if len(m) > 0 {
		// An error only means that the memory stays in use.
		_ = unix.Madvise(m, unix.MADV_DONTNEED)
	}
}

func unmap(m []byte) error {
	if len(m) == 0 {
		return nil
	}
	return unix.Munmap(m)
}

// unchanged returns an error if a file that the folder has mapped was modified, or if its name
// now refers to another file.
func (d *folder) unchanged() error {
	if err := d.model.unchanged(filepath.Join(d.path, d.name)); err != nil {
		return err
	}
	for location, m := range d.files {
		if err := m.unchanged(filepath.Join(d.path, location)); err != nil {
			return err
		}
	}
	return nil
}

// forget releases the memory of all mapped files, those of origin included.
func (d *folder) forget() {
	for ; d != nil; d = d.origin {
		release(d.model.data)
		for _, m := range d.files {
			release(m.data)
		}
	}
}

func (m *mapped) stamp() string {
	st := &m.stat
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim)
}

func (m *mapped) unchanged(path string) error {
	var now unix.Stat_t
	err := unix.Lstat(path, &now)
	if err != nil || now.Dev != m.stat.Dev || now.Ino != m.stat.Ino || now.Size != m.stat.Size || now.Mtim != m.stat.Mtim {
		return &os.PathError{Op: "read", Path: path, Err: errors.Join(errChanged, err)}
	}
	return nil
}

var errChanged = errors.New("the file changed while its model was loaded; load it again when it is complete")

package models

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// folder opens files below the folder of a model and keeps them mapped, so
// that what was checked is what is read later.
type folder struct {
	fd    int
	files map[string][]byte // by location; never nil for a file that was opened
}

func openFolder(path string) (*folder, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &folder{fd: fd, files: map[string][]byte{}}, nil
}

// seal gives back the folder itself; the files stay mapped.
func (d *folder) seal() {
	unix.Close(d.fd)
	d.fd = -1
}

func (d *folder) close() error {
	var errs []error
	for _, m := range d.files {
		errs = append(errs, unmap(m))
	}
	d.files = nil
	return errors.Join(errs...)
}

// file maps the file at location, a path that checkLocation has passed.
func (d *folder) file(location string, l Limits) ([]byte, error) {
	if m, ok := d.files[location]; ok {
		return m, nil
	}
	if len(d.files) >= l.ExternalFiles {
		return nil, refuse(ErrLimit, "more than %d files of external data", l.ExternalFiles)
	}
	m, err := mapRegular(func(flags int) (int, error) { return openBeneath(d.fd, location, flags) }, l.ExternalBytes, 1)
	if e := (*FormatError)(nil); err != nil && !errors.As(err, &e) {
		err = refuse(ErrExternal, "it cannot be opened: %v", err)
	}
	if err != nil {
		return nil, within(err, "file "+quote(location))
	}
	d.files[location] = m
	return m, nil
}

// openBeneath opens a file below dir and follows no symbolic link, neither in
// the last part of the path nor before it.
func openBeneath(dir int, path string, flags int) (int, error) {
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   uint64(flags | unix.O_NOFOLLOW),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == unix.ENOSYS || err == unix.EPERM { // an old kernel, or a filter that does not know the call
		return walkBeneath(dir, path, flags)
	}
	return fd, err
}

// walkBeneath does what openBeneath does, one folder at a time.
func walkBeneath(dir int, path string, flags int) (int, error) {
	parts := strings.Split(filepath.Clean(path), "/")
	at := dir
	for i, part := range parts {
		f := flags
		if i < len(parts)-1 {
			f = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
		}
		fd, err := unix.Openat(at, part, f|unix.O_NOFOLLOW, 0)
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

// mapRegular maps a file that open opens, after making sure, without side
// effects on devices or pipes, that it is a regular one and has at most
// maxLinks names (0 for any number).
func mapRegular(open func(flags int) (int, error), maxBytes int64, maxLinks int) ([]byte, error) {
	look, err := open(unix.O_PATH | unix.O_CLOEXEC)
	if err != nil {
		return nil, refuseFile(err)
	}
	defer unix.Close(look)
	before, err := checkRegular(look, maxBytes, maxLinks)
	if err != nil {
		return nil, err
	}
	fd, err := open(unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC)
	if err != nil {
		return nil, refuseFile(err)
	}
	defer unix.Close(fd)
	st, err := checkRegular(fd, maxBytes, maxLinks)
	if err != nil {
		return nil, err
	}
	if st.Dev != before.Dev || st.Ino != before.Ino {
		return nil, refuse(ErrExternal, "it was replaced while it was opened; try again")
	}
	if st.Size == 0 {
		return []byte{}, nil
	}
	m, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, refuseFile(err)
	}
	return m, nil
}

func checkRegular(fd int, maxBytes int64, maxLinks int) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return st, refuseFile(err)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return st, refuse(ErrExternal, "it is a symbolic link; put the file itself there")
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return st, refuse(ErrExternal, "it is not a regular file")
	case maxLinks > 0 && st.Nlink > uint64(maxLinks):
		return st, refuse(ErrExternal, "it has %d names (hard links); copy the file instead", st.Nlink)
	case st.Size > maxBytes:
		return st, refuse(ErrLimit, "it has %d bytes, at most %d are read", st.Size, maxBytes)
	}
	return st, nil
}

// refuseFile says why a system call refused a file.
func refuseFile(err error) error {
	switch {
	case errors.Is(err, unix.ELOOP):
		return refuse(ErrExternal, "its path leads over a symbolic link; put the file itself there")
	case errors.Is(err, unix.EXDEV):
		return refuse(ErrExternal, "its path leads out of the model's folder")
	}
	return err
}

func unmap(m []byte) error {
	if len(m) == 0 {
		return nil
	}
	return unix.Munmap(m)
}

package models

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// external is where the data of an initializer lie outside the model file.
// It was checked when the file was opened.
type external struct {
	Location string // a path below the folder of the model
	Offset   int64
	Length   int64
}

// externalEntries is the reference of a TensorProto to external data.
type externalEntries struct {
	location int64 // DataLocation: 1 is external
	entries  map[string]string
}

func (e *externalEntries) given() bool { return e.location != 0 || e.entries != nil }

// externalKeys lists the keys that a reference may have. Others are refused:
// what some reader makes of them is not known.
var externalKeys = map[string]bool{
	"location": true, "offset": true, "length": true, "checksum": true, "basepath": true,
}

// add reads one entry of a reference.
func (e *externalEntries) add(p *parser, raw []byte) error {
	var key, value string
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			key = m.name()
		case 2:
			value = m.name()
		}
	}
	if m.err != nil {
		return m.err
	}
	if e.entries == nil {
		e.entries = map[string]string{}
	}
	if _, ok := e.entries[key]; ok || !externalKeys[key] {
		return refuse(ErrExternal, "its reference has the key %s twice, or may not have it", quote(key))
	}
	e.entries[key] = value
	return nil
}

// resolve verifies the reference of t and, where it is allowed, the file that it
// leads to.
func (e externalEntries) resolve(p *parser, t *Initializer, elements int64, data payload, allowed bool) error {
	switch {
	case e.location != 1:
		return refuse(ErrExternal, "it has a reference but its data are not said to be external")
	case !allowed:
		return refuse(ErrExternal, "only dense initializers of the main graph may have their data outside the file; save the model as one file")
	case p.folder == nil:
		return refuse(ErrExternal, "a model in memory has no folder; save the model as one file")
	case t.Type == String:
		return refuse(ErrExternal, "strings cannot lie outside the file")
	case data != payload{}:
		return refuse(ErrExternal, "it has data in the file as well")
	}
	t.Bytes = tensorBytes(t.Type, elements)
	x, err := e.parse(t.Bytes)
	if err != nil {
		return err
	}
	t.External = x
	m, err := p.folder.file(x.Location, p.limits)
	if err != nil {
		return err
	}
	if size := int64(len(m)); x.Offset > size || x.Length > size-x.Offset {
		if is := recognize(m); is != "" {
			return within(refuse(ErrExternal, "%s", is), "file "+quote(x.Location))
		}
		return refuse(ErrExternal, "%d bytes from byte %d on do not lie in %s, which has %d",
			x.Length, x.Offset, quote(x.Location), size)
	}
	return nil
}

// parse returns the reference, of a tensor with the given size.
func (e externalEntries) parse(size int64) (*external, error) {
	x := &external{Location: e.entries["location"], Length: size}
	if err := checkLocation(x.Location); err != nil {
		return nil, err
	}
	for key, to := range map[string]*int64{"offset": &x.Offset, "length": &x.Length} {
		value, ok := e.entries[key]
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return nil, refuse(ErrExternal, "its %s %s is not a number from 0 on", key, quote(value))
		}
		*to = int64(n)
	}
	if x.Length != size {
		return nil, refuse(ErrExternal, "its shape asks for %d bytes, its reference for %d", size, x.Length)
	}
	return x, nil
}

// memoryLocation is how ONNX Runtime marks a tensor whose offset is an
// address in memory.
const memoryLocation = "_ORT_MEM_ADDR_"

func checkLocation(location string) error {
	parts := strings.Split(location, "/")
	for _, part := range parts {
		if part == ".." {
			return refuse(ErrExternal, "its location %s leads out of the model's folder", quote(location))
		}
	}
	if !filepath.IsLocal(location) || strings.ContainsAny(location, "\x00\\") || strings.Contains(location, memoryLocation) {
		return refuse(ErrExternal, "its location %s is not a path below the model's folder", quote(location))
	}
	return nil
}

// externalBytes returns the data that e refers to. They are mapped memory, good
// until the File is closed.
func (f *File) externalBytes(e *external) []byte {
	return clip(f.folder.files[e.Location][e.Offset : e.Offset+e.Length])
}

// External returns the files of external data by location, as mapped memory that is
// good until the File is closed.
func (f *File) External() map[string][]byte {
	if f.folder == nil {
		return nil
	}
	return f.folder.files
}

// Inline returns the TensorProto of i with its data in it. For one without external
// data that is Raw.
func (f *File) Inline(i Initializer) []byte {
	if i.External == nil {
		return i.Raw
	}
	var dst []byte
	m := message{rest: i.Raw}
	for rest := i.Raw; m.next(); rest = m.rest {
		if m.num != 13 && m.num != 14 {
			dst = append(dst, rest[:len(rest)-len(m.rest)]...)
		}
	}
	return AppendField(dst, 9, f.externalBytes(i.External))
}

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
func (d *folder) file(location string, l limits) ([]byte, error) {
	if m, ok := d.files[location]; ok {
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
	return m, nil
}

// openBeneath opens the place (O_PATH) of a file below dir, and follows no symbolic
// link, neither in the last part of the path nor before it.
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

// mapRegular maps the file at path below dir, after making sure, without side
// effects on devices or pipes, that it is a regular one and has at most maxLinks
// names (0 for any number).
func mapRegular(dir int, path string, maxBytes int64, maxLinks int) ([]byte, error) {
	place, err := openBeneath(dir, path)
	switch {
	case err == unix.ELOOP || err == unix.ENOTDIR:
		return nil, refuse(ErrExternal, "its path leads over a symbolic link or a file; put the file itself there")
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(place)
	size, err := checkRegular(place, maxBytes, maxLinks)
	if err != nil || size == 0 {
		return []byte{}, err
	}
	// This opens what was checked, whatever has taken its name meanwhile.
	file, err := os.Open("/proc/self/fd/" + strconv.Itoa(place))
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.Unwrap(err)}
	}
	defer file.Close()
	return unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
}

func checkRegular(fd int, maxBytes int64, maxLinks int) (size int64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return 0, refuse(ErrExternal, "it is a symbolic link; put the file itself there")
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return 0, refuse(ErrExternal, "it is a folder, not a regular file; name the file in it")
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return 0, refuse(ErrExternal, "it is not a regular file")
	case maxLinks > 0 && st.Nlink > uint64(maxLinks):
		return 0, refuse(ErrExternal, "it has %d names (hard links); copy the file instead", st.Nlink)
	case st.Size > maxBytes:
		return 0, refuse(ErrLimit, "it has %d bytes, at most %d are read", st.Size, maxBytes)
	}
	return st.Size, nil
}

// touch has the kernel read a part of a mapped file, from a page boundary on. A thread that
// waits for a page of a file system that does not answer keeps the garbage collector, and
// with it the whole process, from going on; a call to the kernel does not.
func touch(m []byte) {
	if len(m) > 0 {
		_ = unix.Madvise(m, unix.MADV_POPULATE_READ) // what it cannot read, a look at the page tells
	}
}

func unmap(m []byte) error {
	if len(m) == 0 {
		return nil
	}
	return unix.Munmap(m)
}

// Data returns the elements of i as they lie in memory, mapped and good until the File
// is closed, and nil where they stand in another form.
func (f *File) Data(i Initializer) (data []byte) {
	switch {
	case i.External != nil:
		return f.externalBytes(i.External)
	case i.Sparse || i.Type.Bytes() == 0:
		return nil
	}
	for m := (message{rest: i.Raw}); m.next(); {
		if m.num == 9 {
			data = m.body()
		}
	}
	return clip(data)
}

// At returns the TensorProto of i with its data not in it but in the file at location.
func (i Initializer) At(location string) []byte {
	var dst []byte
	for _, d := range i.Dims {
		dst = AppendInt(dst, 1, d)
	}
	dst = AppendString(AppendInt(dst, 2, int64(i.Type)), 8, i.Name)
	return AppendInt(AppendField(dst, 13, AppendString(AppendString(nil, 1, "location"), 2, location)), 14, 1)
}

// Forget gives the memory of the mapped files back. What is used of them after all is
// read again.
func (f *File) Forget() {
	_ = unix.Madvise(f.data, unix.MADV_DONTNEED) // it costs memory and nothing else
	for _, m := range f.folder.files {
		_ = unix.Madvise(m, unix.MADV_DONTNEED)
	}
}

package models

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// File is an ONNX file that is open for reading. All Raw fields refer to its mapped bytes and
// must not be used after Close.
type File struct {
	// Path is the path as given to Open.
	Path      string
	IRVersion int64
	// Opsets holds an OperatorSetIdProto for each operator set that the model imports.
	Opsets    [][]byte
	Functions []function
	Graph     graph
	// Changes describes, in words, how Graph differs from the graph in the file.
	Changes []string

	data []byte
	// folder is nil for a model in memory.
	folder *folder
	// calls counts the operators that the main graph uses.
	calls calls
}

// Open maps and parses the model at path, a regular file or a symbolic link to one. To replace
// the file, rename another one over it: writing to the file in place changes the open File,
// and truncating it makes later reads fault.
func Open(path string) (*File, error) { return openWithin(path, defaultLimits(), nil) }

// OpenDerived opens a model that was generated from f. Where f has mapped a file at the
// location of external data, the new File shares that mapping; other external data are opened
// below its own folder. f must stay open as long as the new File is in use.
func (f *File) OpenDerived(path string) (*File, error) {
	return openWithin(path, defaultLimits(), f.folder)
}

// openWithin opens a model whose external data may lie in the mappings of origin, which may be
// nil.
func openWithin(path string, l limits, origin *folder) (f *File, err error) {
	defer func() {
		if fault := (*formatError)(nil); errors.As(err, &fault) {
			fault.Path = path
		}
	}()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		// EvalSymlinks names the folder on the way that failed. The user knows only path.
		if place := (*fs.PathError)(nil); errors.As(err, &place) {
			err = &fs.PathError{Op: "open", Path: path, Err: place.Err}
		}
		return nil, err
	}
	dir, err := openFolder(filepath.Dir(real))
	if err != nil {
		return nil, err
	}
	dir.origin = origin
	defer dir.seal()
	m, err := mapRegular(dir.fd, filepath.Base(real), l.FileBytes, 0)
	// For the model file itself, "not a regular file" is no fault of external data.
	if fault := (*formatError)(nil); errors.As(err, &fault) && errors.Is(fault, ErrExternal) {
		fault.Err = ErrNotONNX
	}
	if err != nil {
		return nil, err
	}
	if m.data == nil {
		m.data = []byte{}
	}
	dir.name, dir.model = filepath.Base(real), m
	data := m.data
	touch(data)
	f, err = parse(data, l, dir)
	if err != nil {
		// A known foreign format explains more than the position at which parsing failed.
		if is := recognize(data); is != "" {
			err = refuse(ErrNotONNX, "%s", is)
		}
		return nil, errors.Join(err, dir.close(), unmap(data))
	}
	f.Path = path
	return f, nil
}

// Close unmaps the file and its external data. A File from Parse needs no Close.
func (f *File) Close() error {
	if f.folder == nil || f.data == nil {
		return nil
	}
	err := errors.Join(f.folder.close(), unmap(f.data))
	f.data = nil
	f.Graph, f.Functions, f.Opsets = graph{}, nil, nil
	if err != nil {
		return &os.PathError{Op: "close", Path: f.Path, Err: err}
	}
	return nil
}

// Hash returns the SHA-256 sum of the file in hexadecimal. Where the model
// has external data it is the sum over the file's sum and the names and sums
// of the files that hold them. It reads all of them.
func (f *File) Hash() string { return f.HashWhile(func(int64, int64) bool { return true }) }

// HashWhile is Hash that calls more after each part with how many bytes of how many it has
// read, and returns "" once that returns false.
func (f *File) HashWhile(more func(done, total int64) bool) string {
	done, total, stopped := int64(0), f.Bytes(), false
	sumOf := func(m []byte) (sum [sha256.Size]byte) {
		h := sha256.New()
		for part := range slices.Chunk(m, partBytes) {
			if stopped {
				break
			}
			touch(part)
			h.Write(part)
			// A part is released once it is hashed, so that hashing does not fill memory with the
			// file.
			if f.folder != nil {
				release(part)
			}
			done += int64(len(part))
			stopped = !more(done, total)
		}
		return [sha256.Size]byte(h.Sum(sum[:0]))
	}
	sum := sumOf(f.data)
	if f.folder != nil && len(f.folder.files) > 0 {
		h := sha256.New()
		h.Write(sum[:])
		// The order must not depend on the map, and the length prefix keeps names unambiguous.
		for _, location := range slices.Sorted(maps.Keys(f.folder.files)) {
			fmt.Fprintf(h, "%d %s %x", len(location), location, sumOf(f.folder.files[location].data))
		}
		h.Sum(sum[:0])
	}
	if stopped {
		return ""
	}
	return hex.EncodeToString(sum[:])
}

// Bytes returns how many bytes the file and those of external data have.
func (f *File) Bytes() int64 {
	total := int64(len(f.data))
	if f.folder != nil {
		for _, m := range f.folder.files {
			total += int64(len(m.data))
		}
	}
	return total
}

// HashFiles returns the SHA-256 sum over the sums of files in hexadecimal, or "" for no files.
func HashFiles(paths []string) (string, error) {
	if len(paths) == 0 {
		return "", nil
	}
	all := sha256.New()
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		one := sha256.New()
		_, err = io.Copy(one, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		all.Write(one.Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// HashWith returns the hash that names a model with libraries of custom operators, on which
// its outputs and its latency depend: the model's own if there are none. libraries is what
// HashFiles returns for them.
func HashWith(model, libraries string) string {
	if libraries == "" || model == "" {
		return model
	}
	sum := sha256.Sum256([]byte(model + " " + libraries))
	return hex.EncodeToString(sum[:])
}

// Stamp names the files that f has open without reading them, by what the file system says of
// them. A file that is replaced, or written to, has another one.
func (f *File) Stamp() string {
	stamp := f.folder.model.stamp()
	for _, location := range slices.Sorted(maps.Keys(f.folder.files)) {
		m := f.folder.files[location]
		stamp += fmt.Sprintf(" %q %s", location, m.stamp())
	}
	return stamp
}

// Forget gives the memory of the mapped files back. What is used of them after all is
// read again.
func (f *File) Forget() { f.folder.forget() }

// Folder returns the folder that the locations of external data are relative to, for a reader
// that opens these files by name. It returns "" for a model in memory.
func (f *File) Folder() string {
	switch d := f.folder; {
	case d == nil:
		return ""
	case d.origin != nil && len(d.files) == 0:
		return d.origin.path
	default:
		return d.path
	}
}

// Unchanged returns an error if the model file or one of its external data files has been
// replaced or written to since f was opened. A reader that opened these files by name, such as
// ONNX Runtime, may then have read different content.
func (f *File) Unchanged() error { return f.folder.unchanged() }

// Model returns what the file holds of the model, whose hash is given. Its operators are the
// nodes as they stand in the file, whose live bytes are not known.
func (f *File) Model(hash string) *Model {
	operators := make([]Operator, len(f.Graph.Nodes))
	for i := range f.Graph.Nodes {
		n := &f.Graph.Nodes[i]
		operators[i] = Operator{Name: n.Name, Type: n.OpType, Nodes: 1, LiveBytes: -1}
	}
	m := f.Ports()
	m.Path, m.Hash, m.Operators = f.Path, hash, operators
	return &m
}

// Ports returns a Model with only the inputs and outputs. It reads no data.
func (f *File) Ports() Model {
	return Model{Inputs: specs(f.Graph.FeedInputs()), Outputs: specs(f.Graph.Outputs)}
}

func specs(values []valueInfo) []TensorSpec {
	s := make([]TensorSpec, len(values))
	for i, v := range values {
		s[i] = TensorSpec{Name: v.Name, Type: v.Type}
	}
	return s
}

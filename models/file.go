package models

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// File is an ONNX file, open for reading. All Raw fields refer to its bytes;
// none may be used after Close.
type File struct {
	Path      string // as it was given to Open
	IRVersion int64
	Opsets    [][]byte // OperatorSetIdProto
	Functions []function
	Graph     graph
	Changes   []string // in which its graph differs from that of the file, in words

	data   []byte
	folder *folder // nil for a model in memory
	calls  calls   // of the graph
}

// Open maps the model at path, a regular file or a symbolic link to one, and
// reads it. Whoever replaces the file must rename another one to its place: a
// write to the file itself reaches into the open File, and shortening it
// makes reading it fault.
func Open(path string) (*File, error) { return openWithin(path, defaultLimits()) }

func openWithin(path string, l limits) (f *File, err error) {
	defer func() {
		if fault := (*formatError)(nil); errors.As(err, &fault) {
			fault.Path = path
		}
	}()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		if place := (*fs.PathError)(nil); errors.As(err, &place) { // of a folder on the way
			err = &fs.PathError{Op: "open", Path: path, Err: place.Err}
		}
		return nil, err
	}
	dir, err := openFolder(filepath.Dir(real))
	if err != nil {
		return nil, err
	}
	defer dir.seal()
	data, err := mapRegular(dir.fd, filepath.Base(real), l.FileBytes, 0)
	if fault := (*formatError)(nil); errors.As(err, &fault) && errors.Is(fault, ErrExternal) {
		fault.Err = ErrNotONNX
	}
	if err != nil {
		return nil, err
	}
	touch(data)
	f, err = parse(data, l, dir)
	if err != nil {
		if is := recognize(data); is != "" {
			err = refuse(ErrNotONNX, "%s", is)
		}
		return nil, errors.Join(err, dir.close(), unmap(data))
	}
	f.Path = path
	return f, nil
}

// Close unmaps the file and its external data. A File of Parse needs no Close.
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
func (f *File) Hash() string {
	sum := hashMapped(f.data)
	if f.folder != nil && len(f.folder.files) > 0 {
		h := sha256.New()
		h.Write(sum[:])
		for _, location := range slices.Sorted(maps.Keys(f.folder.files)) {
			fmt.Fprintf(h, "%d %s %x", len(location), location, hashMapped(f.folder.files[location]))
		}
		h.Sum(sum[:0])
	}
	return hex.EncodeToString(sum[:])
}

// hashMapped returns the SHA-256 sum of mapped memory.
func hashMapped(m []byte) (sum [sha256.Size]byte) {
	const part = 64 << 20 // what is touched at once may be all in memory
	h := sha256.New()
	for p := range slices.Chunk(m, part) {
		touch(p)
		h.Write(p)
	}
	return [sha256.Size]byte(h.Sum(sum[:0]))
}

// Model returns what the file holds of the model. Its operators are the nodes as
// they stand in the file, whose live bytes are not known. It reads all data, for the
// hash.
func (f *File) Model() *Model {
	operators := make([]Operator, len(f.Graph.Nodes))
	for i := range f.Graph.Nodes {
		n := &f.Graph.Nodes[i]
		operators[i] = Operator{Name: n.Name, Type: n.OpType, Nodes: 1, LiveBytes: -1}
	}
	m := f.Ports()
	m.Path, m.Hash, m.Operators = f.Path, f.Hash(), operators
	return &m
}

// Ports returns the inputs and outputs of the model alone, for which no data are read.
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

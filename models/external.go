package models

import (
	"path/filepath"
	"strconv"
	"strings"
)

// External tells where the data of an initializer lie outside the model file.
// It was checked when the file was opened.
type External struct {
	Location string // a path below the folder of the model
	Offset   int64
	Length   int64
}

// externalEntries is what a TensorProto says of external data.
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

func (p *parser) externalEntry(e *externalEntries, raw []byte) error {
	key, value, err := p.entry(raw)
	if err != nil {
		return err
	}
	if e.entries == nil {
		e.entries = map[string]string{}
	}
	if _, ok := e.entries[key]; ok || !externalKeys[key] {
		return refuse(ErrExternal, "its reference has the key %s twice, or may not have it", quote(key))
	}
	if len(value) > p.limits.NameBytes {
		return refuse(ErrLimit, "the value of %s has %d bytes, at most %d are read", quote(key), len(value), p.limits.NameBytes)
	}
	e.entries[key] = value
	return nil
}

// external verifies the reference of t and, where it is allowed, the file
// that it leads to.
func (p *parser) external(t *Initializer, e externalEntries, elements int64, data payload, allowed bool) error {
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
		return refuse(ErrExternal, "%d bytes from byte %d on do not lie in %s, which has %d",
			x.Length, x.Offset, quote(x.Location), size)
	}
	return nil
}

// parse returns the reference, of a tensor with the given size.
func (e externalEntries) parse(size int64) (*External, error) {
	x := &External{Location: e.entries["location"], Length: size}
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

// HasExternal reports whether data of the model lie outside the file.
func (f *File) HasExternal() bool { return f.folder != nil && len(f.folder.files) > 0 }

// ExternalBytes returns the data that e refers to, which must come from f.
// They are mapped memory, good until the File is closed.
func (f *File) ExternalBytes(e *External) ([]byte, error) {
	if f.data == nil {
		return nil, ErrClosed
	}
	if f.folder == nil {
		return nil, refuse(ErrExternal, "a model in memory has no folder")
	}
	m, ok := f.folder.files[e.Location]
	if !ok {
		return nil, refuse(ErrExternal, "the file does not refer to %s", quote(e.Location))
	}
	if e.Offset < 0 || e.Length < 0 || e.Offset > int64(len(m)) || e.Length > int64(len(m))-e.Offset {
		return nil, refuse(ErrExternal, "%d bytes from byte %d on do not lie in %s", e.Length, e.Offset, quote(e.Location))
	}
	return clip(m[e.Offset : e.Offset+e.Length]), nil
}

// AppendInline appends to dst the TensorProto of i with its data in it. For
// one without external data that is Raw.
func (f *File) AppendInline(dst []byte, i Initializer) ([]byte, error) {
	if i.External == nil {
		return append(dst, i.Raw...), nil
	}
	data, err := f.ExternalBytes(i.External)
	if err != nil {
		return nil, err
	}
	m := message{rest: i.Raw}
	for rest := i.Raw; m.next(); rest = m.rest {
		if m.num != 13 && m.num != 14 {
			dst = append(dst, rest[:len(rest)-len(m.rest)]...)
		}
	}
	return appendField(dst, 9, data), m.err
}

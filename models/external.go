package models

import (
	"path/filepath"
	"strconv"
	"strings"
)

// external locates the data of an initializer outside the model file. resolve has checked
// that the range lies within the file.
type external struct {
	// Location is a path below the model's folder.
	Location string
	Offset   int64
	Length   int64
}

// externalEntries is the reference of a TensorProto to external data, before it is checked.
type externalEntries struct {
	// location is TensorProto.DataLocation: 1 means external.
	location int64
	entries  map[string]string
}

func (e *externalEntries) given() bool { return e.location != 0 || e.entries != nil }

// externalKeys lists the keys that ONNX defines for a reference. Any other key is rejected,
// because another reader might give it a meaning that was not checked here.
var externalKeys = map[string]bool{
	"location": true, "offset": true, "length": true, "checksum": true, "basepath": true,
}

// add reads one key-value entry of a reference.
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
		return refuse(ErrExternal, "the key %s of its reference is duplicate or not allowed", quote(key))
	}
	e.entries[key] = value
	return nil
}

// resolve checks the reference of t and maps the file it refers to. allowed is false for
// tensors that may not have external data. It sets t.Bytes and t.External.
func (e externalEntries) resolve(p *parser, t *Initializer, elements int64, data payload, allowed bool) error {
	switch {
	case e.location != 1:
		return refuse(ErrExternal, "it has a reference to external data but is not declared external")
	case !allowed:
		return refuse(ErrExternal, "only dense initializers of the main graph may have external data; save the model as one file")
	case p.folder == nil:
		return refuse(ErrExternal, "a model in memory has no folder for external data; save the model as one file")
	case t.Type == String:
		return refuse(ErrExternal, "strings cannot be external data; save the model as one file")
	case data != payload{}:
		return refuse(ErrExternal, "it has both external data and data in the file")
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
		return refuse(ErrExternal, "%d bytes from byte %d on are beyond the end of %s, which has %d",
			x.Length, x.Offset, quote(x.Location), size)
	}
	return nil
}

// parse returns the reference, checked against the tensor's size in bytes.
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
			return nil, refuse(ErrExternal, "its %s %s is not a number, 0 or more", key, quote(value))
		}
		*to = int64(n)
	}
	if x.Length != size {
		return nil, refuse(ErrExternal, "its shape needs %d bytes, but its reference has %d", size, x.Length)
	}
	return x, nil
}

// memoryLocation is the location by which ONNX Runtime marks a tensor whose offset is an
// address in memory. A file with it would make the runtime read arbitrary memory.
const memoryLocation = "_ORT_MEM_ADDR_"

// checkLocation returns an error unless location is a path below the model's folder. The check
// is lexical; openBeneath keeps symbolic links from leading out of the folder.
func checkLocation(location string) error {
	parts := strings.Split(location, "/")
	for _, part := range parts {
		if part == ".." {
			return refuse(ErrExternal, "its location %s is outside the model's folder", quote(location))
		}
	}
	if !filepath.IsLocal(location) || strings.ContainsAny(location, "\x00\\") || strings.Contains(location, memoryLocation) {
		return refuse(ErrExternal, "its location %s is not a path below the model's folder", quote(location))
	}
	return nil
}

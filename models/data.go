package models

import (
	"os"
	"strconv"
)

// Data returns the elements of i in their in-memory layout. The slice is mapped memory and
// valid until the File is closed. Data returns nil if the file stores the elements in another
// form, such as a typed repeated field.
func (f *File) Data(i Initializer) []byte {
	m, from, to := f.place(i)
	return m[from:to:to]
}

// place returns the mapped file that holds the elements of i in their in-memory layout, and
// the byte range [from, to) within it. It returns a nil file if they are stored in another form.
func (f *File) place(i Initializer) (m []byte, from, to int64) {
	switch {
	case i.External != nil:
		m, _ = f.folder.at(i.External.Location)
		return m, i.External.Offset, i.External.Offset + i.External.Length
	case i.Sparse || i.Type.Bytes() == 0:
		return nil, 0, 0
	}
	for field := (message{rest: i.Raw}); field.next(); {
		if field.num == 9 {
			body := field.body()
			// clip has set the capacity of Raw to its length, so the
			// difference of the capacities is the offset of the body.
			m, from = f.data, i.at+int64(cap(i.Raw)-cap(body))
			to = from + int64(len(body))
		}
	}
	return m, from, to
}

// At returns the TensorProto of i with its data not inline but in the file at location.
func (i Initializer) At(location string) []byte { return i.from(location, 0) }

func (i Initializer) from(location string, offset int64) []byte {
	var dst []byte
	for _, d := range i.Dims {
		dst = AppendInt(dst, 1, d)
	}
	dst = AppendString(AppendInt(dst, 2, int64(i.Type)), 8, i.Name)
	dst = AppendField(dst, 13, AppendString(AppendString(nil, 1, "location"), 2, location))
	if offset > 0 {
		dst = AppendField(dst, 13, AppendString(AppendString(nil, 1, "offset"), 2, strconv.FormatInt(offset, 10)))
	}
	return AppendInt(dst, 14, 1)
}

// Outside returns a TensorProto for i, an initializer of a file that Open returned, that refers
// to the data where they are stored on disk: in the model's own file, or in its external data
// file. If the data are not on disk in their in-memory layout, the TensorProto holds them inline.
func (f *File) Outside(i Initializer) []byte {
	m, from, _ := f.place(i)
	if i.External != nil || m == nil || checkLocation(f.folder.name) != nil {
		return i.Raw
	}
	return i.from(f.folder.name, from)
}

// partBytes is how much of a mapped file is read at a time. It bounds how much of a mapping
// Copy and Hash keep resident.
const partBytes = 64 << 20

// Copy copies the data of i, an initializer of a file that Open returned, to dst. It keeps at
// most partBytes of the mapped file resident, and calls progress with the size of each part
// once it is copied.
func (f *File) Copy(dst []byte, i Initializer, progress func(bytes int64)) {
	page := int64(os.Getpagesize())
	for m, from, to := f.place(i); from < to; {
		end := min(from+partBytes, to)
		// madvise needs page-aligned addresses.
		part := m[from-from%page : end]
		touch(part)
		n := copy(dst, m[from:end])
		release(part)
		dst, from = dst[n:], end
		progress(int64(n))
	}
}

// externalBytes returns the data that e refers to. They are mapped memory and valid until the
// File is closed.
func (f *File) externalBytes(e *external) []byte {
	m, _ := f.folder.at(e.Location)
	return clip(m[e.Offset : e.Offset+e.Length])
}

// Inline returns the TensorProto of i with its data inline. Without external data that is Raw.
// With external data, fields 13 (external_data) and 14 (data_location) are dropped and the
// data become field 9 (raw_data).
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

package models

import (
	"os"
	"strconv"
)

// Data returns the elements of i as they lie in memory, mapped and good until the File
// is closed, and nil where they stand in another form.
func (f *File) Data(i Initializer) []byte {
	m, from, to := f.place(i)
	return m[from:to:to]
}

// place returns where the elements of i lie as they are in memory: in which mapped file, and
// from where to where. It returns no file where they stand in another form.
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
			m, from = f.data, i.at+int64(cap(i.Raw)-cap(body)) // Raw ends where its memory does
			to = from + int64(len(body))
		}
	}
	return m, from, to
}

// At returns the TensorProto of i with its data not in it but in the file at location.
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

// Outside returns the TensorProto of i, an initializer of a file that Open returned, with its
// data where they lie on disk: in the model's own file, if they stand in no other. Data that
// do not stand there as they are in memory are in it.
func (f *File) Outside(i Initializer) []byte {
	m, from, _ := f.place(i)
	if i.External != nil || m == nil || checkLocation(f.folder.name) != nil {
		return i.Raw
	}
	return i.from(f.folder.name, from)
}

// partBytes is how much of a mapped file is read at once, and may be all in memory.
const partBytes = 64 << 20

// Copy copies the data of i, an initializer of a file that Open returned, to dst. It keeps
// no more than a part of the mapped file in memory, and calls progress after each part.
func (f *File) Copy(dst []byte, i Initializer, progress func(bytes int64)) {
	page := int64(os.Getpagesize())
	for m, from, to := f.place(i); from < to; {
		end := min(from+partBytes, to)
		part := m[from-from%page : end]
		touch(part)
		n := copy(dst, m[from:end])
		release(part)
		dst, from = dst[n:], end
		progress(int64(n))
	}
}

// externalBytes returns the data that e refers to. They are mapped memory, good
// until the File is closed.
func (f *File) externalBytes(e *external) []byte {
	m, _ := f.folder.at(e.Location)
	return clip(m[e.Offset : e.Offset+e.Length])
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

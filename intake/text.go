package intake

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"
)

// sniffedBytes is how much of a file is looked at before it is taken for text.
const sniffedBytes = 4096

// mark is what spreadsheets put before UTF-8.
const mark = "\ufeff"

// others are beginnings of files that are not UTF-8 text.
var others = []struct{ begins, is string }{
	{"\x1f\x8b", "compressed with gzip; unpack it first"},
	{"PK\x03\x04", "a zip archive or a spreadsheet; unpack it, or save it as CSV"},
	{"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first"},
	{"\xfd7zXZ\x00", "compressed with xz; unpack it first"},
	{"BZh", "compressed with bzip2; unpack it first"},
	{"\xff\xfe", "UTF-16; save it as UTF-8"},
	{"\xfe\xff", "UTF-16; save it as UTF-8"},
}

// NewText returns what reads the text of r without the mark that spreadsheets
// put before it, or an error that wraps [ErrNotText] if its beginning is none.
func NewText(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, sniffedBytes)
	head, err := b.Peek(sniffedBytes)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if err := checkText(head, err == io.EOF); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte(mark)) {
		_, _ = b.Discard(len(mark)) // they have been read
	}
	return b, nil
}

// checkText looks at the beginning of a file, or at all of it.
func checkText(head []byte, all bool) error {
	for _, o := range others {
		if bytes.HasPrefix(head, []byte(o.begins)) {
			return fmt.Errorf("%w: %s", ErrNotText, o.is)
		}
	}
	if !all { // the last character may be cut
		head = head[:len(head)-min(utf8.UTFMax-1, len(head))]
		for len(head) > 0 && !utf8.RuneStart(head[len(head)-1]) {
			head = head[:len(head)-1]
		}
		head = head[:max(len(head)-1, 0)]
	}
	if at := bytes.IndexByte(head, 0); at >= 0 {
		return fmt.Errorf("%w: byte %d is zero, as in binary files; name a text file", ErrNotText, at+1)
	}
	if !utf8.Valid(head) {
		return fmt.Errorf("%w: neither ASCII nor UTF-8; save it as UTF-8", ErrNotText)
	}
	return nil
}

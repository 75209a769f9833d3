// Package textfile reads text files that users or other programs wrote. Errors name the file,
// the line and the remedy, so that commands can print them as they are.
//
// [Open] opens a file and [ReadRegular] reads a whole one. [Within] limits how long a file
// system may take. A [Sheet] is a kind of CSV file, read row by row through a [Table]. A [Kind]
// is a kind of JSON file.
//
// Input is not trusted. A CSV row takes at most 1 MiB of memory. Reading JSON rejects unknown
// fields, nulls, trailing data, and more values than the limits allow. Writing a [Kind] is
// atomic.
package textfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// The faults that a file of any kind can have.
var (
	// errFolder is returned when a path refers to a folder.
	errFolder = errors.New("it is a folder; name a file")

	// errNotRegular is returned when a path refers to a pipe or a device.
	errNotRegular = errors.New("it is not a regular file; put its content into one")

	// errNotText is returned when a file is compressed, is not encoded in UTF-8, or is binary.
	errNotText = errors.New("not plain text")

	// errTooLarge is returned when a file, or a line of it, exceeds its limit.
	errTooLarge = errors.New("too large")

	// errSyntax is returned when text does not have the syntax of its kind.
	errSyntax = errors.New("wrong syntax")
)

// Fault is an error with its position in a file. File is empty if the name is unknown. Lines
// count from 1; 0 stands for the file as a whole.
type Fault struct {
	File string
	Line int
	Err  error
}

func (f *Fault) Error() string {
	switch {
	case f.File == "" && f.Line == 0:
		return f.Err.Error()
	case f.File == "":
		return fmt.Sprintf("line %d: %v", f.Line, f.Err)
	case f.Line == 0:
		return fmt.Sprintf("%s: %v", f.File, f.Err)
	}
	return fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err)
}

func (f *Fault) Unwrap() error { return f.Err }

// Open opens a regular file for reading. Its errors name the path.
//
// It first opens a handle without access (O_PATH), checks the file, and then opens it for
// reading. A plain open would wait for the writer of a pipe, and some devices act when they are
// opened. O_NONBLOCK is no alternative: it makes the open fail while another process holds a
// lease on the file.
func Open(path string) (*os.File, error) {
	place, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, reachable(err)
	}
	defer place.Close()
	info, err := place.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, &Fault{File: path, Err: errFolder}
	case !info.Mode().IsRegular():
		return nil, &Fault{File: path, Err: errNotRegular}
	}
	// Opening through /proc opens the file that was checked, even if the path now refers to
	// another one.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(place.Fd())), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, reachable(&fs.PathError{Op: "open", Path: path, Err: err})
	}
	return os.NewFile(uintptr(fd), path), nil
}

// reachable adds the remedy to an error of opening a path.
func reachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; let this user read it", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; check the path", err)
	}
	return err
}

// ReadRegular returns the content of a regular file of at most most bytes. It returns an error
// if the file system does not answer within readTimeout; see [Within].
func ReadRegular(path string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	return Within(ctx, path, func() ([]byte, error) {
		file, err := Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		data, err := io.ReadAll(io.LimitReader(file, most+1))
		if err == nil && int64(len(data)) > most {
			err = &Fault{File: path, Err: fmt.Errorf("%w: more than %d bytes", errTooLarge, most)}
		}
		return data, err
	})
}

// sniffedBytes is how much of a file is read to decide whether it is text.
const sniffedBytes = 4096

// mark is the byte order mark that spreadsheets write at the start of UTF-8 files.
const mark = "\ufeff"

// others lists common formats that are not UTF-8 text, by their first bytes.
var others = []struct{ begins, is string }{
	{"\x1f\x8b", "compressed with gzip; unpack it first"},
	{"PK\x03\x04", "a zip archive or a spreadsheet; unpack it, or save it as CSV"},
	{"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first"},
	{"\xfd7zXZ\x00", "compressed with xz; unpack it first"},
	{"BZh", "compressed with bzip2; unpack it first"},
	{"\xff\xfe", "UTF-16; save it as UTF-8"},
	{"\xfe\xff", "UTF-16; save it as UTF-8"},
}

// newText returns a reader of the text of r, without a byte order mark. If the beginning of r
// is not text, the error wraps [errNotText].
func newText(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, sniffedBytes)
	head, err := b.Peek(sniffedBytes)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if err := checkText(head, err == io.EOF); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte(mark)) {
		// Discard cannot fail: Peek has buffered these bytes.
		_, _ = b.Discard(len(mark))
	}
	return b, nil
}

// checkText checks that head is text. head is the beginning of a file, or all of it.
func checkText(head []byte, all bool) error {
	for _, o := range others {
		if bytes.HasPrefix(head, []byte(o.begins)) {
			return fmt.Errorf("%w: %s", errNotText, o.is)
		}
	}
	// The last character may be incomplete, so it is not checked.
	if !all {
		head = head[:len(head)-min(utf8.UTFMax-1, len(head))]
		for len(head) > 0 && !utf8.RuneStart(head[len(head)-1]) {
			head = head[:len(head)-1]
		}
		head = head[:max(len(head)-1, 0)]
	}
	if at := bytes.IndexByte(head, 0); at >= 0 {
		return fmt.Errorf("%w: byte %d is zero, as in binary files; name a text file", errNotText, at+1)
	}
	if !utf8.Valid(head) {
		return fmt.Errorf("%w: neither ASCII nor UTF-8; save it as UTF-8", errNotText)
	}
	return nil
}

// Field returns the value of the first line "key: value" of a file, "" if there is none.
func Field(path, key string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

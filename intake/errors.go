package intake

import (
	"errors"
	"fmt"
)

// What may be wrong with any file.
var (
	// ErrFolder is returned when a path is that of a folder.
	ErrFolder = errors.New("it is a folder; name a file")

	// ErrNotText is returned when a file is compressed, of another encoding
	// than UTF-8, or no text at all.
	ErrNotText = errors.New("not plain text")

	// ErrTooLarge is returned when a file, or a line of it, has more bytes than
	// are read.
	ErrTooLarge = errors.New("too large")

	// ErrSyntax is returned when text is not of the form that its kind has.
	ErrSyntax = errors.New("wrong syntax")
)

// Fault tells where in a file an error was found.
type Fault struct {
	File string // "" if unknown
	Line int    // from 1, 0 if it concerns the whole file
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

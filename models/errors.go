package models

import (
	"errors"
	"fmt"
	"strconv"
)

// These errors may be returned when an ONNX file is read, with the file, the place
// in it and the reason.
var (
	// ErrNotONNX is returned when the bytes are not an ONNX model.
	ErrNotONNX = errors.New("not an ONNX model")

	// ErrVersion is returned when the file is of an IR version older than overlapd reads.
	ErrVersion = errors.New("unsupported IR version")

	// ErrGraph is returned when the file is well formed but breaks a rule of
	// ONNX: nodes out of order, a name defined twice, a tensor whose data do
	// not fit its shape, functions that call themselves.
	ErrGraph = errors.New("invalid graph")

	// ErrOperator is returned when a node is of a custom operator.
	ErrOperator = errors.New("unknown operator")

	// ErrExternal is returned when a tensor refers to data outside the file
	// and the reference is not allowed.
	ErrExternal = errors.New("external data refused")

	// ErrLimit is returned when the file exceeds one of the limits.
	ErrLimit = errors.New("limit exceeded")
)

// quotedBytes bounds what a message repeats of a name in the file.
const quotedBytes = 80

// Refused reports whether an error of this package is about what a file holds, so that
// reading the file again would not change it.
func Refused(err error) bool {
	var e *formatError
	return errors.As(err, &e)
}

// formatError is why a file was refused, and where in it the reason lies.
type formatError struct {
	Path   string // the file, "" for bytes in memory
	Where  string // outermost first, "" for the file as a whole
	Offset int    // where the fault lies in the file, -1 if it has no single place
	Reason string // with the remedy, where there is one
	Err    error  // one of the errors above
}

func (e *formatError) Error() string {
	s := e.Err.Error() + ": "
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Where != "" {
		s += e.Where + ": "
	}
	s += e.Reason
	if e.Offset >= 0 {
		s += " (byte " + strconv.Itoa(e.Offset) + ")"
	}
	return s
}

func (e *formatError) Unwrap() error { return e.Err }

func refuse(err error, format string, args ...any) error {
	return &formatError{Err: err, Offset: -1, Reason: fmt.Sprintf(format, args...)}
}

// within puts a place in front of those that err names already.
func within(err error, place string) error {
	var e *formatError
	if !errors.As(err, &e) {
		return err
	}
	if e.Where != "" {
		place += ": " + e.Where
	}
	e.Where = place
	return e
}

// quote returns name as it may stand in a message: on one line and short,
// whatever the file holds.
func quote(name string) string {
	if len(name) > quotedBytes {
		return strconv.Quote(name[:quotedBytes]) + "…"
	}
	return strconv.Quote(name)
}

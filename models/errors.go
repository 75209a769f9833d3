package models

import (
	"errors"
	"fmt"
	"strconv"
)

// The errors of reading an ONNX file. Each is wrapped in an error that names the file, the
// place in it and the reason.
var (
	// ErrNotONNX is returned when the bytes are not an ONNX model.
	ErrNotONNX = errors.New("not an ONNX model")

	// errVersion is returned when the file's IR version is older than minIRVersion.
	errVersion = errors.New("unsupported IR version")

	// errGraph is returned when the file is well formed but breaks a rule of ONNX: for
	// example, nodes in a cycle, a name that is defined twice, a tensor whose data do not fit
	// its shape, or a function that calls itself.
	errGraph = errors.New("invalid graph")

	// errOperator is returned when the model uses a custom operator and there is no library for it.
	errOperator = errors.New("unknown operator")

	// ErrExternal is returned when a tensor refers to data outside the model file and the
	// reference is not allowed.
	ErrExternal = errors.New("external data rejected")

	// ErrLimit is returned when the file exceeds one of the limits.
	ErrLimit = errors.New("limit exceeded")
)

// quotedBytes limits how much of a name from the file an error message repeats.
const quotedBytes = 80

// Refused reports whether err is about the content of a file. Reading the same file again
// would then fail in the same way.
func Refused(err error) bool {
	var e *formatError
	return errors.As(err, &e)
}

// formatError says why a file was rejected and where in it the reason is.
type formatError struct {
	// Path is the file, or "" for bytes in memory.
	Path string
	// Where lists the enclosing parts of the file, outermost first. It is "" if the fault
	// concerns the file as a whole.
	Where string
	// Offset is the position of the fault in the file, or -1 if it has no single position.
	Offset int
	// Reason describes the fault and, where there is one, the remedy.
	Reason string
	// Err is one of the errors above.
	Err error
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

// within prefixes the place that err names with an enclosing one.
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

// quote returns name in a form that is safe in a message: on one line and short, whatever the
// file contains.
func quote(name string) string {
	if len(name) > quotedBytes {
		return strconv.Quote(name[:quotedBytes]) + "…"
	}
	return strconv.Quote(name)
}

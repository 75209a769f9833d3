package ort

import (
	"errors"
	"strconv"
)

// Errors of finding and loading the library.
var (
	// ErrNotFound is returned when there is no library where one was looked for.
	ErrNotFound = errors.New("ONNX Runtime not found")

	// ErrNotRuntime is returned when the file is not a loadable ONNX Runtime.
	ErrNotRuntime = errors.New("not an ONNX Runtime library")

	// ErrTooOld is returned when the library lacks functions that overlapd needs.
	ErrTooOld = errors.New("ONNX Runtime is too old")
)

// Errors of execution providers.
var (
	// ErrNoProvider is returned when the library was built without the
	// execution provider that is asked for.
	ErrNoProvider = errors.New("ONNX Runtime has no such execution provider")

	// ErrProvider is returned when the library has the execution provider but
	// cannot start it.
	ErrProvider = errors.New("the execution provider cannot be used")
)

// Errors of using the library.
var (
	// ErrEnvOpen is returned when an Env is asked for while one is open: the
	// runtime has one per process.
	ErrEnvOpen = errors.New("ort: an Env is already open in this process")

	// ErrLeak is returned when an Env is closed while things made from it are
	// still open.
	ErrLeak = errors.New("ort: not everything was closed")

	// ErrClosed is returned when a thing is used after its Close.
	ErrClosed = errors.New("ort: already closed")

	// ErrNoValue is returned when the content is asked for of an optional that
	// is empty, or of a value that is closed.
	ErrNoValue = errors.New("ort: no value")

	// ErrNoMemory is returned when the C heap is exhausted.
	ErrNoMemory = errors.New("ort: out of memory")
)

// Error is the error of a call that ONNX Runtime refused or could not do: its
// reason in a word or two, such as "invalid argument", and its message. It needs
// no library to be read.
type Error struct {
	Code    string
	Message string
}

// codes are ONNX Runtime's reasons for an error, by their numbers.
var codes = [...]string{
	"ok",
	"fail",
	"invalid argument",
	"no such file",
	"no model",
	"engine error",
	"runtime exception",
	"invalid protobuf",
	"model loaded",
	"not implemented",
	"invalid graph",
	"execution provider failed",
	"model load canceled",
	"model requires compilation",
	"not found",
}

func codeName(code int) string {
	if code < 0 || code >= len(codes) {
		return "code " + strconv.Itoa(code)
	}
	return codes[code]
}

func (e *Error) Error() string {
	if e.Message == "" {
		return "ONNX Runtime: " + e.Code
	}
	return "ONNX Runtime: " + e.Code + ": " + e.Message
}

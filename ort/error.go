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

// Code is the reason that ONNX Runtime gives for an error.
type Code int32

// The codes of ONNX Runtime.
const (
	OK Code = iota
	Fail
	InvalidArgument
	NoSuchFile
	NoModel
	EngineError
	RuntimeException
	InvalidProtobuf
	ModelLoaded
	NotImplemented
	InvalidGraph
	ProviderFail
	ModelLoadCanceled
	ModelRequiresCompilation
	NotFound
)

var codeNames = [...]string{
	OK:                       "ok",
	Fail:                     "fail",
	InvalidArgument:          "invalid argument",
	NoSuchFile:               "no such file",
	NoModel:                  "no model",
	EngineError:              "engine error",
	RuntimeException:         "runtime exception",
	InvalidProtobuf:          "invalid protobuf",
	ModelLoaded:              "model loaded",
	NotImplemented:           "not implemented",
	InvalidGraph:             "invalid graph",
	ProviderFail:             "execution provider failed",
	ModelLoadCanceled:        "model load canceled",
	ModelRequiresCompilation: "model requires compilation",
	NotFound:                 "not found",
}

func (c Code) String() string {
	if c < 0 || int(c) >= len(codeNames) {
		return "code " + strconv.Itoa(int(c))
	}
	return codeNames[c]
}

// Error is what ONNX Runtime said when a call failed. It needs no library to be
// read.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return "ONNX Runtime: " + e.Code.String()
	}
	return "ONNX Runtime: " + e.Code.String() + ": " + e.Message
}

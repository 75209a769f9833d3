package ort

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "abi.h"

// load returns the base of the API. If the file cannot be loaded it returns NULL, with a
// reason that is valid until the thread's next call. If the file is another library it
// returns NULL without a reason.
static ort_table load(const char *path, const char **reason) {
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	*reason = NULL;
	if (handle == NULL) {
		*reason = dlerror();
		return NULL;
	}
	ort_table (*get)(void) = (ort_table(*)(void))dlsym(handle, "OrtGetApiBase");
	ort_table base = get != NULL ? get() : NULL;
	if (base == NULL)
		dlclose(handle);
	return base;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"
)

// The versions of ONNX Runtime that overlapd is tested with: the build for the CPU, and the
// one for CUDA, which is released later.
const (
	PinnedVersion     = "1.32.0"
	PinnedCUDAVersion = "1.30.0"
)

// apiVersion is the oldest version of the ABI that has every function in abi.h. It is the
// minor version of the first release with that ABI.
const apiVersion = 24

// Library is a loaded ONNX Runtime. It stays loaded until the process ends, because the
// runtime cannot be unloaded safely. Its methods are safe for concurrent use.
type Library struct {
	path    string
	version string
	base    C.ort_table // what OrtGetApiBase returned
	api     C.ort_table
}

// Open loads the library from the file path.
func Open(path string) (*Library, error) {
	if err := checkFile(path); err != nil {
		return nil, fmt.Errorf("%w: %s: %v; %s", ErrNotFound, path, err, remedy)
	}
	// os.Setenv also sets the variable for C code, and child processes inherit it.
	if err := os.Setenv(noTelemetry, "1"); err != nil {
		return nil, err
	}
	c := fileName(path)
	defer C.free(unsafe.Pointer(c))
	// dlerror returns the failure of the current thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var reason *C.char
	base := C.load(c, &reason)
	if base == nil && reason == nil {
		return nil, fmt.Errorf("%w: %s has no OrtGetApiBase; %s", ErrNotRuntime, path, remedy)
	}
	if base == nil {
		return nil, fmt.Errorf("%w: %s; %s", ErrNotRuntime, C.GoString(reason), remedy)
	}
	l := &Library{path: path, base: base, version: C.GoString(C.ort_GetVersionString(base))}
	var major, minor int
	_, _ = fmt.Sscanf(l.version, "%d.%d", &major, &minor)
	// The runtime logs to stderr if asked for an API version that it does not have.
	if major > 1 || major == 1 && minor >= apiVersion {
		l.api = C.ort_GetApi(base, apiVersion)
	}
	if l.api == nil {
		return nil, fmt.Errorf("%w: %s is version %s, but overlapd needs 1.%d or newer; %s",
			ErrTooOld, path, l.version, apiVersion, remedy)
	}
	return l, nil
}

// fileName returns the name of a file for dlopen, which would search the system for a bare
// name. The caller frees it.
func fileName(path string) *C.char {
	if !strings.Contains(path, "/") {
		path = "./" + path
	}
	return C.CString(path)
}

// Version returns the version that the library reports, such as "1.30.0".
func (l *Library) Version() string { return l.version }

// Path returns the path the library was loaded from.
func (l *Library) Path() string { return l.path }

// Pinned reports whether overlapd is tested with this version of the library. Other
// versions work, but deserve a warning.
func (l *Library) Pinned() bool { return l.version == PinnedVersion || l.version == PinnedCUDAVersion }

// Providers returns the execution providers that the library was built with. They may still
// be unusable on this machine; see Env.ProbeCUDA.
func (l *Library) Providers() ([]string, error) {
	var list **C.char
	var n C.int
	if err := l.check(C.ort_GetAvailableProviders(l.api, &list, &n)); err != nil {
		return nil, err
	}
	var names []string
	for _, name := range unsafe.Slice(list, n) {
		names = append(names, C.GoString(name))
	}
	return names, l.check(C.ort_ReleaseAvailableProviders(l.api, list, n))
}

// check converts a status to an error, and releases the status.
func (l *Library) check(status *C.OrtStatus) error {
	if status == nil {
		return nil
	}
	defer C.ort_ReleaseStatus(l.api, status)
	return &Error{codeName(int(C.ort_GetErrorCode(l.api, status))), l.explain(C.GoString(C.ort_GetErrorMessage(l.api, status)))}
}

// noTelemetry is the environment variable that disables ONNX Runtime's telemetry. Since
// 1.30 the library collects it on Linux, too: every process opens a database in the user's
// cache folder and a log in the folder for temporary files, and sends their content to
// Microsoft when it can. DisableTelemetryEvents takes effect only after these files exist.
const noTelemetry = "ORT_DISABLE_TELEMETRY"

// PathVariable is the environment variable with the path of the library to load. It takes
// precedence over all other places.
const PathVariable = "OVERLAPD_ORT"

const (
	libraryName = "libonnxruntime.so.1"
	remedy      = "run `make ort` or set " + PathVariable
)

// Find returns the path of the library. That is $OVERLAPD_ORT if it is set, else the first
// of these that exists: next to the executable, ../lib and ../lib/overlapd from there,
// overlapd's folder in the user's cache, /usr/local/lib/overlapd, /usr/lib/overlapd.
func Find() (string, error) {
	if path := os.Getenv(PathVariable); path != "" {
		if err := checkFile(path); err != nil {
			return "", fmt.Errorf("%w: %s=%s: %v; %s", ErrNotFound, PathVariable, path, err, remedy)
		}
		return path, nil
	}
	places := places()
	for _, dir := range places {
		path := filepath.Join(dir, libraryName)
		if checkFile(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no %s in %s; %s", ErrNotFound, libraryName, strings.Join(places, ", "), remedy)
}

// Load opens the library that [Find] finds.
func Load() (*Library, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	return Open(path)
}

// places returns the folders that Find searches, in order.
func places() []string {
	var dirs []string
	if executable, err := os.Executable(); err == nil {
		dir := filepath.Dir(executable)
		lib := filepath.Join(dir, "..", "lib")
		dirs = append(dirs, dir, lib, filepath.Join(lib, "overlapd"))
	}
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(cache, "overlapd", "onnxruntime-"+PinnedVersion+"-cpu"))
	}
	return append(dirs, "/usr/local/lib/overlapd", "/usr/lib/overlapd")
}

func checkFile(path string) error {
	info, err := os.Stat(path)
	if reason := new(os.PathError); errors.As(err, &reason) {
		return reason.Err // the caller's message has the path already
	}
	if err == nil && !info.Mode().IsRegular() {
		return errors.New("not a file")
	}
	return err
}

// onHost reports whether the host can read memory. For host memory that is pinned for a
// GPU, the device type is the GPU's, and only the memory type tells.
func (l *Library) onHost(info *C.OrtMemoryInfo) bool {
	var kind C.int
	C.ort_MemoryInfoGetDeviceType(l.api, info, &kind)
	const cpu, deviceOnly = 0, 0
	return kind == cpu || C.ort_MemoryInfoGetDeviceMemType(l.api, info) != deviceOnly
}

// Errors that the errors of this package wrap, besides those of the runtime.
var (
	// ErrNotFound is returned if the library does not exist.
	ErrNotFound = errors.New("ONNX Runtime not found")

	// ErrNotRuntime is returned if the file is not a loadable ONNX Runtime.
	ErrNotRuntime = errors.New("not an ONNX Runtime library")

	// ErrOpLibrary is returned if a file is not a library of custom operators, or cannot be
	// loaded.
	ErrOpLibrary = errors.New("not a usable library of custom operators")

	// ErrTooOld is returned if the library lacks functions that overlapd needs.
	ErrTooOld = errors.New("ONNX Runtime is too old")

	// ErrNoProvider is returned if the library was built without the requested
	// execution provider.
	ErrNoProvider = errors.New("ONNX Runtime has no such execution provider")

	// ErrProvider is returned if the library has the execution provider but cannot
	// initialize it.
	ErrProvider = errors.New("the execution provider cannot be used")

	// ErrEnvOpen is returned by NewEnv while an Env is open. The runtime has one per
	// process.
	ErrEnvOpen = errors.New("ort: an Env is already open in this process")

	// ErrLeak is returned if an Env is closed while objects made from it are still open.
	ErrLeak = errors.New("ort: not everything was closed")

	// ErrClosed is returned if an object is used after its Close.
	ErrClosed = errors.New("ort: already closed")

	// errNoValue is returned when reading an empty optional or a closed value.
	errNoValue = errors.New("ort: no value")

	// ErrArenaFull is returned if a run would exceed the limit of the arena.
	ErrArenaFull = errors.New("ort: the arena is full")

	// ErrNoMemory is returned if the C heap is exhausted.
	ErrNoMemory = errors.New("ort: out of memory")
)

// Error is the error of a failed call of ONNX Runtime. Code is a short reason, such as
// "invalid argument". Its text does not need the library.
type Error struct {
	Code    string
	Message string
}

// codes is indexed by OrtErrorCode.
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
	return strings.TrimSuffix("ONNX Runtime: "+e.Code+": "+e.Message, ": ")
}

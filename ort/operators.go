package ort

/*
#include <dlfcn.h>
#include <stdlib.h>
#include "abi.h"

typedef OrtStatus *(*register_operators)(OrtSessionOptions *, ort_table);

// open_operators returns the function with which a library registers its operators. If the
// file cannot be loaded it returns NULL, with a reason that is valid until the thread's next
// call. If the file is another library it returns NULL without a reason.
static register_operators open_operators(const char *path, const char *symbol, const char **reason) {
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	*reason = NULL;
	if (handle == NULL) {
		*reason = dlerror();
		return NULL;
	}
	return (register_operators)dlsym(handle, symbol);
}

static OrtStatus *call_register(register_operators f, OrtSessionOptions *options, ort_table base) {
	return f(options, base);
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// registerSymbol is the function that every library of custom operators exports.
const registerSymbol = "RegisterCustomOps"

// opLibrary is a loaded library of custom operators. It is never unloaded: sessions call its
// code, and libraries rarely survive being loaded again.
type opLibrary struct {
	path     string
	register C.register_operators
}

// openOpLibrary loads a library of custom operators, which runs its initializers.
func openOpLibrary(path string) (opLibrary, error) {
	if err := checkFile(path); err != nil {
		return opLibrary{}, fmt.Errorf("library of custom operators %s: %w", path, err)
	}
	name, symbol := fileName(path), C.CString(registerSymbol)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(symbol))
	// dlerror returns the failure of the current thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var reason *C.char
	register := C.open_operators(name, symbol, &reason)
	switch {
	case reason != nil:
		return opLibrary{}, fmt.Errorf("%w: %s", ErrOpLibrary, explainLoad(C.GoString(reason))) // the reason begins with the path
	case register == nil:
		return opLibrary{}, fmt.Errorf("%w: %s has no function %s", ErrOpLibrary, path, registerSymbol)
	}
	return opLibrary{path, register}, nil
}

// addTo makes the operators of the library known to sessions with these options.
func (o opLibrary) addTo(options *C.OrtSessionOptions, l *Library) error {
	if err := l.check(C.call_register(o.register, options, l.base)); err != nil {
		return fmt.Errorf("%w: %s of %s: %w", ErrOpLibrary, registerSymbol, o.path, err)
	}
	return nil
}

// explainLoad adds a remedy to a message of dlopen if a user can act on it.
func explainLoad(message string) string {
	if strings.Contains(message, "undefined symbol: Py") || strings.Contains(message, "undefined symbol: _Py") {
		return message + "; it is a module for Python, as pip installs onnxruntime-extensions: take its build without Python (libortextensions.so), " +
			"or add Python's library to a copy of it (patchelf --add-needed libpython3.11.so.1.0 COPY, with the version in the file's name)"
	}
	return message
}

package ort

/*
#include <stdlib.h>
#include "program.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Session is a model that is ready to run. It may be run by several goroutines
// at once.
type Session struct {
	env     *Env
	session *C.OrtSession
	name    string
	inputs  []Info
	outputs []Info
	// The names as C has them, for Run.
	inputNames  **C.char
	outputNames **C.char
}

// NewSession makes a session of an ONNX model in memory. The runtime copies
// what it keeps of model.
func (e *Env) NewSession(model []byte, o SessionOptions) (*Session, error) {
	return e.newSession(o, func(options *C.OrtSessionOptions, s **C.OrtSession) *C.OrtStatus {
		data := unsafe.Pointer(unsafe.SliceData(model))
		return C.ort_CreateSessionFromArray(e.lib.api, e.env, data, C.size_t(len(model)), options, s)
	})
}

// NewSessionFromFile makes a session of an ONNX file. External data is looked
// for in the file's folder; who passes a file answers for what it refers to.
func (e *Env) NewSessionFromFile(path string, o SessionOptions) (*Session, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	return e.newSession(o, func(options *C.OrtSessionOptions, s **C.OrtSession) *C.OrtStatus {
		return C.ort_CreateSession(e.lib.api, e.env, name, options, s)
	})
}

func (e *Env) newSession(
	o SessionOptions, create func(*C.OrtSessionOptions, **C.OrtSession) *C.OrtStatus,
) (*Session, error) {
	if e.env == nil {
		return nil, ErrClosed
	}
	options, err := e.sessionOptions(o)
	if err != nil {
		return nil, err
	}
	defer C.ort_ReleaseSessionOptions(e.lib.api, options)
	var session *C.OrtSession
	if err := e.lib.check(create(options, &session)); err != nil {
		return nil, err
	}
	s := &Session{env: e, session: session, name: o.LogID}
	e.open.sessions.Add(1)
	if err := s.describe(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Session) describe() error {
	api := s.env.lib.api
	var inputs, outputs C.size_t
	if err := s.env.lib.check(C.ort_SessionGetInputCount(api, s.session, &inputs)); err != nil {
		return err
	}
	if err := s.env.lib.check(C.ort_SessionGetOutputCount(api, s.session, &outputs)); err != nil {
		return err
	}
	// Space for all names at once: the inputs', then the outputs'. One more
	// than needed, so that it is never empty.
	names := (**C.char)(C.calloc(inputs+outputs+1, C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	if names == nil {
		return ErrNoMemory
	}
	all := unsafe.Slice(names, inputs+outputs+1)
	s.inputNames, s.outputNames = &all[0], &all[inputs]
	s.inputs, s.outputs = make([]Info, inputs), make([]Info, outputs)
	for i := range s.inputs {
		var t *C.OrtTypeInfo
		name := C.ort_SessionGetInputName(api, s.session, C.size_t(i), s.env.allocator, &all[i])
		typ := C.ort_SessionGetInputTypeInfo(api, s.session, C.size_t(i), &t)
		if err := s.env.lib.readInfo(&s.inputs[i], name, typ, all[i], t); err != nil {
			return err
		}
	}
	for i := range s.outputs {
		var t *C.OrtTypeInfo
		slot := &all[int(inputs)+i]
		name := C.ort_SessionGetOutputName(api, s.session, C.size_t(i), s.env.allocator, slot)
		typ := C.ort_SessionGetOutputTypeInfo(api, s.session, C.size_t(i), &t)
		if err := s.env.lib.readInfo(&s.outputs[i], name, typ, *slot, t); err != nil {
			return err
		}
	}
	return nil
}

// readInfo fills info from what two calls gave and said. It releases t.
func (l *Library) readInfo(info *Info, nameStatus, typeStatus *C.OrtStatus, name *C.char, t *C.OrtTypeInfo) error {
	err := errors.Join(l.check(nameStatus), l.check(typeStatus))
	if t != nil {
		var typeErr error
		info.Type, typeErr = l.typeInfo(t, 0)
		err = errors.Join(err, typeErr)
	}
	info.Name = C.GoString(name)
	return err
}

// Inputs returns the names and types of the inputs, in the order of the graph.
// The caller must not change them.
func (s *Session) Inputs() []Info { return s.inputs }

// Outputs returns the names and types of the outputs, in the order of the
// graph. The caller must not change them.
func (s *Session) Outputs() []Info { return s.outputs }

// Run runs the session once, for where a Program is too much. The inputs are in
// the order of Inputs; outputs may be nil, or hold nil where the runtime shall
// allocate. The returned values are the given ones and new ones, which are the
// caller's.
func (s *Session) Run(options *RunOptions, inputs, outputs []*Value) ([]*Value, error) {
	if s.session == nil {
		return nil, ErrClosed
	}
	if outputs == nil {
		outputs = make([]*Value, len(s.outputs))
	}
	if len(inputs) != len(s.inputs) || len(outputs) != len(s.outputs) {
		return nil, fmt.Errorf("ort: %d inputs and %d outputs given, the model has %d and %d",
			len(inputs), len(outputs), len(s.inputs), len(s.outputs))
	}
	in, out := pointers(inputs), pointers(outputs)
	err := s.env.lib.check(C.overlapd_refuse_empty(s.env.lib.api, unsafe.SliceData(in), C.size_t(len(in))))
	if err != nil {
		return nil, err
	}
	err = s.env.lib.check(C.ort_Run(s.env.lib.api, s.session, options.pointer(),
		s.inputNames, unsafe.SliceData(in), C.size_t(len(in)),
		s.outputNames, C.size_t(len(out)), unsafe.SliceData(out)))
	if err != nil {
		return nil, err
	}
	results := make([]*Value, len(outputs))
	for i, v := range outputs {
		if v == nil {
			v = s.env.adopt(out[i])
		}
		results[i] = v
	}
	return results, nil
}

// Close releases the session. No run may be under way.
func (s *Session) Close() error {
	if s.session == nil {
		return ErrClosed
	}
	for _, name := range unsafe.Slice(s.inputNames, len(s.inputs)+len(s.outputs)) {
		if name != nil {
			_ = s.env.lib.check(C.ort_AllocatorFree(s.env.lib.api, s.env.allocator, unsafe.Pointer(name))) // cannot fail
		}
	}
	C.free(unsafe.Pointer(s.inputNames))
	C.ort_ReleaseSession(s.env.lib.api, s.session)
	s.session, s.inputNames, s.outputNames = nil, nil, nil
	s.env.open.sessions.Add(-1)
	return nil
}

package ort

/*
#include <stdlib.h>
#include "program.h"
*/
import "C"

import (
	"fmt"
	"strconv"
	"unsafe"
)

// Session is a model that is ready to run. Several goroutines may run it concurrently.
type Session struct {
	env     *Env
	session *C.OrtSession
	name    string
	inputs  []TypeInfo
	outputs []TypeInfo

	// The names in C memory, for Run. Both are parts of one allocation.
	inputNames  **C.char
	outputNames **C.char
}

// NewSession creates a session of an ONNX model in memory. The runtime copies what it keeps
// of the model.
func (e *Env) NewSession(model []byte, o SessionOptions) (*Session, error) {
	return e.newSession(o, func(options *C.OrtSessionOptions, s **C.OrtSession) *C.OrtStatus {
		data := unsafe.Pointer(unsafe.SliceData(model))
		if o.SharePacked > 0 {
			return C.ort_CreateSessionFromArrayWithPrepackedWeightsContainer(
				e.lib.api, e.env, data, C.size_t(len(model)), options, e.prepacked[o.SharePacked%PackedSets], s)
		}
		return C.ort_CreateSessionFromArray(e.lib.api, e.env, data, C.size_t(len(model)), options, s)
	})
}

// NewSessionFromFile creates a session of an ONNX file. The runtime reads external data
// relative to the file's folder, so the caller must trust what the file refers to.
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

// describe reads the names and types of the session's inputs and outputs.
func (s *Session) describe() error {
	api := s.env.lib.api
	var inputs, outputs C.size_t
	if err := s.env.lib.check(C.ort_SessionGetInputCount(api, s.session, &inputs)); err != nil {
		return err
	}
	if err := s.env.lib.check(C.ort_SessionGetOutputCount(api, s.session, &outputs)); err != nil {
		return err
	}
	// One allocation for all names: the inputs, then the outputs. One element more, so
	// that it is never empty.
	names := (**C.char)(C.calloc(inputs+outputs+1, C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	if names == nil {
		return ErrNoMemory
	}
	all := unsafe.Slice(names, inputs+outputs+1)
	s.inputNames, s.outputNames = &all[0], &all[inputs]
	s.inputs, s.outputs = make([]TypeInfo, inputs), make([]TypeInfo, outputs)
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

// Inputs returns the names and types of the inputs in the order of the graph. The caller
// must not change them.
func (s *Session) Inputs() []TypeInfo { return s.inputs }

// Outputs returns the names and types of the outputs in the order of the graph. The caller
// must not change them.
func (s *Session) Outputs() []TypeInfo { return s.outputs }

// Run runs the session once, for callers that do not need a Program. The inputs are in the
// order of Inputs. outputs may be nil, or hold nil for outputs that the runtime is to
// allocate; the caller must close those.
func (s *Session) Run(inputs, outputs []*Value) ([]*Value, error) {
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
	refused := s.env.refusals()
	err = s.env.ran(C.ort_Run(s.env.lib.api, s.session, nil,
		s.inputNames, unsafe.SliceData(in), C.size_t(len(in)),
		s.outputNames, C.size_t(len(out)), unsafe.SliceData(out)), refused)
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

// Close releases the session. No run may be in progress.
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

// OnHost reports for each input and each output whether the session expects or creates it
// in memory that the host can read.
func (s *Session) OnHost() (inputs, outputs []bool, err error) {
	if s.session == nil {
		return nil, nil, ErrClosed
	}
	lib, n := s.env.lib, len(s.inputs)
	infos := make([]*C.OrtMemoryInfo, n+len(s.outputs))
	if n > 0 {
		err = lib.check(C.ort_SessionGetMemoryInfoForInputs(lib.api, s.session, &infos[0], C.size_t(n)))
	}
	if err == nil && len(s.outputs) > 0 {
		err = lib.check(C.ort_SessionGetMemoryInfoForOutputs(lib.api, s.session, &infos[n], C.size_t(len(s.outputs))))
	}
	if err != nil {
		return nil, nil, err
	}
	all := make([]bool, len(infos))
	for i, info := range infos {
		if info == nil {
			return nil, nil, fmt.Errorf("ort: %s: ONNX Runtime does not know where value %d lies", s.name, i)
		}
		all[i] = lib.onHost(info)
	}
	return all[:n], all[n:], nil
}

// PackedSets is how many sets of packed weights there are: sessions of different ones can be
// made at the same time.
const PackedSets = 2

// SessionOptions configures a Session. The zero value takes the model as it
// is and shares the Env's threads and arena.
type SessionOptions struct {
	// Optimize rewrites the graph as far as the runtime can for this machine.
	Optimize bool
	// OptimizedModelPath is a file to write the optimized model to.
	OptimizedModelPath string
	// Folder contains the files of external data that the model refers to. The runtime
	// opens them by name, and maps data that it can use in place.
	Folder string
	// Weights replace the initializers of the same names, without a copy. They must have
	// the same types and shapes. The model refers to any file in Folder for their data,
	// which is not read. They must stay open as long as the session.
	Weights map[string]*Value
	// SharePacked, unless 0, has sessions of the same number that are made of the same Weights
	// share what the runtime makes of them to compute faster, as long as the Env is open.
	// Numbers are equal modulo PackedSets. Of those with one number the runtime makes one
	// session at a time.
	SharePacked int
	// Threads, unless 0, has the session's operators run on this many threads, the one
	// that calls Run and others of the session alone, without the Env's.
	Threads int
	// NoMemoryPattern allocates each intermediate separately. Otherwise the runtime
	// allocates one block for all of them, from the second run with the same shapes on.
	NoMemoryPattern bool
	// CustomOps gives the session the operators of the Env's OpLibraries. With a large library
	// that takes milliseconds and memory, so only sessions that need them should have it.
	CustomOps bool
	// CUDA runs the session on a GPU; nil runs it on the CPU. Operators without a kernel
	// for the GPU run on the CPU.
	CUDA *CUDAOptions
	// Config has further entries of the runtime's session configuration.
	Config map[string]string
	// LogID names the session in log messages and errors.
	LogID string
}

// sessionOptions converts options to the runtime's. The caller releases them.
func (e *Env) sessionOptions(o SessionOptions) (*C.OrtSessionOptions, error) {
	const all = 99 // ORT_ENABLE_ALL, the highest level of optimization
	l := e.lib
	var options *C.OrtSessionOptions
	if err := l.check(C.ort_CreateSessionOptions(l.api, &options)); err != nil {
		return nil, err
	}
	err := l.check(C.ort_SetSessionGraphOptimizationLevel(l.api, options, all*flag(o.Optimize)))
	if err == nil {
		err = e.chooseThreads(options, o.Threads)
	}
	if err == nil && o.NoMemoryPattern {
		err = l.check(C.ort_DisableMemPattern(l.api, options))
	}
	for name, value := range o.Weights {
		if err == nil {
			err = e.addWeight(options, name, value)
		}
	}
	if err == nil {
		err = e.addConfig(options, "session.use_env_allocators", "1")
	}
	if err == nil && o.LogID != "" {
		id := C.CString(o.LogID)
		defer C.free(unsafe.Pointer(id))
		err = l.check(C.ort_SetSessionLogId(l.api, options, id))
	}
	if err == nil && o.OptimizedModelPath != "" {
		path := C.CString(o.OptimizedModelPath)
		defer C.free(unsafe.Pointer(path))
		err = l.check(C.ort_SetOptimizedModelFilePath(l.api, options, path))
	}
	if err == nil && o.Folder != "" {
		err = e.addConfig(options, "session.model_external_initializers_file_folder_path", o.Folder)
	}
	if err == nil && o.CUDA != nil {
		err = e.appendCUDA(options, o.CUDA)
	}
	for key, value := range o.Config {
		if err == nil {
			err = e.addConfig(options, key, value)
		}
	}
	if o.CustomOps {
		for _, library := range e.operators {
			if err == nil {
				err = library.addTo(options, l)
			}
		}
	}
	if err != nil {
		C.ort_ReleaseSessionOptions(l.api, options)
		return nil, err
	}
	return options, nil
}

// chooseThreads gives a session the Env's threads, or a pool of its own, which starts one
// thread less than it has, because it includes the calling one.
func (e *Env) chooseThreads(options *C.OrtSessionOptions, own int) error {
	if own == 0 {
		return e.lib.check(C.ort_DisablePerSessionThreads(e.lib.api, options))
	}
	err := e.addConfig(options, "session.intra_op.allow_spinning", strconv.Itoa(int(flag(e.options.Spin))))
	if err != nil {
		return err
	}
	return e.lib.check(C.ort_SetIntraOpNumThreads(e.lib.api, options, C.int(own)))
}

func (e *Env) addWeight(options *C.OrtSessionOptions, name string, value *Value) error {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return e.lib.check(C.ort_AddInitializer(e.lib.api, options, c, value.pointer()))
}

func (e *Env) addConfig(options *C.OrtSessionOptions, key, value string) error {
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	return e.lib.check(C.ort_AddSessionConfigEntry(e.lib.api, options, k, v))
}

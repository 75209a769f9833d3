package ort

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import "unsafe"

// Metadata is what a model says about itself.
type Metadata struct {
	Producer    string
	Graph       string
	Domain      string
	Description string
	Version     int64
	Custom      map[string]string
}

// Metadata returns what the session's model says about itself.
func (s *Session) Metadata() (Metadata, error) {
	var m Metadata
	if s.session == nil {
		return m, ErrClosed
	}
	lib, allocator := s.env.lib, s.env.allocator
	var c *C.OrtModelMetadata
	if err := lib.check(C.ort_SessionGetModelMetadata(lib.api, s.session, &c)); err != nil {
		return m, err
	}
	defer C.ort_ReleaseModelMetadata(lib.api, c)
	var text *C.char
	for _, field := range []struct {
		into *string
		read func() *C.OrtStatus
	}{
		{&m.Producer, func() *C.OrtStatus { return C.ort_ModelMetadataGetProducerName(lib.api, c, allocator, &text) }},
		{&m.Graph, func() *C.OrtStatus { return C.ort_ModelMetadataGetGraphName(lib.api, c, allocator, &text) }},
		{&m.Domain, func() *C.OrtStatus { return C.ort_ModelMetadataGetDomain(lib.api, c, allocator, &text) }},
		{&m.Description, func() *C.OrtStatus { return C.ort_ModelMetadataGetDescription(lib.api, c, allocator, &text) }},
	} {
		if err := lib.check(field.read()); err != nil {
			return m, err
		}
		*field.into = s.env.take(text)
	}
	var version C.int64_t
	if err := lib.check(C.ort_ModelMetadataGetVersion(lib.api, c, &version)); err != nil {
		return m, err
	}
	m.Version = int64(version)
	var err error
	m.Custom, err = s.env.customMetadata(c)
	return m, err
}

func (e *Env) customMetadata(c *C.OrtModelMetadata) (map[string]string, error) {
	var keys **C.char
	var n C.int64_t
	err := e.lib.check(C.ort_ModelMetadataGetCustomMetadataMapKeys(e.lib.api, c, e.allocator, &keys, &n))
	if err != nil || n == 0 {
		return nil, err
	}
	defer e.free(unsafe.Pointer(keys))
	custom := make(map[string]string, n)
	for _, key := range unsafe.Slice(keys, n) {
		var value *C.char
		status := C.ort_ModelMetadataLookupCustomMetadataMap(e.lib.api, c, e.allocator, key, &value)
		name := e.take(key)
		if problem := e.lib.check(status); problem != nil {
			err = problem
			continue
		}
		custom[name] = e.take(value)
	}
	return custom, err
}

// take returns text that the runtime allocated, and frees it.
func (e *Env) take(text *C.char) string {
	if text == nil {
		return ""
	}
	defer e.free(unsafe.Pointer(text))
	return C.GoString(text)
}

func (e *Env) free(p unsafe.Pointer) {
	// Freeing with the default allocator has no way to fail.
	_ = e.lib.check(C.ort_AllocatorFree(e.lib.api, e.allocator, p))
}

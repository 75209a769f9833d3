package cuda

import (
	"encoding/json"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Reading is a value that a device may not be able to tell. The zero Reading is
// unknown, never zero.
type Reading[T any] struct {
	Value T
	Known bool
	Err   error // why it is unknown
}

// known returns a reading of a value.
func known[T any](value T) Reading[T] { return Reading[T]{Value: value, Known: true} }

// unknown returns a reading that says why there is no value.
func unknown[T any](err error) Reading[T] { return Reading[T]{Err: err} }

// read turns an answer of NVML into a reading.
func read[T any](value T, code nvml.Return, call, subject string) Reading[T] {
	if err := check(code, call, subject); err != nil {
		return unknown[T](err)
	}
	return known(value)
}

// convert applies a function to a known value.
func convert[T, U any](r Reading[T], f func(T) U) Reading[U] {
	if !r.Known {
		return unknown[U](r.Err)
	}
	return known(f(r.Value))
}

// MarshalJSON writes null for what is unknown.
func (r Reading[T]) MarshalJSON() ([]byte, error) {
	if !r.Known {
		return []byte("null"), nil
	}
	return json.Marshal(r.Value)
}

// UnmarshalJSON reads what MarshalJSON wrote. Why a value is unknown is not in
// it.
func (r *Reading[T]) UnmarshalJSON(data []byte) error {
	*r = Reading[T]{}
	if string(data) == "null" {
		return nil
	}
	r.Known = true
	return json.Unmarshal(data, &r.Value)
}

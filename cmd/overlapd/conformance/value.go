package conformance

import (
	"fmt"

	"github.com/overlapd/overlapd/ort"
)

// value is a tensor, a sequence or an optional in memory of our own.
type value struct {
	name    string
	kind    ort.Kind // KindUnknown for an optional that is empty
	elem    ort.ElementType
	dims    []int64
	data    []byte   // of a tensor, as it lies in memory
	strings [][]byte // of a tensor of strings
	items   []value  // of a sequence
}

func (v value) elements() int64 {
	n := int64(1)
	for _, d := range v.dims {
		n *= d
	}
	return n
}

// toRuntime makes an ONNX Runtime value of v.
func (v value) toRuntime(env *ort.Env) (*ort.Value, error) {
	switch {
	case v.kind == ort.KindSequence:
		return v.toSequence(env)
	case v.kind != ort.KindTensor:
		return nil, fmt.Errorf("%w: an empty optional", errInput)
	case v.elem == ort.String:
		return env.StringTensor(v.strings, v.dims)
	}
	t, err := env.NewTensor(v.elem, v.dims)
	if err != nil {
		return nil, err
	}
	data, err := t.Bytes()
	if err == nil && len(data) != len(v.data) {
		err = fmt.Errorf("%w: %d bytes of data for a tensor of %d", errInput, len(v.data), len(data))
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	copy(data, v.data)
	return t, nil
}

func (v value) toSequence(env *ort.Env) (*ort.Value, error) {
	if len(v.items) == 0 {
		return nil, fmt.Errorf("%w: an empty sequence", errInput)
	}
	var items []*ort.Value
	defer func() { closeAll(items) }()
	for _, item := range v.items {
		t, err := item.toRuntime(env)
		if err != nil {
			return nil, err
		}
		items = append(items, t)
	}
	return env.Sequence(items)
}

// fromRuntime copies a value of ONNX Runtime's.
func fromRuntime(v *ort.Value) (value, error) {
	switch {
	case v == nil:
		return value{}, fmt.Errorf("the output is missing")
	case !v.HasValue():
		return value{}, nil
	case v.Kind() == ort.KindSequence:
		return fromSequence(v)
	case v.Kind() != ort.KindTensor:
		return value{}, fmt.Errorf("%w: a %s", errInput, v.Kind())
	}
	c := value{kind: ort.KindTensor, elem: v.Elem(), dims: v.Shape()}
	if c.elem == ort.String {
		list, err := v.Strings()
		c.strings = list
		return c, err
	}
	data, err := v.Bytes()
	c.data = append([]byte(nil), data...)
	return c, err
}

func fromSequence(v *ort.Value) (value, error) {
	c := value{kind: ort.KindSequence}
	items, err := v.Items()
	if err != nil {
		return c, err
	}
	defer closeAll(items)
	for _, item := range items {
		t, err := fromRuntime(item)
		if err != nil {
			return c, err
		}
		c.items = append(c.items, t)
	}
	return c, nil
}

func fromAll(list []*ort.Value) ([]value, error) {
	copies := make([]value, len(list))
	for i, v := range list {
		var err error
		if copies[i], err = fromRuntime(v); err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
	}
	return copies, nil
}

func closeAll(list []*ort.Value) {
	for _, v := range list {
		if v != nil {
			v.Close()
		}
	}
}

package segments

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// A tensor of strings travels as the Open Inference Protocol has it: for each
// element its length in four little-endian bytes, then its bytes.

// parseStrings splits the serialized form of n strings.
func parseStrings(data []byte, n int64) ([][]byte, error) {
	if n < 0 || n*4 > int64(len(data)) {
		return nil, fmt.Errorf("%w: %d bytes cannot hold %d strings", wire.ErrInput, len(data), n)
	}
	list := make([][]byte, 0, n)
	for len(data) >= 4 {
		size := int64(binary.LittleEndian.Uint32(data))
		if size > int64(len(data)-4) {
			return nil, fmt.Errorf("%w: string %d is said to have %d bytes, %d are left", wire.ErrInput, len(list), size, len(data)-4)
		}
		list = append(list, data[4:4+size])
		data = data[4+size:]
	}
	if len(data) != 0 || int64(len(list)) != n {
		return nil, fmt.Errorf("%w: %d strings and %d stray bytes where %d strings belong", wire.ErrInput, len(list), len(data), n)
	}
	return list, nil
}

func stringsBytes(list [][]byte) int64 {
	n := int64(4 * len(list))
	for _, s := range list {
		n += int64(len(s))
	}
	return n
}

// putStrings writes the serialized form of list to dst, which has its size.
func putStrings(dst []byte, list [][]byte) {
	for _, s := range list {
		binary.LittleEndian.PutUint32(dst, uint32(len(s)))
		copy(dst[4:], s)
		dst = dst[4+len(s):]
	}
}

// signature writes shapes as a key.
func signature(dims [][]int64) string {
	var buf [128]byte
	key := buf[:0]
	for _, shape := range dims {
		for _, d := range shape {
			key = strconv.AppendInt(key, d, 36)
			key = append(key, ',')
		}
		key = append(key, ';')
	}
	return string(key)
}

// batchSizes returns the size of each query: the batch dimension of its first
// input that has one, 1 if none has.
func (e *CutModel) batchSizes(queries []worker.Query) []int {
	sizes := make([]int, len(queries))
	for n := range queries {
		sizes[n] = 1
		if i := slices.Index(e.batchDims, 0); i >= 0 {
			sizes[n] = int(queries[n].Inputs[i].Shape[0])
		}
	}
	return sizes
}

func sum(sizes []int) (total int) {
	for _, n := range sizes {
		total += n
	}
	return total
}

// gatherDims checks the queries against the model and each other, and returns
// the shapes of the batch's inputs.
func (e *CutModel) gatherDims(queries []worker.Query) ([][]int64, error) {
	if len(queries) == 0 {
		return nil, fmt.Errorf("%w: a batch without queries", wire.ErrInput)
	}
	dims := make([][]int64, len(e.inputs))
	for n, q := range queries {
		if len(q.Inputs) != len(e.inputs) {
			return nil, fmt.Errorf("%w: %d inputs given, the model has %d", wire.ErrInput, len(q.Inputs), len(e.inputs))
		}
		for i, in := range q.Inputs {
			if err := e.checkInput(i, in); err != nil {
				return nil, err
			}
			if n == 0 {
				dims[i] = append([]int64(nil), in.Shape...)
				continue
			}
			if e.batchDims[i] != 0 {
				return nil, fmt.Errorf("%w: input %q has no batch dimension, so %d queries cannot run as one batch",
					wire.ErrInput, e.model.Inputs[i].Name, len(queries))
			}
			if !slices.Equal(dims[i][1:], in.Shape[1:]) {
				return nil, fmt.Errorf("%w: input %q has shape %v in one query and %v in another of the same batch",
					wire.ErrInput, e.model.Inputs[i].Name, dims[i], in.Shape)
			}
			dims[i][0] += in.Shape[0]
		}
	}
	return dims, nil
}

// checkInput refuses a tensor that is not what the model's i-th input takes.
func (e *CutModel) checkInput(i int, in worker.Tensor) error {
	spec := &e.model.Inputs[i]
	if in.Type != spec.Type.Elem {
		return fmt.Errorf("%w: input %q is %s, the model takes %s", wire.ErrInput, spec.Name, in.Type, spec.Type.Elem)
	}
	if spec.Type.HasShape && len(in.Shape) != len(spec.Type.Shape) {
		return fmt.Errorf("%w: input %q has rank %d, the model takes %d", wire.ErrInput, spec.Name, len(in.Shape), len(spec.Type.Shape))
	}
	n := int64(1)
	for j, d := range in.Shape {
		if spec.Type.HasShape && spec.Type.Shape[j].Fixed() && spec.Type.Shape[j].Value != d {
			return fmt.Errorf("%w: input %q has shape %v, the model takes %s", wire.ErrInput, spec.Name, in.Shape, spec.Type)
		}
		if d < 0 || n > maxElements/max(d, 1) {
			return fmt.Errorf("%w: input %q has the impossible shape %v", wire.ErrInput, spec.Name, in.Shape)
		}
		n *= d
	}
	if size := int64(in.Type.Bytes()); size > 0 && n*size != int64(len(in.Data)) {
		return fmt.Errorf("%w: input %q of shape %v has %d bytes, not %d", wire.ErrInput, spec.Name, in.Shape, len(in.Data), n*size)
	}
	return nil
}

// maxElements bounds the elements of an input, so that their number and their
// size can be counted.
const maxElements = 1 << 48

// wrapInputs makes the inputs of b of a query's tensors where they lie.
func (e *CutModel) wrapInputs(b *batch, q worker.Query) error {
	for i, in := range q.Inputs {
		if err := e.wrapInput(b, i, in); err != nil {
			return err
		}
	}
	return nil
}

// wrapInput makes the i-th input of b of a tensor where it lies.
func (e *CutModel) wrapInput(b *batch, i int, in worker.Tensor) (err error) {
	var v *ort.Value
	if in.Type == models.String {
		v, err = e.stringValue(in)
	} else {
		v, err = e.env.TensorOn(in.Data, ort.ElementType(in.Type), in.Shape)
	}
	if err != nil {
		return err
	}
	b.given = append(b.given, v)
	e.bindInput(b, i, v)
	return nil
}

func (e *CutModel) stringValue(in worker.Tensor) (*ort.Value, error) {
	list, err := parseStrings(in.Data, elements(in.Shape))
	if err != nil {
		return nil, err
	}
	return e.env.StringTensor(list, in.Shape)
}

// gather copies the inputs of several queries behind each other: into the
// frame's memory if it has a place for them, else into memory of ONNX
// Runtime's that the batch owns.
func (e *CutModel) gather(b *batch, dims [][]int64, queries []worker.Query) error {
	for i, id := range e.inputs {
		if b.frame.values[id] == nil {
			if err := e.gatherInput(b, i, dims[i], queries); err != nil {
				return err
			}
			continue
		}
		gatherInto(b.frame.data(id), i, queries)
	}
	return nil
}

// gatherInput gathers the i-th input in memory of ONNX Runtime's.
func (e *CutModel) gatherInput(b *batch, i int, dims []int64, queries []worker.Query) error {
	v, err := e.gatherValue(i, dims, queries)
	if err != nil {
		return err
	}
	b.given = append(b.given, v)
	e.bindInput(b, i, v)
	if e.model.Inputs[i].Type.Elem == models.String {
		return nil
	}
	dst, err := v.Bytes()
	if err != nil {
		return err
	}
	b.bytes += int64(len(dst))
	b.gathered = b.bytes
	gatherInto(dst, i, queries)
	return nil
}

func gatherInto(dst []byte, i int, queries []worker.Query) {
	for _, q := range queries {
		dst = dst[copy(dst, q.Inputs[i].Data):]
	}
}

// gatherValue makes the value that the i-th input is gathered into. Strings
// are filled in at once.
func (e *CutModel) gatherValue(i int, dims []int64, queries []worker.Query) (*ort.Value, error) {
	elem := e.model.Inputs[i].Type.Elem
	if elem != models.String {
		return e.env.NewTensor(ort.ElementType(elem), dims)
	}
	var list [][]byte
	for _, q := range queries {
		part, err := parseStrings(q.Inputs[i].Data, elements(q.Inputs[i].Shape))
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
	return e.env.StringTensor(list, dims)
}

package models

import (
	"errors"
	"fmt"
	"math"
)

// ErrShape is returned when the shapes of a query do not fit the inputs of
// the model.
var ErrShape = errors.New("shape does not fit the model")

// inputDims are the dimensions of a model's inputs that have a meaning.
type inputDims struct {
	Batch  []int // by input, the dimension that is the batch size, -1 for none
	SeqLen []int // by input, the dimension that is the sequence length, -1 for none
}

// BatchDims finds the batch dimension and the sequence length among the
// dimensions that are not fixed.
//
// The first dimension of an input is the batch size if it is not fixed, and
// if all such first dimensions have the same name, or none has one. The
// sequence length is the first other dimension that is not fixed, and all
// those of its name.
func BatchDims(inputs []TensorSpec) inputDims {
	d := inputDims{Batch: make([]int, len(inputs)), SeqLen: make([]int, len(inputs))}
	batch, hasBatch := batchName(inputs)
	var symbol string
	found := false
	for i, in := range inputs {
		d.Batch[i], d.SeqLen[i] = -1, -1
		for j, dim := range shapeOf(in) {
			switch {
			case dim.Fixed():
			case hasBatch && j == 0:
				d.Batch[i] = 0
			case hasBatch && batch != "" && dim.Name == batch:
				// Another dimension as long as the batch, as in a mask.
			case !found:
				symbol, found = dim.Name, true
				d.SeqLen[i] = j
			case dim.Name == symbol && d.SeqLen[i] < 0:
				d.SeqLen[i] = j
			}
		}
	}
	return d
}

// batchName returns the name that all first dimensions have which are not
// fixed, and whether there are any and they agree.
func batchName(inputs []TensorSpec) (string, bool) {
	name, found := "", false
	for _, in := range inputs {
		shape := shapeOf(in)
		switch {
		case len(shape) == 0 || shape[0].Fixed():
		case found && shape[0].Name != name:
			return "", false
		default:
			name, found = shape[0].Name, true
		}
	}
	return name, found
}

func shapeOf(in TensorSpec) []Dim {
	if in.Type.Kind != KindTensor {
		return nil
	}
	return in.Type.Shape
}

// Size verifies the shapes of a query, one for each input, and returns its
// batch size, 1 if the model has no batch dimension, and its sequence length,
// 0 if it has none.
func (m *Model) Size(shapes [][]int64) (batch, seqLen int, err error) {
	if len(shapes) != len(m.Inputs) {
		return 0, 0, fmt.Errorf("%w: expected %d inputs, got %d", ErrShape, len(m.Inputs), len(shapes))
	}
	d := BatchDims(m.Inputs)
	batch, seqLen = -1, -1
	symbols := map[string]symbol{}
	for i, in := range m.Inputs {
		if err := checkShape(in, shapes[i], symbols); err != nil {
			return 0, 0, err
		}
		if j := d.Batch[i]; j >= 0 && batch >= 0 && int64(batch) != shapes[i][j] {
			return 0, 0, fmt.Errorf("%w: input %s: expected batch size %d as in the inputs before it, got %v",
				ErrShape, quote(in.Name), batch, shapes[i])
		} else if j >= 0 {
			batch = int(shapes[i][j])
		}
		if j := d.SeqLen[i]; j >= 0 && seqLen < 0 {
			seqLen = int(shapes[i][j])
		}
	}
	if batch == 0 {
		return 0, 0, fmt.Errorf("%w: the batch size is 0", ErrShape)
	}
	if batch < 0 {
		batch = 1
	}
	return batch, max(seqLen, 0), nil
}

// symbol is what a named dimension was found to be.
type symbol struct {
	value int64
	input string
}

func checkShape(in TensorSpec, got []int64, symbols map[string]symbol) error {
	for _, n := range got {
		if n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("%w: input %s has a dimension of %d", ErrShape, quote(in.Name), n)
		}
	}
	if in.Type.Kind != KindTensor || !in.Type.HasShape {
		return nil
	}
	if len(got) != len(in.Type.Shape) {
		return fmt.Errorf("%w: input %s: expected %s, got %v", ErrShape, quote(in.Name), in.Type, got)
	}
	for j, dim := range in.Type.Shape {
		if dim.Fixed() && dim.Value != got[j] {
			return fmt.Errorf("%w: input %s: expected %s, got %v", ErrShape, quote(in.Name), in.Type, got)
		}
		if dim.Fixed() || dim.Name == "" {
			continue
		}
		was, ok := symbols[dim.Name]
		if ok && was.value != got[j] {
			return fmt.Errorf("%w: input %s: expected %s to be %d as in input %s, got %v",
				ErrShape, quote(in.Name), quote(dim.Name), was.value, quote(was.input), got)
		}
		symbols[dim.Name] = symbol{got[j], in.Name}
	}
	return nil
}

// Fill returns the shape of every input of a query of the given batch size and
// sequence length. Other dimensions that are not fixed get the size of their
// namesakes, and 1 if they have none. The shape of what is no tensor is empty.
func Fill(inputs []TensorSpec, batch, seqLen int) [][]int64 {
	dims := BatchDims(inputs)
	named := map[string]int64{}
	shapes := make([][]int64, len(inputs))
	for i, in := range inputs {
		shapes[i] = make([]int64, len(shapeOf(in)))
		for j, d := range shapeOf(in) {
			switch {
			case d.Fixed():
				shapes[i][j] = d.Value
				continue
			case j == dims.Batch[i]:
				shapes[i][j] = int64(batch)
			case j == dims.SeqLen[i]:
				shapes[i][j] = int64(seqLen)
			default:
				continue
			}
			named[d.Name] = shapes[i][j]
		}
	}
	delete(named, "")
	for i, in := range inputs {
		for j, d := range shapeOf(in) {
			if !d.Fixed() && shapes[i][j] == 0 {
				shapes[i][j] = max(1, named[d.Name])
			}
		}
	}
	return shapes
}

// HasSeqLen reports whether the model has a sequence length.
func HasSeqLen(inputs []TensorSpec) bool {
	for _, d := range BatchDims(inputs).SeqLen {
		if d >= 0 {
			return true
		}
	}
	return false
}

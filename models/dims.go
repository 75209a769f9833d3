package models

import "slices"

// inputDims holds the dimensions of a model's inputs that have a meaning to the scheduler.
type inputDims struct {
	// Batch holds, for each input, the index of its batch dimension, or -1.
	Batch []int
	// SeqLen holds, for each input, the index of its sequence length, or -1.
	SeqLen []int
}

// BatchDims finds the batch dimension and the sequence length of each input among the
// dimensions that are not fixed. ONNX does not mark either, so this is a convention:
//
//   - The first dimension of an input is the batch size if it is not fixed. This holds only if
//     all such first dimensions share one name, or none of them has a name.
//   - The sequence length is the first other dimension that is not fixed, together with all
//     dimensions of the same name.
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
				// A second dimension with the batch's name, as in a mask, is not the sequence length.
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

// batchName returns the name shared by all first dimensions that are not fixed. It returns
// false if there is no such dimension or their names differ.
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

// Fill returns the shape of every input for a query of the given batch size and sequence
// length. Any other dimension that is not fixed gets the size of a dimension with the same
// name, and 1 if there is none. An input that is not a tensor has an empty shape.
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
	// Unnamed dimensions are independent of each other.
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
	return slices.ContainsFunc(BatchDims(inputs).SeqLen, func(d int) bool { return d >= 0 })
}

package models

import "slices"

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
	return slices.ContainsFunc(BatchDims(inputs).SeqLen, func(d int) bool { return d >= 0 })
}

package models

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

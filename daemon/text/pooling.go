package text

import (
	"encoding/binary"
	"math"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/text/export"
)

// pooledOutput is the output that holds an embedding if a model has several of its shape.
const pooledOutput = "sentence_embedding"

// embedding makes the embedding of a text of its outputs. tokens is the length of its
// sequence without padding.
func embedding(c *query.Call, t *export.Text, tokens int) ([]float32, *query.Error) {
	var row []float32
	if t.Pooling == export.PoolNone {
		out := output(c.Reply.Outputs, 2)
		if i := query.Find(c.Signature.Outputs, []byte(pooledOutput)); i >= 0 && len(c.Reply.Outputs[i].Shape) == 2 {
			out = &c.Reply.Outputs[i]
		}
		if out == nil {
			return nil, invalidModel("pooling is %q, but the model has no output of numbers with the shape [batch, size]: set pooling to %q, %q or %q",
				t.Pooling, export.PoolMean, export.PoolCLS, export.PoolLast)
		}
		row = make([]float32, out.Shape[1])
		add(row, out, 0)
	} else {
		out := output(c.Reply.Outputs, 3)
		if out == nil || out.Shape[1] < int64(tokens) {
			return nil, invalidModel("pooling is %q, but the model has no output of numbers with the shape [batch, sequence, size]: ask an encoder, or set pooling = %q",
				t.Pooling, export.PoolNone)
		}
		row = pool(out, t.Pooling, tokens)
	}
	if t.Normalize {
		Normalize(row)
	}
	return row, nil
}

// scores returns the scores of a classifier.
func scores(outputs []models.Tensor) ([]float32, *query.Error) {
	out := output(outputs, 2)
	if out == nil {
		if out = output(outputs, 1); out == nil {
			return nil, invalidModel("the model has no output of numbers with the shape [batch, scores]: ask a reranker or a classifier")
		}
	}
	row := make([]float32, out.Shape[len(out.Shape)-1])
	if len(row) == 0 {
		return nil, invalidModel("the model has no scores")
	}
	add(row, out, 0)
	return row, nil
}

// output returns the first output of floating-point numbers of a rank whose batch size is 1,
// or nil.
func output(outputs []models.Tensor, rank int) *models.Tensor {
	for i := range outputs {
		t := &outputs[i]
		if len(t.Shape) != rank || t.Shape[0] != 1 {
			continue
		}
		elements, ok := models.Elements(t.Shape)
		switch t.Type {
		case models.Float32, models.Float64, models.Float16, models.BFloat16:
			if ok && elements*int64(t.Type.Bytes()) == int64(len(t.Data)) {
				return t
			}
		}
	}
	return nil
}

// pool makes one vector of those of the tokens, [1, sequence, size].
func pool(t *models.Tensor, how string, tokens int) []float32 {
	row := make([]float32, t.Shape[2])
	switch how {
	case export.PoolCLS:
		add(row, t, 0)
	case export.PoolLast:
		add(row, t, tokens-1)
	default:
		for i := range tokens {
			add(row, t, i)
		}
		for i := range row {
			row[i] /= float32(tokens)
		}
	}
	return row
}

// add adds vector at of the tensor to a row, whose length is the size of vectors.
func add(row []float32, t *models.Tensor, at int) {
	size := t.Type.Bytes()
	data := t.Data[at*len(row)*size:]
	switch t.Type {
	case models.Float32:
		for i := range row {
			row[i] += math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
	case models.Float64:
		for i := range row {
			row[i] += float32(math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:])))
		}
	case models.Float16:
		for i := range row {
			row[i] += float32(models.DecodeFloat16(binary.LittleEndian.Uint16(data[2*i:])))
		}
	case models.BFloat16:
		for i := range row {
			row[i] += math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		}
	}
}

// leastLength is the length that shorter embeddings are scaled by, so that a vector of zeros
// stays one.
const leastLength = 1e-12

// Normalize scales a row to length 1.
func Normalize(row []float32) {
	var sum float64
	for _, v := range row {
		sum += float64(v) * float64(v)
	}
	scale := 1 / max(math.Sqrt(sum), leastLength)
	for i, v := range row {
		row[i] = float32(float64(v) * scale)
	}
}

// invalidModel returns the error for a model that cannot do what was asked of it.
func invalidModel(format string, args ...any) *query.Error {
	return query.Invalid(format, args...).Of("model")
}

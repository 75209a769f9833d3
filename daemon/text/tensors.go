package text

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// The tensors of an inference request of texts. It has one input of strings, of the shape [n] or
// [n, 1], or [n, 2] for pairs. Its outputs are the embeddings or, of a classifier or reranker,
// the labels of each text with their scores, the highest first.
const (
	tensorInput     = "text"
	tensorEmbedding = "embedding"
	tensorLabels    = "labels"
	tensorScores    = "scores"
)

// TensorCall returns a call that a codec decodes an inference request of texts into. It is not sent:
// TakeTexts takes its texts, and SetOutputs gives it the outputs.
func TensorCall(v *query.Service) (*query.Call, *query.Error) {
	sig := v.Signature()
	if sig == nil {
		return nil, v.NotReady()
	}
	open := models.Dim{Value: -1}
	outputs := []models.TensorSpec{{Name: tensorEmbedding, Type: models.TensorType(models.Float32, open, open)}}
	if classifies(sig, v.Text) {
		outputs = []models.TensorSpec{
			{Name: tensorLabels, Type: models.TensorType(models.String, open, open)},
			{Name: tensorScores, Type: models.TensorType(models.Float32, open, open)},
		}
	}
	next := v.Successor()
	next.Variants = v.Variants
	input := models.TensorSpec{Name: tensorInput, Type: models.Type{Kind: models.KindTensor, Elem: models.String}}
	if next.Loaded(query.Info{Inputs: []models.TensorSpec{input}, Outputs: outputs}) != nil {
		return nil, query.ErrInternal
	}
	return query.NewCall(next), nil
}

// TakeTexts gives a request the texts and the options of a call of TensorCall that has been decoded. The
// data of its input may be reused afterwards.
func TakeTexts(r *Request, c *query.Call) *query.Error {
	r.Options, r.Raw = callOptions{c}, len(c.Signature.Outputs) > 1
	in := &c.Given[0]
	n, width := in.Elements, int64(1)
	if len(in.Shape) == 2 {
		n, width = in.Shape[0], in.Shape[1]
	}
	switch {
	case len(in.Shape) > 2 || width > 2:
		return query.Invalid("input %q must have the shape [n] or [n, 1], or [n, 2] for pairs of texts", tensorInput)
	case n > MaxTexts:
		return ErrTexts
	}
	data := in.Data
	next := func() (string, *query.Error) {
		element, rest, _ := query.NextString(data) // Check has walked the lengths
		if data = rest; !utf8.Valid(element) {
			return "", query.Invalid("input %q: a text is not UTF-8", tensorInput)
		}
		return string(element), nil
	}
	for range n {
		first, err := next()
		if err != nil {
			return err
		}
		item := Item{Text: first}
		if width == 2 {
			second, err := next()
			if err != nil {
				return err
			}
			item.Pair = &second
		}
		r.Items = append(r.Items, item)
	}
	return nil
}

// callOptions are the options of the call that a request was decoded into.
type callOptions struct{ of *query.Call }

// Apply sets the options of another call.
func (o callOptions) Apply(c *query.Call) *query.Error {
	c.Sender, c.Timeout, c.Priority, c.LeastAccuracy = o.of.Sender, o.of.Timeout, o.of.Priority, o.of.LeastAccuracy
	c.ID = append(c.ID[:0], o.of.ID...)
	if v := o.of.Variant; v >= 0 {
		return c.AskVariant([]byte(o.of.Service.Variants[v].Name))
	}
	return nil
}

// SetOutputs gives the call the outputs of the answer to its request.
func SetOutputs(c *query.Call, r *Request, a *Answer) (err *query.Error) {
	c.Reply.Variant = a.Variant
	c.Reply.Outputs, err = tensors(r, a)
	return err
}

// tensors returns the outputs of an answer, which all have as many numbers for each text.
func tensors(r *Request, a *Answer) ([]models.Tensor, *query.Error) {
	shape := []int64{int64(len(a.Rows)), int64(len(a.Rows[0]))}
	numbers := models.Tensor{Type: models.Float32, Shape: shape}
	labels := models.Tensor{Type: models.String, Shape: shape}
	for _, row := range a.Rows {
		if len(row) != len(a.Rows[0]) {
			return nil, query.Invalid("the model has outputs of several sizes for the texts of one request: send them one by one")
		}
		if r.Raw {
			for _, c := range classes(row, r.Service.Text) {
				labels.Data = append(binary.LittleEndian.AppendUint32(labels.Data, uint32(len(c.label))), c.label...)
				numbers.Data = binary.LittleEndian.AppendUint32(numbers.Data, math.Float32bits(c.score))
			}
			continue
		}
		for _, v := range row {
			numbers.Data = binary.LittleEndian.AppendUint32(numbers.Data, math.Float32bits(v))
		}
	}
	if r.Raw {
		return []models.Tensor{labels, numbers}, nil
	}
	return []models.Tensor{numbers}, nil
}

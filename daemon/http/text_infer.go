package http

import (
	"bytes"
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/text"
	"github.com/overlapd/overlapd/models"
)

// The tensors of an inference request of texts. It has one input of strings, of the shape [n] or
// [n, 1], or [n, 2] for pairs. Its outputs are the embeddings or, of a classifier or reranker,
// the labels of each text with their scores, the highest first.
const (
	textInput       = "text"
	outputEmbedding = "embedding"
	outputLabels    = "labels"
	outputScores    = "scores"
)

// bytesType is in the JSON of every request that has an input of strings.
var bytesType = []byte(`"BYTES"`)

// infer answers an inference request to a service that takes text. The model has no input of
// strings, so a request with one is of texts, and any other of tensors.
func (t *textInference) infer(ctx *fasthttp.RequestCtx, s *query.Service) {
	b, err := t.bodies.read(ctx)
	if err != nil {
		writeError(ctx, err)
		return
	}
	head, err := jsonBytes(ctx, len(b.Bytes))
	if err != nil || !bytes.Contains(b.Bytes[:head], bytesType) {
		t.inference.answer(ctx, s, b)
		return
	}
	r := &textRequest{memory: t.bodies.memory}
	r.Service, r.Arrival = s, arrivalOf(ctx)
	r.Trace = t.inference.beginTrace(ctx, s, inferRoute(ctx))
	if err = t.inferTexts(ctx, r, b, head); err != nil {
		writeError(ctx, err)
	}
	t.inference.reportLoad(ctx, s.Name)
	t.inference.queries.EndTrace(r.Trace, err, "")
}

// inferTexts answers an inference request of texts, whose body it releases.
func (t *textInference) inferTexts(ctx *fasthttp.RequestCtx, r *textRequest, b *query.Body, head int) *query.Error {
	if c, ok := ctx.Conn().(*conn); ok {
		r.memory = c.share(r.memory)
	}
	r.Memory, r.held = r.memory, int64(len(b.Bytes))
	defer func() { r.memory.Give(r.held) }()
	c, err := r.decodeInfer(b.Bytes, head)
	b.Release()
	if err != nil {
		return err
	}
	c.Sender = query.Sender(ctx.RemoteAddr())
	a, err := t.server.Answer(here(ctx), &r.Request)
	if err != nil {
		return err
	}
	defer a.Release()
	c.Reply.Variant = a.Variant
	if c.Reply.Outputs, err = inferOutputs(r, a); err != nil {
		return err
	}
	x := exchange{bodies: t.bodies, ctx: ctx}
	return x.Encode(c)
}

// inferOptions are the options of the call that an inference request was decoded into.
type inferOptions struct{ of *query.Call }

// Apply sets the options of another call.
func (o inferOptions) Apply(c *query.Call) *query.Error {
	c.Sender, c.Timeout, c.Priority, c.LeastAccuracy = o.of.Sender, o.of.Timeout, o.of.Priority, o.of.LeastAccuracy
	c.ID = append(c.ID[:0], o.of.ID...)
	if v := o.of.Variant; v >= 0 {
		return c.AskVariant([]byte(o.of.Service.Variants[v].Name))
	}
	return nil
}

// decodeInfer decodes an inference request of texts into a call to a service that has strings
// as its input, and takes its texts from there.
func (r *textRequest) decodeInfer(body []byte, head int) (*query.Call, *query.Error) {
	if !r.memory.Take(r.held) {
		r.held = 0
		return nil, query.ErrBodyMemory
	}
	sig := r.Service.Signature()
	if sig == nil {
		return nil, r.Service.NotReady()
	}
	r.Raw = text.Classifies(sig, r.Service.Text)
	open := models.Dim{Value: -1}
	outputs := []models.TensorSpec{{Name: outputEmbedding, Type: models.TensorType(models.Float32, open, open)}}
	if r.Raw {
		outputs = []models.TensorSpec{
			{Name: outputLabels, Type: models.TensorType(models.String, open, open)},
			{Name: outputScores, Type: models.TensorType(models.Float32, open, open)},
		}
	}
	v := r.Service.Successor()
	v.Variants = r.Service.Variants
	input := models.TensorSpec{Name: textInput, Type: models.Type{Kind: models.KindTensor, Elem: models.String}}
	if v.Loaded(query.Info{Inputs: []models.TensorSpec{input}, Outputs: outputs}) != nil {
		return nil, query.ErrInternal
	}
	c := query.NewCall(v)
	if err := new(decoder).decode(c, body, head); err != nil {
		return nil, err
	}
	r.Options = inferOptions{c}
	return c, r.takeTexts(&c.Given[0])
}

// takeTexts makes items of the strings of an input.
func (r *textRequest) takeTexts(in *query.Input) *query.Error {
	n, width := in.Elements, int64(1)
	if len(in.Shape) == 2 {
		n, width = in.Shape[0], in.Shape[1]
	}
	switch {
	case len(in.Shape) > 2 || width > 2:
		return query.Invalid("input %q must have the shape [n] or [n, 1], or [n, 2] for pairs of texts", textInput)
	case n > text.MaxTexts:
		return errTexts
	}
	data := in.Data
	if in.Text != nil {
		data = make([]byte, len(in.Text)+query.StringHead*int(in.Elements))
		written, err := writeInput(data, in)
		if err != nil {
			return err
		}
		data = data[:written]
	}
	next := func() (string, *query.Error) {
		element, rest, _ := query.NextString(data) // Check has walked the lengths
		if data = rest; !utf8.Valid(element) {
			return "", query.Invalid("input %q: a text is not UTF-8", textInput)
		}
		return string(element), nil
	}
	for range n {
		first, err := next()
		if err != nil {
			return err
		}
		item := text.Item{Text: first}
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

// inferOutputs returns the outputs of an answer, which all have as many numbers for each text.
func inferOutputs(r *textRequest, a *text.Answer) ([]models.Tensor, *query.Error) {
	shape := []int64{int64(len(a.Rows)), int64(len(a.Rows[0]))}
	numbers := models.Tensor{Type: models.Float32, Shape: shape}
	labels := models.Tensor{Type: models.String, Shape: shape}
	for _, row := range a.Rows {
		if len(row) != len(a.Rows[0]) {
			return nil, query.Invalid("the model has outputs of several sizes for the texts of one request: send them one by one")
		}
		if r.Raw {
			for _, c := range text.Classes(row, r.Service.Text) {
				labels.Data = append(binary.LittleEndian.AppendUint32(labels.Data, uint32(len(c.Label))), c.Label...)
				numbers.Data = binary.LittleEndian.AppendUint32(numbers.Data, math.Float32bits(c.Score))
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

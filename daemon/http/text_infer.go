package http

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/text"
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
	if err := text.SetOutputs(c, &r.Request, a); err != nil {
		return err
	}
	x := exchange{bodies: t.bodies, ctx: ctx}
	return x.Encode(c)
}

// decodeInfer decodes an inference request of texts, and takes its texts out of the body.
func (r *textRequest) decodeInfer(body []byte, head int) (*query.Call, *query.Error) {
	if !r.memory.Take(r.held) {
		r.held = 0
		return nil, query.ErrBodyMemory
	}
	c, err := text.TensorCall(r.Service)
	if err == nil {
		err = new(decoder).decode(c, body, head)
	}
	if err != nil {
		return nil, err
	}
	// Strings of JSON become bytes with their lengths, as in a binary request.
	if in := &c.Given[0]; in.Text != nil {
		data := make([]byte, len(in.Text)+query.StringHead*int(in.Elements))
		written, err := writeInput(data, in)
		if err != nil {
			return nil, err
		}
		in.Data = data[:written]
	}
	return c, text.TakeTexts(&r.Request, c)
}

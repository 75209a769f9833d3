package daemon

import (
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/tracing"
)

const (
	contentJSON   = "application/json"
	contentBinary = "application/octet-stream"

	// headerLength names the length of the JSON before the binary data.
	headerLength = "Inference-Header-Content-Length"
)

// infer answers an inference request.
func (e *Endpoint) infer(ctx *fasthttp.RequestCtx, s *Service) {
	trace := e.beginTrace(ctx, s)
	failed := e.query(ctx, s, trace)
	if failed != nil {
		writeError(ctx, failed)
	}
	e.endTrace(trace, failed)
}

// query answers the query of a request, unless it returns an error.
func (e *Endpoint) query(ctx *fasthttp.RequestCtx, s *Service, trace *tracing.Query) *Error {
	s, gone := e.hold(s)
	if gone != nil {
		e.leaveBody(ctx)
		return gone
	}
	defer s.letGo()
	sig := s.signature.Load()
	if sig == nil {
		e.leaveBody(ctx)
		return ErrUnavailable
	}
	c := e.calls.Get().(*Call)
	defer e.done(c)
	c.trace = trace
	if err := e.prepare(ctx, c, s, sig); err != nil {
		return err
	}
	if err := e.backend.Submit(c); err != nil {
		e.backend.Free(s, c.Memory)
		refusal := asError(err)
		s.Stats.failed(refusal, time.Since(c.Arrival))
		return refusal
	}
	e.wait(ctx, c)
	err := c.reply.Err
	if err == nil {
		c.noteEncoding()
		err = e.writeReply(ctx, c, sig)
	}
	e.backend.Release(c)
	took := time.Since(c.Arrival)
	if err != nil {
		s.Stats.failed(err, took)
		return err
	}
	s.Stats.succeed(c.Size, c.Arrival.Add(took), took, c.reply.Timing)
	return nil
}

// hold holds a service that was found a moment ago, or the one that has taken
// its place since.
func (e *Endpoint) hold(s *Service) (*Service, *Error) {
	for !s.hold() {
		name := s.Name
		if s = e.backend.Service([]byte(name)); s == nil {
			return nil, notFound("unknown model %q", name)
		}
	}
	return s, nil
}

// prepare fills a call from its request: the head is decoded, the tensors go
// into shared memory.
func (e *Endpoint) prepare(ctx *fasthttp.RequestCtx, c *Call, s *Service, sig *signature) *Error {
	b, err := e.readBody(ctx)
	if err != nil {
		return err
	}
	defer e.release(b)
	c.Arrival = time.Now()
	head, err := headBytes(ctx, len(b.b))
	if err != nil {
		return err
	}
	if err := c.request.decode(sig, b.b, head); err != nil {
		return err
	}
	return e.admit(c, s, sig)
}

// admit fills a call from its request, whose head is decoded, and puts the
// tensors into shared memory.
func (e *Endpoint) admit(c *Call, s *Service, sig *signature) *Error {
	r := &c.request
	c.Service, c.ID, c.Timeout, c.Priority = s, r.id, r.timeout, r.priority
	c.Size, c.SeqLen = r.dimensions(sig)
	c.Shape = r.shapeHash(sig.batched)
	if c.Size > s.MaxQueryBatch {
		return invalid("the batch size is %d, the limit of this service %d", c.Size, s.MaxQueryBatch)
	}
	if s.MaxSeqLen > 0 && c.SeqLen > s.MaxSeqLen {
		return invalid("the sequence length is %d, the limit of this service %d", c.SeqLen, s.MaxSeqLen)
	}
	return e.place(c, sig)
}

// headBytes returns how much of the body is JSON.
func headBytes(ctx *fasthttp.RequestCtx, bodyBytes int) (int, *Error) {
	v := ctx.Request.Header.Peek(headerLength)
	if v == nil {
		return bodyBytes, nil
	}
	if len(ctx.Request.Header.PeekAll(headerLength)) > 1 {
		return 0, invalid(headerLength + " is given twice")
	}
	n, err := strconv.ParseUint(string(v), 10, 63)
	switch {
	case err != nil:
		return 0, invalid(headerLength + " must be a number of bytes")
	case n == 0:
		return 0, invalid("raw binary requests are not supported: describe the inputs in JSON")
	case n > uint64(bodyBytes):
		return 0, invalid(headerLength+" is %d, the body has %d bytes", n, bodyBytes)
	}
	return int(n), nil
}

// place puts the inputs of a call into shared memory.
func (e *Endpoint) place(c *Call, sig *signature) *Error {
	r := &c.request
	room, ok := r.memoryBytes()
	if !ok {
		return ErrTooLarge
	}
	m, failed := e.backend.Alloc(c.Service, room)
	if failed != nil {
		return asError(failed)
	}
	c.Memory = m
	c.Inputs = resize(c.Inputs, len(r.inputs))
	at := int64(0)
	for i := range r.inputs {
		in, p := &r.inputs[i], &sig.inputs[i]
		at = aligned(at)
		end := at + in.bytes
		n, err := in.write(m.Bytes[at:end:end], p)
		if err != nil {
			e.backend.Free(c.Service, m)
			return err
		}
		c.Inputs[i] = Tensor{Name: p.name, Type: p.typ, Shape: in.dims(), Data: m.Bytes[at : at+int64(n) : at+int64(n)], Offset: m.Offset + at}
		at = end
	}
	return nil
}

// wait returns when the call is answered. Until then the departure of the
// client cancels it.
func (e *Endpoint) wait(ctx *fasthttp.RequestCtx, c *Call) {
	nc, ok := ctx.Conn().(*conn)
	if !ok {
		<-c.answer
		return
	}
	nc.begin(c)
	<-c.answer
	nc.end()
}

// done takes back a call that the backend does not know, or no longer.
func (e *Endpoint) done(c *Call) {
	c.noteTrace()
	c.request.forget()
	clear(c.Inputs)
	c.Service, c.Memory, c.reply, c.QueryID, c.Arrival = nil, Memory{}, Reply{}, 0, time.Time{}
	e.calls.Put(c)
}

// asError returns what a client sees of an error of the backend. What is not
// meant for clients stays in the daemon.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return errInternal
}

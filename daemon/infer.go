package daemon

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
)

const (
	contentJSON   = "application/json"
	contentBinary = "application/octet-stream"

	// headerLength names the length of the JSON before the binary data.
	headerLength = "Inference-Header-Content-Length"
)

// exchange is a call and what reads its request. Both are used again.
type exchange struct {
	call *query.Call
	decoder
}

// infer answers an inference request.
func (e *Endpoint) infer(ctx *fasthttp.RequestCtx, s *query.Service) {
	trace := e.beginTrace(ctx, s)
	failed := e.query(ctx, s, trace)
	if failed != nil {
		writeError(ctx, failed)
	}
	e.endTrace(trace, failed)
}

// query answers the query of a request, unless it returns an error.
func (e *Endpoint) query(ctx *fasthttp.RequestCtx, s *query.Service, trace *tracing.Query) *query.Error {
	s, gone := e.hold(s)
	if gone != nil {
		e.leaveBody(ctx)
		return gone
	}
	defer s.LetGo()
	sig := s.Signature()
	if sig == nil {
		e.leaveBody(ctx)
		return query.ErrUnavailable
	}
	x := e.exchanges.Get().(*exchange)
	c := x.call
	defer e.done(x)
	c.Trace = trace
	if err := e.prepare(ctx, x, s, sig); err != nil {
		return err
	}
	if err := s.Backend.Submit(c); err != nil {
		c.Service.Backend.Free(s, c.Memory)
		refusal := query.AsError(err)
		s.Stats.Failed(refusal, time.Since(c.Arrival))
		return refusal
	}
	e.wait(ctx, c)
	err := c.Reply.Err
	if err == nil {
		noteEncoding(c)
		err = e.writeReply(ctx, c, sig)
	}
	s.Backend.Release(c)
	took := time.Since(c.Arrival)
	if err != nil {
		s.Stats.Failed(err, took)
		return err
	}
	s.Stats.Succeeded(c, c.Arrival.Add(took))
	return nil
}

// hold holds a service that was found a moment ago, or the one that has taken
// its place since.
func (e *Endpoint) hold(s *query.Service) (*query.Service, *query.Error) {
	for !s.Hold() {
		name := s.Name
		if s = e.backend.Service([]byte(name)); s == nil {
			return nil, query.NotFound("unknown model %q", name)
		}
	}
	return s, nil
}

// prepare fills a call from its request: the head is decoded, the tensors go
// into shared memory.
func (e *Endpoint) prepare(ctx *fasthttp.RequestCtx, x *exchange, s *query.Service, sig *query.Signature) *query.Error {
	c := x.call
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
	if err := x.decode(&c.Request, sig, b.b, head); err != nil {
		return err
	}
	return e.admit(c, s, sig)
}

// admit fills a call from its request, whose head is decoded, and puts the
// tensors into shared memory.
func (e *Endpoint) admit(c *query.Call, s *query.Service, sig *query.Signature) *query.Error {
	r := &c.Request
	c.Service, c.ID, c.Timeout, c.Priority = s, r.ID, r.Timeout, r.Priority
	c.Size, c.SeqLen = r.Dimensions(sig)
	c.Shape = r.ShapeHash(sig.Batched)
	if c.Size > s.MaxQueryBatch {
		return query.Invalid("the batch size is %d, the limit of this service %d", c.Size, s.MaxQueryBatch)
	}
	if s.MaxSeqLen > 0 && c.SeqLen > s.MaxSeqLen {
		return query.Invalid("the sequence length is %d, the limit of this service %d", c.SeqLen, s.MaxSeqLen)
	}
	return e.place(c, sig)
}

// headBytes returns how much of the body is JSON.
func headBytes(ctx *fasthttp.RequestCtx, bodyBytes int) (int, *query.Error) {
	v := ctx.Request.Header.Peek(headerLength)
	if v == nil {
		return bodyBytes, nil
	}
	if len(ctx.Request.Header.PeekAll(headerLength)) > 1 {
		return 0, query.Invalid(headerLength + " is given twice")
	}
	n, err := strconv.ParseUint(string(v), 10, 63)
	switch {
	case err != nil:
		return 0, query.Invalid(headerLength + " must be a number of bytes")
	case n == 0:
		return 0, query.Invalid("raw binary requests are not supported: describe the inputs in JSON")
	case n > uint64(bodyBytes):
		return 0, query.Invalid(headerLength+" is %d, the body has %d bytes", n, bodyBytes)
	}
	return int(n), nil
}

// place puts the inputs of a call into shared memory.
func (e *Endpoint) place(c *query.Call, sig *query.Signature) *query.Error {
	r := &c.Request
	room, ok := r.MemoryBytes()
	if !ok {
		return query.ErrTooLarge
	}
	m, failed := c.Service.Backend.Alloc(c.Service, room)
	if failed != nil {
		return query.AsError(failed)
	}
	c.Memory = m
	c.Inputs = query.Resize(c.Inputs, len(r.Inputs))
	at := int64(0)
	for i := range r.Inputs {
		in, p := &r.Inputs[i], &sig.Inputs[i]
		at = query.Aligned(at)
		end := at + in.Bytes
		n, err := writeInput(in, m.Bytes[at:end:end], p)
		if err != nil {
			c.Service.Backend.Free(c.Service, m)
			return err
		}
		c.Inputs[i] = query.Tensor{Name: p.Name, Type: p.Type, Shape: in.Shape(), Data: m.Bytes[at : at+int64(n) : at+int64(n)], Offset: m.Offset + at}
		at = end
	}
	return nil
}

// wait returns when the call is answered. Until then the departure of the
// client cancels it.
func (e *Endpoint) wait(ctx *fasthttp.RequestCtx, c *query.Call) {
	nc, ok := ctx.Conn().(*conn)
	if !ok {
		<-c.Answered()
		return
	}
	nc.begin(c)
	<-c.Answered()
	nc.end()
}

// done takes back a call that the backend does not know, or no longer.
func (e *Endpoint) done(x *exchange) {
	c := x.call
	noteTrace(c)
	c.Request.Forget()
	x.forget()
	clear(c.Inputs)
	c.Service, c.Memory, c.Reply, c.QueryID, c.Arrival = nil, query.Memory{}, query.Reply{}, 0, time.Time{}
	e.exchanges.Put(x)
}

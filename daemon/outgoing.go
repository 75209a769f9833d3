package daemon

import (
	"io"
	"net/http"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// smallAnswer is the longest answer that is not accounted while it is sent. It
// is copied into the connection's own buffer, which the connection keeps.
const smallAnswer = 16 << 10

// errAnswerTooLarge is for an answer that there is never memory for: trying again
// is of no use.
func errAnswerTooLarge(bytes int64) *query.Error {
	return &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge, Message: "the answer could take " +
		strconv.FormatInt(bytes, 10) + " bytes, more than limits.memory_bytes: ask for binary output, for fewer outputs, or send less"}
}

// outgoing is the body of an answer on its way to a client, which may take its
// time. fasthttp closes it when it is sent, or will not be.
type outgoing struct {
	endpoint *Endpoint
	body     *body
	rest     []byte // not read yet
}

// WriteTo writes it without another copy.
func (o *outgoing) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(o.rest)
	o.rest = o.rest[n:]
	return int64(n), err
}

func (o *outgoing) Read(p []byte) (int, error) {
	if len(o.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

// Close gives its memory back.
func (o *outgoing) Close() error {
	o.rest = nil
	o.endpoint.release(o.body)
	return nil
}

// send answers with a body, which is its own from then on. It is compressed if
// the client asked, and it is worth it.
func (e *Endpoint) send(ctx *fasthttp.RequestCtx, b *body) {
	if encoding := e.encodingOf(ctx, b.b); encoding != "" {
		if p := e.packed(encoding, b.b); p != nil {
			e.release(b)
			b = p
			ctx.Response.Header.SetContentEncoding(encoding)
		}
	}
	e.sendPlain(ctx, b)
}

func (e *Endpoint) sendPlain(ctx *fasthttp.RequestCtx, b *body) {
	if len(b.b) <= smallAnswer {
		ctx.Response.SetBody(b.b)
		e.release(b)
		return
	}
	ctx.Response.SetBodyStream(&outgoing{e, b, b.b}, len(b.b))
}

// tell answers with what the daemon tells of itself.
func (e *Endpoint) tell(ctx *fasthttp.RequestCtx, text []byte) { e.sendPlain(ctx, e.told(text)) }

// told returns what the daemon tells of itself as a body. It is accounted, and
// never refused: there is no more of it than connections may be open.
func (e *Endpoint) told(text []byte) *body {
	b := &body{b: text[:len(text):len(text)], shared: true}
	e.force(b)
	return b
}

// encodingOf returns how an answer is compressed, "" for not at all.
func (e *Endpoint) encodingOf(ctx *fasthttp.RequestCtx, b []byte) string {
	if int64(len(b)) < e.limits.CompressBytes {
		return ""
	}
	return acceptedEncoding(ctx.Request.Header.Peek(fasthttp.HeaderAcceptEncoding))
}

// packed compresses b, unless there is no memory for what may come of it.
func (e *Endpoint) packed(encoding string, b []byte) *body {
	p := new(body)
	if !e.account(p, int64(len(b))) {
		return nil
	}
	p.b = pack(encoding, b)
	e.force(p)
	return p
}

// force accounts what b holds already.
func (e *Endpoint) force(b *body) {
	bytes := int64(cap(b.b))
	e.memoryBytes.Add(bytes - b.accounted)
	b.accounted = bytes
}

// replyBody returns an empty body with room for the outputs that a call is
// answered with and the JSON around them.
func (e *Endpoint) replyBody(c *query.Call, sig *query.Signature) (*body, *query.Error) {
	room := int64(len(c.Service.Name)+6*len(c.ID)) + replyHeadBytes
	for _, o := range c.Request.Outputs {
		t, p := &c.Reply.Outputs[o.Port], &sig.Outputs[o.Port]
		room += int64(6*len(p.Name)+dimBytes*len(t.Shape)) + outputHeadBytes
		if o.Binary {
			room += int64(len(t.Data))
		} else {
			room += textBytes(p.Type, int64(len(t.Data)))
		}
	}
	if room > e.limits.MemoryBytes {
		return nil, errAnswerTooLarge(room)
	}
	b := e.bodies.Get().(*body)
	if int64(cap(b.b)) < room {
		b.b = nil
	}
	if !e.account(b, max(room, int64(cap(b.b)))) {
		return nil, e.fail(b, errBodyMemory)
	}
	if b.b == nil {
		b.b = make([]byte, 0, room)
	}
	b.b = b.b[:0]
	return b, nil
}

const (
	replyHeadBytes  = 128 // of JSON around the outputs
	outputHeadBytes = 64  // of JSON around the shape and the data of an output
	dimBytes        = 21  // of a dimension, with its comma
)

// textBytes returns how long the elements of a tensor can get as JSON, given
// how many bytes they have.
func textBytes(t models.DataType, bytes int64) int64 {
	if t == models.String {
		// Six for a control character; the four of a length make quotes and a
		// comma.
		return 6 * bytes
	}
	longest := int64(0) // with its comma
	switch t.Bytes() {
	case 1:
		longest = 6 // false
	case 2:
		longest = 7
	case 4:
		longest = 16 // -1.1754944e-38 and the like
	default:
		longest = 26
	}
	return bytes / int64(t.Bytes()) * longest
}

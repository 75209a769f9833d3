package http

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/query"
)

// smallAnswer is the longest answer that is not accounted while it is sent. It
// is copied into the connection's own buffer, which the connection keeps.
const smallAnswer = 16 << 10

// outgoing is the body of an answer on its way to a client, which may take its
// time. fasthttp closes it when it is sent, or will not be.
type outgoing struct {
	body *query.Body
	rest []byte // not read yet
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
	o.body.Release()
	return nil
}

// send answers with a body, which is its own from then on. It is compressed if
// the client asked, and it is worth it.
func (e *Endpoint) send(ctx *fasthttp.RequestCtx, b *query.Body) {
	if encoding := e.encodingOf(ctx, b.Bytes); encoding != "" {
		// Without memory for what may come of it, it goes as it is.
		if p, ok := e.queries.Memory.Room(int64(len(b.Bytes))); ok {
			p.Bytes = pack(encoding, p.Bytes, b.Bytes)
			p.Settle()
			b.Release()
			b = p
			ctx.Response.Header.SetContentEncoding(encoding)
		}
	}
	e.sendPlain(ctx, b)
}

func (e *Endpoint) sendPlain(ctx *fasthttp.RequestCtx, b *query.Body) {
	if len(b.Bytes) <= smallAnswer {
		ctx.Response.SetBody(b.Bytes)
		b.Release()
		return
	}
	ctx.Response.SetBodyStream(&outgoing{b, b.Bytes}, len(b.Bytes))
}

// tell answers with a text about the daemon itself. It is accounted, and never
// refused: there is no more of it than connections may be open.
func (e *Endpoint) tell(ctx *fasthttp.RequestCtx, text []byte) {
	e.sendPlain(ctx, e.queries.Memory.Holding(text))
}

// encodingOf returns how an answer is compressed, "" for not at all.
func (e *Endpoint) encodingOf(ctx *fasthttp.RequestCtx, b []byte) string {
	if int64(len(b)) < e.limits.CompressBytes {
		return ""
	}
	return acceptedEncoding(ctx.Request.Header.Peek(fasthttp.HeaderAcceptEncoding))
}

// packer compresses; its state is large, so it is used again.
type packer interface {
	io.WriteCloser
	Reset(io.Writer)
}

var (
	gzipPackers = sync.Pool{New: func() any { return fastest(gzip.NewWriterLevel(nil, gzip.BestSpeed)) }}
	zlibPackers = sync.Pool{New: func() any { return fastest(zlib.NewWriterLevel(nil, zlib.BestSpeed)) }}
)

// fastest returns w: the level is one that exists.
func fastest[T packer](w T, _ error) packer { return w }

// pack compresses b into the memory of dst. What the protocol calls deflate is
// the zlib format.
func pack(encoding string, dst, b []byte) []byte {
	pool := &gzipPackers
	if encoding == "deflate" {
		pool = &zlibPackers
	}
	w := pool.Get().(packer)
	defer pool.Put(w)
	out := bytes.NewBuffer(dst[:0])
	w.Reset(out)
	_, _ = w.Write(b) // a buffer takes everything
	w.Close()
	return out.Bytes()
}

// acceptedEncoding returns the encoding of Accept-Encoding that is used, or
// "". Where both are accepted, gzip is.
func acceptedEncoding(header []byte) string {
	best := ""
	for item := range bytes.SplitSeq(header, []byte{','}) {
		name, params, _ := strings.Cut(string(item), ";")
		if refused(params) {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip":
			return "gzip"
		case "deflate":
			best = "deflate"
		}
	}
	return best
}

// refused reports whether the weight of an encoding is zero.
func refused(params string) bool {
	q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
	return ok && strings.Trim(q, "0.") == ""
}

package http

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/query"
)

// drainBytes is how much of an unwanted body is read so that the connection can
// be used again.
const drainBytes = 64 << 10

var (
	errSlowClient = &query.Error{Status: http.StatusRequestTimeout, Reason: query.ReasonTimeout,
		Message: "the request did not arrive in time (limits.read_timeout)"}
	errBroken   = query.Invalid("the body of the request is broken off or wrongly framed")
	errEncoding = &query.Error{Status: http.StatusUnsupportedMediaType, Reason: query.ReasonEncoding,
		Message: "Content-Encoding must be gzip, deflate or identity"}
	errCompressed = query.Invalid("the body of the request is not what Content-Encoding says")
)

// bodies reads the bodies of requests and sends those of answers. All lie in one
// memory, no request has more than most bytes, and answers of compress bytes and
// more are compressed for clients that want it.
type bodies struct {
	memory         *query.Budget
	most, compress int64
}

func errBodyTooLarge(most int64) *query.Error {
	return &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: "the body exceeds limits.request_bytes (" + strconv.FormatInt(most, 10) + ")"}
}

// read reads the body of a request, decompressed. The caller releases it.
// After an error the connection is closed if the body is still under way.
func (bs *bodies) read(ctx *fasthttp.RequestCtx) (*query.Body, *query.Error) {
	stream, announced := ctx.RequestBodyStream(), int64(ctx.Request.Header.ContentLength())
	if !ctx.Request.IsBodyStream() {
		stream, announced = bytes.NewReader(ctx.Request.Body()), int64(len(ctx.Request.Body()))
	}
	memory := bs.memory
	if c, ok := ctx.Conn().(*conn); ok {
		memory = c.share(memory)
	}
	raw, err := bs.fill(memory, stream, announced)
	if err != nil {
		closeAfter(ctx)
		return nil, err
	}
	encoding := strings.ToLower(string(ctx.Request.Header.ContentEncoding()))
	if encoding == "" || encoding == "identity" {
		return raw, nil
	}
	defer raw.Release()
	return bs.inflate(raw.Bytes, encoding)
}

// fill reads r to its end, into some memory. Announced is its length, negative if
// that is not known.
func (bs *bodies) fill(memory *query.Budget, r io.Reader, announced int64) (*query.Body, *query.Error) {
	b := memory.Body()
	err := b.Fill(r, announced, bs.most)
	if err == nil {
		return b, nil
	}
	b.Release()
	var fault *query.Error
	var netErr net.Error
	switch {
	case errors.As(err, &fault):
		return nil, fault
	case err == query.ErrBodyTooLarge:
		return nil, errBodyTooLarge(bs.most)
	case errors.As(err, &netErr) && netErr.Timeout():
		return nil, errSlowClient
	}
	return nil, errBroken
}

// inflate decompresses a body, which must not exceed the limit afterwards
// either.
func (bs *bodies) inflate(compressed []byte, encoding string) (*query.Body, *query.Error) {
	var r io.ReadCloser
	var err error
	switch encoding {
	case "gzip":
		r, err = gzip.NewReader(bytes.NewReader(compressed))
	case "deflate":
		r, err = zlib.NewReader(bytes.NewReader(compressed))
	default:
		return nil, errEncoding
	}
	if err != nil {
		return nil, errCompressed
	}
	defer r.Close()
	b, failed := bs.fill(bs.memory, r, -1)
	if failed == errBroken {
		failed = errCompressed
	}
	return b, failed
}

// smallAnswer is the longest answer that is not accounted while it is sent. It
// is copied into the connection's own buffer, which the connection keeps.
const smallAnswer = 16 << 10

// outgoing is the body of an answer on its way to a client, which may take its
// time. fasthttp closes it when it is sent, or will not be.
type outgoing struct {
	bytes.Reader // writes without another copy
	body         *query.Body
}

// Close gives its memory back.
func (o *outgoing) Close() error {
	o.Reset(nil)
	o.body.Release()
	return nil
}

// send answers with a body, which is its own from then on. It is compressed if
// the client asked, and it is worth it.
func (bs *bodies) send(ctx *fasthttp.RequestCtx, b *query.Body) {
	encoding := ""
	if int64(len(b.Bytes)) >= bs.compress {
		encoding = acceptedEncoding(ctx.Request.Header.Peek(fasthttp.HeaderAcceptEncoding))
	}
	if encoding != "" {
		// Without memory for what may come of it, it goes as it is.
		if p, err := bs.memory.Room(int64(len(b.Bytes))); err == nil {
			p.Bytes = pack(encoding, p.Bytes, b.Bytes)
			p.Settle()
			b.Release()
			b = p
			ctx.Response.Header.SetContentEncoding(encoding)
		}
	}
	bs.sendPlain(ctx, b)
}

func (bs *bodies) sendPlain(ctx *fasthttp.RequestCtx, b *query.Body) {
	if len(b.Bytes) <= smallAnswer {
		ctx.Response.SetBody(b.Bytes)
		b.Release()
		return
	}
	ctx.Response.SetBodyStream(&outgoing{*bytes.NewReader(b.Bytes), b}, len(b.Bytes))
}

// packer compresses; its state is large, so it is used again.
type packer interface {
	io.WriteCloser
	Reset(io.Writer)
}

// packers are those of each encoding. What the protocol calls deflate is the zlib
// format.
var packers = map[string]*sync.Pool{
	"gzip":    {New: func() any { w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return w }},
	"deflate": {New: func() any { w, _ := zlib.NewWriterLevel(nil, zlib.BestSpeed); return w }},
}

// pack compresses b into the memory of dst.
func pack(encoding string, dst, b []byte) []byte {
	w := packers[encoding].Get().(packer)
	defer packers[encoding].Put(w)
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

// leaveBody deals with a body that nobody wants: a short one is read, so that
// the next request is found behind it; otherwise the connection is closed.
func leaveBody(ctx *fasthttp.RequestCtx) {
	if !ctx.Request.IsBodyStream() {
		return
	}
	if int64(ctx.Request.Header.ContentLength()) > drainBytes {
		closeAfter(ctx) // the answer need not wait for what may never come
		return
	}
	n, err := io.CopyN(io.Discard, ctx.RequestBodyStream(), drainBytes)
	if !errors.Is(err, io.EOF) || int64(ctx.Request.Header.ContentLength()) > n {
		closeAfter(ctx)
	}
}

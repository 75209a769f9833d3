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

// drainBytes is how much of an unwanted body is read and discarded so that the connection
// can be reused.
const drainBytes = 64 << 10

// Errors of reading a body.
var (
	errSlowClient = &query.Error{Status: http.StatusRequestTimeout, Reason: query.ReasonTimeout,
		Message: "the request did not arrive in time (limits.read_timeout)"}
	errBroken   = query.Invalid("the body of the request is truncated or wrongly framed")
	errEncoding = &query.Error{Status: http.StatusUnsupportedMediaType, Reason: query.ReasonEncoding,
		Message: "Content-Encoding must be gzip, deflate or identity"}
	errCompressed = query.Invalid("the body of the request does not match Content-Encoding")
)

// bodies reads request bodies and sends response bodies. Both take memory from the budget
// memory. most is the largest request body in bytes.
type bodies struct {
	memory *query.Budget
	most   int64
}

// compressBytes is the size from which a response is compressed if the client accepts that.
// A shorter one fits into one packet anyway.
const compressBytes = 1 << 10

// errBodyTooLarge returns the error for a body of more than most bytes. It names the key to
// change.
func errBodyTooLarge(most int64) *query.Error {
	return &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: "the body exceeds limits.request_bytes (" + strconv.FormatInt(most, 10) + ")"}
}

// read returns the body of a request, decompressed. The caller releases it. If the body
// does not arrive completely, the connection is closed, because its rest may still be on
// its way.
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
	// The compressed bytes are released only after decompression, so both forms count.
	defer raw.Release()
	return bs.inflate(raw.Bytes, encoding)
}

// fill reads r to its end into a body of the given budget. announced is its length, or
// negative if it is unknown.
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

// inflate decompresses a body. The limit applies to the decompressed size as well, which
// makes a decompression bomb a plain 413.
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
	// The compressed bytes arrived completely, so what is broken is their content.
	if failed == errBroken {
		failed = errCompressed
	}
	return b, failed
}

// smallAnswer is the size up to which a response is copied into the connection's own
// buffer, which fasthttp keeps anyway. A larger one stays accounted until it is sent.
const smallAnswer = 16 << 10

// outgoing is a response body that is being sent, which takes as long as the client takes.
// fasthttp closes it when it has been sent or cannot be.
type outgoing struct {

	// Reader implements io.WriterTo, so the body is written without another copy.
	bytes.Reader
	body *query.Body
}

// Close releases the memory of the body.
func (o *outgoing) Close() error {
	o.Reset(nil)
	o.body.Release()
	return nil
}

// send writes a body as the response and takes ownership of it. The body is compressed if
// it is large enough and the client accepts it.
func (bs *bodies) send(ctx *fasthttp.RequestCtx, b *query.Body) {
	encoding := ""
	if len(b.Bytes) >= compressBytes {
		encoding = acceptedEncoding(ctx.Request.Header.Peek(fasthttp.HeaderAcceptEncoding))
	}
	if encoding != "" {
		// If there is no memory for the compressed form, the body is sent uncompressed.
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

// sendPlain is send without compression.
func (bs *bodies) sendPlain(ctx *fasthttp.RequestCtx, b *query.Body) {
	if len(b.Bytes) <= smallAnswer {
		ctx.Response.SetBody(b.Bytes)
		b.Release()
		return
	}
	ctx.Response.SetBodyStream(&outgoing{*bytes.NewReader(b.Bytes), b}, len(b.Bytes))
}

// packer is a compressor. Its state is large (hundreds of kilobytes), so it is pooled.
type packer interface {
	io.WriteCloser
	Reset(io.Writer)
}

// packers holds a pool of compressors for each content coding. The "deflate" of HTTP is the
// zlib format (RFC 9110, section 8.4.1.2).
var packers = map[string]*sync.Pool{
	"gzip":    {New: func() any { w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return w }},
	"deflate": {New: func() any { w, _ := zlib.NewWriterLevel(nil, zlib.BestSpeed); return w }},
}

// pack compresses b into the memory of dst, which grows if needed.
func pack(encoding string, dst, b []byte) []byte {
	w := packers[encoding].Get().(packer)
	defer packers[encoding].Put(w)
	out := bytes.NewBuffer(dst[:0])
	w.Reset(out)
	_, _ = w.Write(b) // a bytes.Buffer accepts every write
	w.Close()
	return out.Bytes()
}

// acceptedEncoding chooses a content coding from Accept-Encoding, or returns "". It prefers
// gzip; weights other than 0 are ignored.
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

// refused reports whether the parameters of a coding are a weight of zero.
func refused(params string) bool {
	q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
	return ok && strings.Trim(q, "0.") == ""
}

// leaveBody disposes of an unwanted request body. It discards a short one, so that the next
// request can be read from the connection, and closes the connection otherwise.
func leaveBody(ctx *fasthttp.RequestCtx) {
	if !ctx.Request.IsBodyStream() {
		return
	}
	if int64(ctx.Request.Header.ContentLength()) > drainBytes {
		closeAfter(ctx) // answer now: the body may never arrive
		return
	}
	n, err := io.CopyN(io.Discard, ctx.RequestBodyStream(), drainBytes)
	if !errors.Is(err, io.EOF) || int64(ctx.Request.Header.ContentLength()) > n {
		closeAfter(ctx)
	}
}

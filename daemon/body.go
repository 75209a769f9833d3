package daemon

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

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/valyala/fasthttp"
)

const (
	// firstBytes is what a body gets before any of it has arrived; it then
	// doubles. A client cannot take memory by announcing a large body.
	firstBytes = 1 << 20

	// keptBytes is the largest buffer that is used again.
	keptBytes = 4 << 20

	// drainBytes is how much of an unwanted body is read so that the
	// connection can be used again.
	drainBytes = 64 << 10
)

var (
	errSlowClient = &query.Error{Status: http.StatusRequestTimeout, Reason: query.ReasonTimeout,
		Message: "the request did not arrive in time (limits.read_timeout)"}
	errBodyMemory = query.Unavailable(query.ReasonNoMemory, "the requests and answers that are under way hold all memory there is for them (limits.memory_bytes)")
	errBroken     = query.Invalid("the body of the request is broken off or wrongly framed")
	errEncoding   = &query.Error{Status: http.StatusUnsupportedMediaType, Reason: query.ReasonEncoding,
		Message: "Content-Encoding must be gzip, deflate or identity"}
	errCompressed = query.Invalid("the body of the request is not what Content-Encoding says")
)

func (e *Endpoint) errBodyTooLarge() *query.Error {
	return &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: "the body exceeds limits.request_bytes (" + strconv.FormatInt(e.limits.RequestBytes, 10) + ")"}
}

// body is the body of one request, or of its answer. Its capacity is accounted
// to the endpoint.
type body struct {
	b         []byte
	accounted int64
	shared    bool // b is not to be used again
}

// readBody reads the body of a request, decompressed. The caller hands it
// back with release. After an error the connection is closed if the body is
// still under way.
func (e *Endpoint) readBody(ctx *fasthttp.RequestCtx) (*body, *query.Error) {
	raw, err := e.readRaw(ctx)
	if err != nil {
		if err != errEncoding {
			closeAfter(ctx)
		}
		return nil, err
	}
	encoding := strings.ToLower(string(ctx.Request.Header.ContentEncoding()))
	if encoding == "" || encoding == "identity" {
		return raw, nil
	}
	defer e.release(raw)
	return e.inflate(raw.b, encoding)
}

func (e *Endpoint) readRaw(ctx *fasthttp.RequestCtx) (*body, *query.Error) {
	announced := int64(ctx.Request.Header.ContentLength())
	if announced > e.limits.RequestBytes {
		return nil, e.errBodyTooLarge()
	}
	if !ctx.Request.IsBodyStream() {
		return e.fill(bytes.NewReader(ctx.Request.Body()), int64(len(ctx.Request.Body())))
	}
	return e.fill(ctx.RequestBodyStream(), announced)
}

// fill reads r to its end. Announced is its length, negative if that is not
// known.
func (e *Endpoint) fill(r io.Reader, announced int64) (*body, *query.Error) {
	b := e.bodies.Get().(*body)
	b.b = b.b[:0]
	if !e.account(b, int64(cap(b.b))) {
		b.b = nil // it may need less
	}
	for int64(len(b.b)) != announced {
		if len(b.b) == cap(b.b) {
			if err := e.grow(b, announced); err != nil {
				return nil, e.fail(b, err)
			}
		}
		end := cap(b.b)
		if announced >= 0 {
			end = int(min(int64(end), announced))
		}
		n, err := r.Read(b.b[len(b.b):end])
		b.b = b.b[:len(b.b)+n]
		if int64(len(b.b)) > e.limits.RequestBytes {
			return nil, e.fail(b, e.errBodyTooLarge())
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, e.fail(b, readError(err))
		}
	}
	if announced >= 0 && int64(len(b.b)) != announced {
		return nil, e.fail(b, errBroken)
	}
	return b, nil
}

// grow makes room: twice as much as before, and no more than can be needed.
func (e *Endpoint) grow(b *body, announced int64) *query.Error {
	size := max(2*int64(cap(b.b)), firstBytes)
	if announced >= 0 {
		size = min(size, announced)
	}
	size = min(size, e.limits.RequestBytes+1)
	if !e.account(b, size) {
		return errBodyMemory
	}
	b.b = append(make([]byte, 0, size), b.b...)
	return nil
}

// account sets what b holds of the endpoint's memory, or reports that there
// is not so much.
func (e *Endpoint) account(b *body, bytes int64) bool {
	delta := bytes - b.accounted
	if e.memoryBytes.Add(delta) > e.limits.MemoryBytes && delta > 0 {
		e.memoryBytes.Add(-delta)
		return false
	}
	b.accounted = bytes
	return true
}

func (e *Endpoint) release(b *body) {
	e.account(b, 0)
	if cap(b.b) > keptBytes || b.shared {
		b.b, b.shared = nil, false
	}
	e.bodies.Put(b)
}

func (e *Endpoint) fail(b *body, err *query.Error) *query.Error {
	e.release(b)
	return err
}

func readError(err error) *query.Error {
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() {
		return errSlowClient
	}
	return errBroken
}

// inflate decompresses a body, which must not exceed the limit afterwards
// either.
func (e *Endpoint) inflate(compressed []byte, encoding string) (*body, *query.Error) {
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
	b, failed := e.fill(r, -1)
	if failed == errBroken {
		failed = errCompressed
	}
	return b, failed
}

// leaveBody deals with a body that nobody wants: a short one is read, so that
// the next request is found behind it; otherwise the connection is closed.
func (e *Endpoint) leaveBody(ctx *fasthttp.RequestCtx) {
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

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

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/valyala/fasthttp"
)

const (
	// drainBytes is how much of an unwanted body is read so that the
	// connection can be used again.
	drainBytes = 64 << 10
)

var (
	errSlowClient = &query.Error{Status: http.StatusRequestTimeout, Reason: query.ReasonTimeout,
		Message: "the request did not arrive in time (limits.read_timeout)"}
	errBroken   = query.Invalid("the body of the request is broken off or wrongly framed")
	errEncoding = &query.Error{Status: http.StatusUnsupportedMediaType, Reason: query.ReasonEncoding,
		Message: "Content-Encoding must be gzip, deflate or identity"}
	errCompressed = query.Invalid("the body of the request is not what Content-Encoding says")
)

func (e *Endpoint) errBodyTooLarge() *query.Error {
	return &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: "the body exceeds limits.request_bytes (" + strconv.FormatInt(e.limits.RequestBytes, 10) + ")"}
}

// readBody reads the body of a request, decompressed. The caller releases it.
// After an error the connection is closed if the body is still under way.
func (e *Endpoint) readBody(ctx *fasthttp.RequestCtx) (*query.Body, *query.Error) {
	raw, err := e.readRaw(ctx)
	if err != nil {
		closeAfter(ctx)
		return nil, err
	}
	encoding := strings.ToLower(string(ctx.Request.Header.ContentEncoding()))
	if encoding == "" || encoding == "identity" {
		return raw, nil
	}
	defer raw.Release()
	return e.inflate(raw.Bytes, encoding)
}

func (e *Endpoint) readRaw(ctx *fasthttp.RequestCtx) (*query.Body, *query.Error) {
	announced := int64(ctx.Request.Header.ContentLength())
	if !ctx.Request.IsBodyStream() {
		return e.fill(bytes.NewReader(ctx.Request.Body()), int64(len(ctx.Request.Body())))
	}
	return e.fill(ctx.RequestBodyStream(), announced)
}

// fill reads r to its end. Announced is its length, negative if that is not
// known.
func (e *Endpoint) fill(r io.Reader, announced int64) (*query.Body, *query.Error) {
	b := e.queries.Memory.Body()
	err := b.Fill(r, announced, e.limits.RequestBytes)
	if err == nil {
		return b, nil
	}
	b.Release()
	var netErr net.Error
	switch {
	case err == query.ErrBodyMemory:
		return nil, query.ErrBodyMemory
	case err == query.ErrBodyTooLarge:
		return nil, e.errBodyTooLarge()
	case errors.As(err, &netErr) && netErr.Timeout():
		return nil, errSlowClient
	}
	return nil, errBroken
}

// inflate decompresses a body, which must not exceed the limit afterwards
// either.
func (e *Endpoint) inflate(compressed []byte, encoding string) (*query.Body, *query.Error) {
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

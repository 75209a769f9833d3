package http

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/query"
)

const (
	contentJSON   = "application/json"
	contentBinary = "application/octet-stream"
)

// Responses may repeat what a client sent, so browsers must not guess their content type.
const (
	headerTypeOptions = "X-Content-Type-Options"
	noSniff           = "nosniff"
)

// challenge is the WWW-Authenticate header of a 401 (RFC 6750).
const challenge = `Bearer realm="overlapd"`

// writeError writes err as the response, as a JSON object: in OpenAI's form below openAIPrefix.
func writeError(ctx *fasthttp.RequestCtx, err *query.Error) {
	ctx.Response.ResetBody()
	ctx.SetStatusCode(err.Status)
	ctx.SetContentType(contentJSON)
	ctx.Response.Header.Set(headerTypeOptions, noSniff)
	if err.Status == http.StatusUnauthorized {
		ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, challenge)
	}
	if err.RetryAfter > 0 {
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, retrySeconds(err.RetryAfter))
	}
	// Reuses the memory of the response's own buffer.
	b := ctx.Response.Body()[:0]
	if bytes.HasPrefix(ctx.URI().PathOriginal(), []byte(openAIPrefix)) {
		ctx.Response.SetBody(appendOpenAIError(b, err))
		return
	}
	b = appendString(append(b, `{"error":`...), err.Message)
	b = appendString(append(b, `,"reason":`...), err.Reason)
	ctx.Response.SetBody(append(b, '}'))
}

// openAIPrefix begins the paths whose clients expect OpenAI's protocol.
const openAIPrefix = "/v1/"

// openAIErrors are the types of errors in OpenAI's protocol by their status. All others from
// 400 on are errors of the request, from 500 on of the server.
var openAIErrors = map[int]string{
	http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error",
}

// appendOpenAIError appends an error in OpenAI's form. Its code is the reason.
func appendOpenAIError(b []byte, err *query.Error) []byte {
	kind := openAIErrors[err.Status]
	switch {
	case kind == "" && err.Status >= http.StatusInternalServerError:
		kind = "server_error"
	case kind == "":
		kind = "invalid_request_error"
	}
	b = appendString(append(b, `{"error":{"message":`...), err.Message)
	b = appendString(append(b, `,"type":`...), kind)
	b = append(b, `,"param":`...)
	if err.Parameter == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, err.Parameter)
	}
	b = appendString(append(b, `,"code":`...), err.Reason)
	return append(b, "}}"...)
}

// retrySeconds returns the value of Retry-After: d in whole seconds, rounded up, at least
// 1.
func retrySeconds(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Second-1)/time.Second), 1), 10)
}

// closeAfter closes the connection after the response. The close lingers, so that the
// client has time to read the response before it sees a reset.
func closeAfter(ctx *fasthttp.RequestCtx) {
	ctx.SetConnectionClose()
	if c, ok := ctx.Conn().(*conn); ok {
		c.linger.Store(true)
	}
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString[S string | []byte](b []byte, s S) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && size == 1 {
				b = append(b, s[start:i]...)
				b = append(b, `\ufffd`...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

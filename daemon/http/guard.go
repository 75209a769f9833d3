package http

import (
	"bytes"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/valyala/fasthttp"
)

var (
	errForeignHost = &query.Error{Status: http.StatusForbidden, Reason: query.ReasonForbidden,
		Message: "this Host is not served here; limits.hosts may name it"}
	errForeignOrigin = &query.Error{Status: http.StatusForbidden, Reason: query.ReasonForbidden,
		Message: "pages of this Origin may not ask; limits.hosts may name it"}
)

// hostSet returns the names that Host and Origin may carry, without port.
func hostSet(names []string) map[string]struct{} {
	set := map[string]struct{}{"localhost": {}, "127.0.0.1": {}, "::1": {}}
	for _, n := range names {
		set[strings.ToLower(n)] = struct{}{}
	}
	return set
}

// guard refuses requests before anything of them is looked at: those that two
// readers could understand in two ways, and, on loopback, those that a web
// page sent by giving its own name the address of this machine (DNS
// rebinding).
func (e *Endpoint) guard(ctx *fasthttp.RequestCtx) *query.Error {
	h := &ctx.Request.Header
	if h.ContentLength() == -1 && hasHeader(h.RawHeaders(), "content-length") {
		closeAfter(ctx)
		return query.Invalid("both Content-Length and Transfer-Encoding are given")
	}
	host := h.Host()
	if len(host) == 0 && h.IsHTTP11() {
		return query.Invalid("the Host header is missing")
	}
	c, ok := ctx.Conn().(*conn)
	if !ok || !c.listener.guarded {
		return nil
	}
	if len(host) > 0 && !e.ours(host) {
		return errForeignHost
	}
	if origin := h.Peek(fasthttp.HeaderOrigin); len(origin) > 0 {
		u, err := url.Parse(string(origin))
		if err != nil || !e.ours([]byte(u.Host)) {
			return errForeignOrigin
		}
		return nil
	}
	if string(h.Peek(headerFetchSite)) == "cross-site" && string(h.Peek(headerFetchMode)) != "navigate" {
		return errForeignOrigin
	}
	return nil
}

// What browsers say of a request besides its Origin, which they leave out for
// images and the like: from where it was made, and what for. A link to us may be
// followed.
const (
	headerFetchSite = "Sec-Fetch-Site"
	headerFetchMode = "Sec-Fetch-Mode"
)

// ours reports whether a host, with or without a port, is one of our names.
func (e *Endpoint) ours(host []byte) bool {
	if _, ok := e.hosts[string(host)]; ok {
		return true
	}
	name := string(host)
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(name), "["), "]")
	_, ok := e.hosts[name]
	return ok
}

// hasHeader reports whether a line of a raw header has that name, which is
// given in lower case.
func hasHeader(raw []byte, name string) bool {
	for line := range bytes.Lines(raw) {
		key, _, ok := bytes.Cut(line, []byte{':'})
		if ok && strings.EqualFold(string(bytes.TrimSpace(key)), name) {
			return true
		}
	}
	return false
}

var (
	errNoToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "this daemon wants a token: send the header Authorization: Bearer TOKEN, with a token of its access.token_file"}
	errWrongToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "the token of this request is not one of the daemon's: it may have been replaced in access.token_file"}
)

// challenge is what an answer without a token's right says of itself (RFC 6750).
const challenge = `Bearer realm="overlapd"`

// decide finds what a request asks for, if whoever sent it may ask. Every
// request passes here before anything of it is done, so that there is one place
// where tokens are looked at and no path around it.
func (e *Endpoint) decide(ctx *fasthttp.RequestCtx) (route, *query.Error) {
	if err := e.guard(ctx); err != nil {
		return route{}, err
	}
	r, err := e.route(ctx)
	if e.open(r.kind, err) {
		return r, err
	}
	sent := ctx.Request.Header.Peek(fasthttp.HeaderAuthorization)
	switch {
	case e.access.Allows(sent):
		return r, err
	case len(sent) == 0:
		return r, errNoToken
	}
	return r, errWrongToken
}

// open reports whether a route needs no token: health, for probes, and the page
// of the dashboard, which holds nothing of the daemon's and asks for a token
// itself. What is at no path needs one, so that nobody learns which paths are.
func (e *Endpoint) open(kind routeKind, err *query.Error) bool {
	switch {
	case err != nil && err.Status == http.StatusNotFound:
		return false
	case kind == routeLive, kind == routeReady, kind == routeDashboard:
		return true
	}
	return kind == routeMetrics && e.openMetrics
}

package http

import (
	"bytes"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/query"
)

// route is something that can be asked of the endpoint, of a service if there is
// one in its path. It takes POST if post is set, else GET and HEAD. One that is
// open needs no token: health, for probes, and the page of the dashboard, which holds
// nothing of the daemon's and asks for a token itself. Probes are answered however many
// connections there are, and one that is heavy waits for its turn. Inference has no page.
type route struct {
	post, open, probe, heavy bool
	page                     func(p *pages, ctx *fasthttp.RequestCtx, s *query.Service)
}

// fixedRoutes are the paths without a model in them. A service cannot be
// named "stats", see [config.Config.Validate].
var fixedRoutes = map[string]route{
	"/v2":                  {page: (*pages).server},
	"/v2/":                 {page: (*pages).server},
	"/v2/health/live":      {open: true, probe: true, page: (*pages).live},
	"/healthz":             {open: true, probe: true, page: (*pages).live}, // where Kubernetes' own programs have it
	"/v2/health/ready":     {open: true, probe: true, page: (*pages).ready},
	"/v2/models/stats":     {heavy: true, page: (*pages).allStatistics},
	"/v2/repository/index": {post: true, page: (*pages).index},
	"/overlapd/status":     {heavy: true, page: (*pages).overviewPage},
	metricsPath:            {heavy: true, page: (*pages).answerMetrics},
	"/overlapd/timeline":   {heavy: true, page: (*pages).answerTimeline},
	"/overlapd/history":    {heavy: true, page: (*pages).answerHistory},
	"/overlapd/events":     {page: (*pages).answerEvents},
	"/overlapd/queries":    {heavy: true, page: (*pages).answerQueries},
	"/overlapd/load":       {page: (*pages).answerLoad},
	"/":                    {open: true, page: (*pages).answerDashboard},
}

// modelRoutes are what may follow the name and version of a model.
var modelRoutes = map[string]route{
	"":        {page: (*pages).metadata},
	"/ready":  {probe: true, page: (*pages).modelReady},
	"/config": {page: (*pages).config},
	"/stats":  {page: (*pages).statistics},
	"/infer":  {post: true},
}

// metricsPath needs no token if the configuration says so.
const metricsPath = "/metrics"

var (
	modelsPrefix   = []byte("/v2/models/")
	versionsPrefix = []byte("/versions/")
)

// gate decides which requests are answered: it finds what a request asks for and
// refuses those that may not ask. Without access, everybody may.
type gate struct {
	queries     *query.Server
	access      *access.Access
	most        int64               // bytes of a body to infer
	openMetrics bool                // the metrics need no token
	hosts       map[string]struct{} // names that Host and Origin may carry
}

var (
	errNothing     = query.NotFound("there is nothing at this path")
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

// check refuses requests before anything of them is looked at: those that two
// readers could understand in two ways, and, on loopback, those that a web
// page sent by giving its own name the address of this machine (DNS
// rebinding).
func (g *gate) check(ctx *fasthttp.RequestCtx) *query.Error {
	if err := misread(ctx); err != nil {
		closeAfter(ctx)
		return err
	}
	h := &ctx.Request.Header
	if len(h.Host()) == 0 && h.IsHTTP11() {
		return query.Invalid("the Host header is missing")
	}
	host := ctx.URI().Host() // that of the target, if there is one (RFC 9112, section 3.2.2)
	c, ok := ctx.Conn().(*conn)
	if ok && !c.asked {
		c.asked = true
		c.place.Asked()
	}
	if !ok || !c.guarded {
		return nil
	}
	if len(host) > 0 && !g.ours(host) {
		return errForeignHost
	}
	if origin := h.Peek(fasthttp.HeaderOrigin); len(origin) > 0 {
		u, err := url.Parse(string(origin))
		if err != nil || !g.ours([]byte(u.Host)) {
			return errForeignOrigin
		}
		return nil
	}
	if string(h.Peek(headerFetchSite)) == "cross-site" && string(h.Peek(headerFetchMode)) != "navigate" {
		return errForeignOrigin
	}
	return nil
}

// misread refuses what fasthttp reads and another server could read otherwise, by RFC
// 9112 (sections 2.6, 3.2.2 and 6.1) and RFC 9110 (section 5.3).
func misread(ctx *fasthttp.RequestCtx) *query.Error {
	h := &ctx.Request.Header
	if !bytes.HasPrefix(h.Protocol(), []byte("HTTP/1.")) {
		return &query.Error{Status: http.StatusHTTPVersionNotSupported, Reason: query.ReasonInvalid,
			Message: "the request is " + string(h.Protocol()) + ": ask by HTTP/1.1"}
	}
	chunked := h.ContentLength() == -1
	switch {
	case bareLF(h.RawHeaders()):
		return query.Invalid("a line of the header ends with a line feed alone: it must end with a carriage return and a line feed")
	case chunked && hasHeader(h.RawHeaders(), "content-length"):
		return query.Invalid("both Content-Length and Transfer-Encoding are given")
	case !chunked && hasHeader(h.RawHeaders(), "transfer-encoding"):
		return query.Invalid("Transfer-Encoding must be chunked")
	}
	if sent := h.Peek(fasthttp.HeaderAuthorization); len(sent) > 0 && len(h.PeekAll(fasthttp.HeaderAuthorization)) > 1 {
		return query.Invalid("the Authorization header is given twice")
	}
	if u := ctx.URI(); bytes.Contains(h.RequestURI(), []byte("://")) && h.RequestURI()[0] != '/' {
		if s := string(u.Scheme()); s != "http" && s != "https" || len(u.Host()) == 0 || len(u.Username()) > 0 {
			return query.Invalid("the target of the request must be a path, or http:// or https://, a host and a path")
		}
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
func (g *gate) ours(host []byte) bool {
	if _, ok := g.hosts[string(host)]; ok {
		return true
	}
	name := string(host)
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(name), "["), "]")
	_, ok := g.hosts[name]
	return ok
}

// bareLF reports whether a line of a raw header ends without a carriage return. What
// another server takes for one line would be two here (RFC 9112, section 2.2).
func bareLF(raw []byte) bool {
	for line := range bytes.Lines(raw) {
		if !bytes.HasSuffix(line, []byte("\r\n")) {
			return true
		}
	}
	return false
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

// decide finds what a request asks for, if whoever sent it may ask. Every
// request passes here before anything of it is done, so that there is one place
// where tokens are looked at and no path around it. What is at no path needs one,
// so that nobody learns which paths are.
func (g *gate) decide(ctx *fasthttp.RequestCtx) (route, *query.Service, *query.Error) {
	if err := g.check(ctx); err != nil {
		return route{}, nil, err
	}
	r, s, err := g.judge(&ctx.Request.Header, ctx.URI().PathOriginal())
	if c, ok := ctx.Conn().(*conn); ok && c.place.Spare {
		ctx.SetConnectionClose()
		if err == nil && !r.probe {
			err = query.ErrConnections
			c.place.Leave() // a probe may need it before this answer is sent
		}
	}
	if err != nil && err.Status == http.StatusMethodNotAllowed {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, r.methods())
	}
	return r, s, err
}

// judge is what of a decision the header alone is enough for.
func (g *gate) judge(h *fasthttp.RequestHeader, path []byte) (route, *query.Service, *query.Error) {
	r, s, err := g.find(path)
	if err == nil {
		err = r.takes(h)
	}
	if err == nil && r.page == nil && int64(h.ContentLength()) > g.most {
		err = errBodyTooLarge(g.most)
	}
	sent := h.Peek(fasthttp.HeaderAuthorization)
	switch {
	case r.open, g.access.Allows(sent):
		return r, s, err
	case len(sent) == 0:
		return r, s, errNoToken
	}
	return r, s, errWrongToken
}

// early has a request that its header is enough to refuse be refused before its body
// comes. Fasthttp reads the beginning of a body before it asks anybody, unless the
// client waits for leave to send it: so we say that it does, and Endpoint.expect refuses.
func (g *gate) early(h *fasthttp.RequestHeader) (unchanged fasthttp.RequestConfig) {
	if h.ContentLength() > 0 {
		if _, _, err := g.judge(h, pathOf(h.RequestURI())); err != nil {
			h.Set(fasthttp.HeaderExpect, "100-continue")
		}
	}
	return unchanged
}

// pathOf returns the path of a request's target as it was sent.
func pathOf(target []byte) []byte {
	if len(target) > 0 && target[0] != '/' {
		_, target, _ = bytes.Cut(target, []byte("://"))
		target = target[max(bytes.IndexByte(target, '/'), 0):]
	}
	if end := bytes.IndexAny(target, "?#"); end >= 0 {
		target = target[:end]
	}
	return target
}

// methods returns the methods that a route takes.
func (r route) methods() string {
	if r.post {
		return "POST"
	}
	return "GET, HEAD"
}

// takes refuses a request of a method that the route does not take.
func (r route) takes(h *fasthttp.RequestHeader) *query.Error {
	if r.post && h.IsPost() || !r.post && (h.IsGet() || h.IsHead()) {
		return nil
	}
	return &query.Error{Status: http.StatusMethodNotAllowed, Reason: query.ReasonMethod, Message: "this takes " + r.methods()}
}

// find returns the route of a path, and its service. Paths are compared as they
// were sent: no name that the configuration allows needs escaping, so a path with a
// percent sign, a ".." or an empty element is one that does not exist.
func (g *gate) find(path []byte) (route, *query.Service, *query.Error) {
	if r, ok := fixedRoutes[string(path)]; ok {
		r.open = r.open || g.openMetrics && string(path) == metricsPath
		return r, nil, nil
	}
	rest, ok := bytes.CutPrefix(path, modelsPrefix)
	if !ok {
		return route{}, nil, nothing(path)
	}
	name, tail := splitElement(rest)
	var version []byte
	if v, ok := bytes.CutPrefix(tail, versionsPrefix); ok {
		version, tail = splitElement(v)
	}
	r, ok := modelRoutes[string(tail)]
	if !ok {
		return route{}, nil, nothing(path)
	}
	s, err := g.queries.Find(name, version)
	return r, s, err
}

// nothing returns why there is no route of a path.
func nothing(path []byte) *query.Error {
	if err := query.NotOffered(path); err != nil {
		return err
	}
	return errNothing
}

// splitElement splits "name/tail" into "name" and "/tail".
func splitElement(path []byte) (element, tail []byte) {
	if i := bytes.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, nil
}

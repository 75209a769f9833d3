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

// route is a resource of the endpoint, of a service if its path names one. It takes POST if
// post is set, otherwise GET and HEAD.
//
// A page with body reads the body of the request, of at most controlBytes.
//
// An open route needs no token: health checks, and the dashboard page, which holds no data
// and asks for a token itself. A probe is answered even on a spare place, see
// [query.Places]. A heavy page waits for its turn, see turns. Only inference has no page: of
// tensors, or of texts if text is set.
type route struct {
	post, body, open, probe, heavy bool
	page                           func(p *pages, ctx *fasthttp.RequestCtx, s *query.Service)
	text                           *textRoute
}

// fixedRoutes are the paths without a model name. No service can be named "stats", see
// [config.Config.Validate].
var fixedRoutes = map[string]route{
	"/v2":                  {page: (*pages).server},
	"/v2/":                 {page: (*pages).server},
	"/v2/health/live":      {open: true, probe: true, page: (*pages).live},
	"/healthz":             {open: true, probe: true, page: (*pages).live}, // the customary path in Kubernetes
	"/v2/health/ready":     {open: true, probe: true, page: (*pages).ready},
	"/v2/models/stats":     {heavy: true, page: (*pages).allStatistics},
	"/v2/repository/index": {post: true, body: true, page: (*pages).index},
	"/overlapd/status":     {heavy: true, page: (*pages).overviewPage},
	metricsPath:            {heavy: true, page: (*pages).answerMetrics},
	"/overlapd/timeline":   {heavy: true, page: (*pages).answerTimeline},
	"/overlapd/history":    {heavy: true, page: (*pages).answerHistory},
	"/overlapd/events":     {page: (*pages).answerEvents},
	"/overlapd/queries":    {heavy: true, page: (*pages).answerQueries},
	"/overlapd/load":       {page: (*pages).answerLoad},
	"/":                    {open: true, page: (*pages).answerDashboard},
	"/v1/models":           {page: (*pages).textModels},
	"/v1/embeddings":       {post: true, text: &embeddingsRoute},
	"/v1/rerank":           {post: true, text: &rerankRoute},
	"/v2/rerank":           {post: true, text: &rerankRoute}, // Cohere's path
}

// modelRoutes are the suffixes behind the name and version of a model.
var modelRoutes = map[string]route{
	"":        {page: (*pages).metadata},
	"/ready":  {probe: true, page: (*pages).modelReady},
	"/config": {page: (*pages).config},
	"/stats":  {page: (*pages).statistics},
	"/infer":  {post: true},
}

// repositoryRoutes are the suffixes behind the name of a model in the repository. The model
// need not be known yet.
var repositoryRoutes = map[string]route{
	"load":   {post: true, body: true, page: (*pages).load},
	"unload": {post: true, body: true, page: (*pages).unload},
}

// metricsPath needs no token if the configuration says so.
const metricsPath = "/metrics"

var (
	modelsPrefix     = []byte("/v2/models/")
	textModelsPrefix = []byte("/v1/models/")
	versionsPrefix   = []byte("/versions/")
)

// gate decides which requests are answered. It finds the route and rejects requests without
// a valid token. With a nil access it lets everybody in.
type gate struct {
	queries *query.Server
	access  *access.Access

	// most is the largest body of an inference request in bytes.
	most int64

	// openMetrics is set if the metrics need no token.
	openMetrics bool

	// hosts are the names allowed in Host and Origin.
	hosts map[string]struct{}
}

// Errors of the gate.
var (
	errNothing     = query.NotFound("there is nothing at this path")
	errForeignHost = &query.Error{Status: http.StatusForbidden, Reason: query.ReasonForbidden,
		Message: "this Host is not allowed; add it to limits.hosts"}
	errForeignOrigin = &query.Error{Status: http.StatusForbidden, Reason: query.ReasonForbidden,
		Message: "this Origin is not allowed; add it to limits.hosts"}
)

// hostSet returns the names allowed in Host and Origin, in lower case and without a port.
func hostSet(names []string) map[string]struct{} {
	set := map[string]struct{}{"localhost": {}, "127.0.0.1": {}, "::1": {}}
	for _, n := range names {
		set[strings.ToLower(n)] = struct{}{}
	}
	return set
}

// check rejects requests before they are interpreted: those that two parsers could read
// differently (request smuggling), and, on loopback, those that a web page sent by
// resolving its own name to this host (DNS rebinding).
func (g *gate) check(ctx *fasthttp.RequestCtx) *query.Error {
	if err := misread(ctx); err != nil {
		closeAfter(ctx)
		return err
	}
	h := &ctx.Request.Header
	if len(h.Host()) == 0 && h.IsHTTP11() {
		return query.Invalid("the Host header is missing")
	}
	// The host of an absolute target takes precedence over the Host header (RFC 9112,
	// section 3.2.2).
	host := ctx.URI().Host()
	c, ok := ctx.Conn().(*conn)
	if ok && !c.asked {
		c.asked = true
		c.place.Asked()
	}
	// A loopback listener is guarded because any page in a local browser can reach it.
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

// misread rejects what fasthttp accepts and another server could read differently, by RFC
// 9112 (sections 2.6, 3.2.2 and 6.1) and RFC 9110 (section 5.3).
func misread(ctx *fasthttp.RequestCtx) *query.Error {
	h := &ctx.Request.Header
	if !bytes.HasPrefix(h.Protocol(), []byte("HTTP/1.")) {
		return &query.Error{Status: http.StatusHTTPVersionNotSupported, Reason: query.ReasonInvalid,
			Message: "the request is " + string(h.Protocol()) + ": use HTTP/1.1"}
	}
	chunked := h.ContentLength() == -1
	switch {
	case bareLF(h.RawHeaders()):
		return query.Invalid("a header line ends with a line feed only: it must end with a carriage return and a line feed")
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

// Browsers omit Origin for images and the like, but send where a request was made from and
// what for. Links to the daemon are allowed.
const (
	headerFetchSite = "Sec-Fetch-Site"
	headerFetchMode = "Sec-Fetch-Mode"
)

// ours reports whether a host, with or without a port, is an allowed name.
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

// bareLF reports whether a line of a raw header ends without a carriage return. Another
// server may take it for a part of one line (RFC 9112, section 2.2).
func bareLF(raw []byte) bool {
	for line := range bytes.Lines(raw) {
		if !bytes.HasSuffix(line, []byte("\r\n")) {
			return true
		}
	}
	return false
}

// hasHeader reports whether a raw header has a line with the given name in lower case.
func hasHeader(raw []byte, name string) bool {
	for line := range bytes.Lines(raw) {
		key, _, ok := bytes.Cut(line, []byte{':'})
		if ok && strings.EqualFold(string(bytes.TrimSpace(key)), name) {
			return true
		}
	}
	return false
}

// Errors for requests without a valid token. Neither tells whether the path exists.
var (
	errNoToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "this daemon requires a token: send the header Authorization: Bearer TOKEN, with a token of its access.token_file"}
	errWrongToken = &query.Error{Status: http.StatusUnauthorized, Reason: query.ReasonUnauthorized,
		Message: "the token of this request is not valid: it may have been replaced in access.token_file"}
)

// decide returns the route and service of a request, or an error if the request is not
// allowed. Every request passes here before anything is done, so that tokens are checked in
// one place. Unknown paths need a token too: otherwise anyone could learn which paths
// exist.
func (g *gate) decide(ctx *fasthttp.RequestCtx) (route, *query.Service, *query.Error) {
	if err := g.check(ctx); err != nil {
		return route{}, nil, err
	}
	r, s, err := g.judge(&ctx.Request.Header, ctx.URI().PathOriginal())
	if c, ok := ctx.Conn().(*conn); ok && c.place.Spare {
		ctx.SetConnectionClose()
		if err == nil && !r.probe {
			err = query.ErrConnections
			c.place.Leave() // a probe may need it before this response is sent
		}
	}
	if err != nil && err.Status == http.StatusMethodNotAllowed {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, r.methods())
	}
	return r, s, err
}

// judge makes the part of the decision that depends on the header alone. A missing token
// takes precedence over any other error.
func (g *gate) judge(h *fasthttp.RequestHeader, path []byte) (route, *query.Service, *query.Error) {
	r, s, err := g.find(path)
	if err == nil {
		err = r.takes(h)
	}
	if err == nil && r.page == nil && int64(h.ContentLength()) > g.most {
		err = errBodyTooLarge(g.most)
	}
	// The error found so far is returned only to clients that may ask.
	sent := h.Peek(fasthttp.HeaderAuthorization)
	switch {
	case r.open, g.access.Allows(sent):
		return r, s, err
	case len(sent) == 0:
		return r, s, errNoToken
	}
	return r, s, errWrongToken
}

// early rejects a request by its header, before its body is read. fasthttp reads the start
// of a body before it calls Handle, unless the client asks for permission to send it. So
// early adds that request, and Endpoint.expect rejects it.
func (g *gate) early(h *fasthttp.RequestHeader) (unchanged fasthttp.RequestConfig) {
	if h.ContentLength() > 0 {
		if _, _, err := g.judge(h, pathOf(h.RequestURI())); err != nil {
			h.Set(fasthttp.HeaderExpect, "100-continue")
		}
	}
	return unchanged
}

// pathOf returns the path of a request target as it was sent, without the query.
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

// methods returns the methods of a route, for the Allow header.
func (r route) methods() string {
	if r.post {
		return "POST"
	}
	return "GET, HEAD"
}

// takes returns an error if the route does not take the method of the request.
func (r route) takes(h *fasthttp.RequestHeader) *query.Error {
	if r.post && h.IsPost() || !r.post && (h.IsGet() || h.IsHead()) {
		return nil
	}
	return &query.Error{Status: http.StatusMethodNotAllowed, Reason: query.ReasonMethod, Message: "the allowed methods are " + r.methods()}
}

// find returns the route of a path, and its service. Paths are compared as they were sent:
// no name that the configuration allows needs escaping, so a path with a percent sign, ".."
// or an empty element does not exist.
func (g *gate) find(path []byte) (route, *query.Service, *query.Error) {
	if r, ok := fixedRoutes[string(path)]; ok {
		r.open = r.open || g.openMetrics && string(path) == metricsPath
		return r, nil, nil
	}
	if name, ok := bytes.CutPrefix(path, textModelsPrefix); ok {
		s, err := g.queries.Find(name, nil)
		return route{page: (*pages).textModel}, s, err
	}
	if name, change := splitChange(path); len(name) > 0 {
		if r, ok := repositoryRoutes[string(change)]; ok {
			return r, nil, nil
		}
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

// nothing returns the error for a path without a route.
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

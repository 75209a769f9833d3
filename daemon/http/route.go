package http

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/query"
)

// routeKind is one of the things that can be asked of the endpoint.
type routeKind int

const (
	routeServer routeKind = iota
	routeLive
	routeReady
	routeMetadata
	routeModelReady
	routeModelConfig
	routeModelStats
	routeAllStats
	routeIndex
	routeOverview
	routeMetrics
	routeTimeline
	routeEvents
	routeQueries
	routeDashboard
	routeInfer
)

// route is what a request asks for.
type route struct {
	kind    routeKind
	service *query.Service
}

// fixedRoutes are the paths without a model in them. A service cannot be
// named "stats", see [Config.Validate].
var fixedRoutes = map[string]routeKind{
	"/v2":                  routeServer,
	"/v2/":                 routeServer,
	"/v2/health/live":      routeLive,
	"/v2/health/ready":     routeReady,
	"/v2/models/stats":     routeAllStats,
	"/v2/repository/index": routeIndex,
	"/overlapd/status":     routeOverview,
	"/metrics":             routeMetrics,
	"/overlapd/timeline":   routeTimeline,
	"/overlapd/events":     routeEvents,
	"/overlapd/queries":    routeQueries,
	"/":                    routeDashboard,
}

// modelRoutes are what may follow the name and version of a model.
var modelRoutes = map[string]routeKind{
	"":        routeMetadata,
	"/ready":  routeModelReady,
	"/config": routeModelConfig,
	"/stats":  routeModelStats,
	"/infer":  routeInfer,
}

var (
	modelsPrefix   = []byte("/v2/models/")
	versionsPrefix = []byte("/versions/")
)

// route finds what a request asks for. Paths are compared as they were sent:
// no name that the configuration allows needs escaping, so a path with a
// percent sign, a ".." or an empty element is one that does not exist.
func (e *Endpoint) route(ctx *fasthttp.RequestCtx) (route, *query.Error) {
	r, err := e.find(ctx.URI().PathOriginal())
	if err != nil {
		return r, err
	}
	post := r.kind == routeInfer || r.kind == routeIndex
	if m := &ctx.Request.Header; post && m.IsPost() || !post && (m.IsGet() || m.IsHead()) {
		return r, nil
	}
	allow := "GET, HEAD"
	if post {
		allow = "POST"
	}
	ctx.Response.Header.Set(fasthttp.HeaderAllow, allow)
	return r, &query.Error{Status: http.StatusMethodNotAllowed, Reason: query.ReasonMethod, Message: "this takes " + allow}
}

func (e *Endpoint) find(path []byte) (route, *query.Error) {
	if kind, ok := fixedRoutes[string(path)]; ok {
		return route{kind: kind}, nil
	}
	rest, ok := bytes.CutPrefix(path, modelsPrefix)
	if !ok {
		return route{}, query.NotFound("there is nothing at this path")
	}
	name, tail := splitElement(rest)
	var version []byte
	if v, ok := bytes.CutPrefix(tail, versionsPrefix); ok {
		version, tail = splitElement(v)
	}
	kind, ok := modelRoutes[string(tail)]
	if !ok {
		return route{}, query.NotFound("there is nothing at this path")
	}
	s, err := e.queries.Find(name, version)
	return route{kind: kind, service: s}, err
}

// splitElement splits "name/tail" into "name" and "/tail".
func splitElement(path []byte) (element, tail []byte) {
	if i := bytes.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, nil
}

// answer answers everything but inference.
func (e *Endpoint) answer(ctx *fasthttp.RequestCtx, r route) {
	switch r.kind {
	case routeLive:
		e.answerHealth(ctx, e.queries.Live())
	case routeReady:
		e.answerHealth(ctx, e.queries.Ready())
	case routeModelReady:
		e.answerHealth(ctx, r.service.Ready())
	case routeServer:
		e.writeJSON(ctx, e.serverMetadata)
	case routeMetadata, routeModelConfig:
		sig := r.service.Signature()
		if sig == nil {
			writeError(ctx, query.ErrUnavailable)
			return
		}
		if r.kind == routeMetadata {
			e.writeJSON(ctx, appendMetadata(nil, r.service, sig))
		} else {
			e.writeJSON(ctx, appendModelConfig(nil, r.service, sig))
		}
	case routeModelStats:
		e.writeJSON(ctx, appendStats(nil, r.service))
	case routeAllStats:
		e.writeJSON(ctx, appendStats(nil, e.queries.Services()...))
	case routeOverview:
		e.answerOverview(ctx)
	case routeMetrics:
		e.answerMetrics(ctx)
	case routeTimeline:
		e.answerTimeline(ctx)
	case routeQueries:
		e.answerQueries(ctx)
	case routeEvents:
		e.answerEvents(ctx)
	case routeDashboard:
		e.answerDashboard(ctx)
	case routeIndex:
		e.writeJSON(ctx, appendIndex(nil, e.queries.Services()))
	}
}

func (e *Endpoint) answerOverview(ctx *fasthttp.RequestCtx) {
	text, ok := e.overview()
	if !ok {
		writeError(ctx, query.ErrUnavailable)
		return
	}
	e.writeJSON(ctx, text)
}

// overview returns the status as JSON, or false if the scheduler goroutine does
// not publish one.
func (e *Endpoint) overview() ([]byte, bool) {
	s, ok := e.host.Status()
	if !ok {
		return nil, false
	}
	all := *s
	if e.notStored != nil {
		all.NotStored = e.notStored()
	}
	text, err := json.Marshal(&all)
	return text, err == nil
}

func (e *Endpoint) writeJSON(ctx *fasthttp.RequestCtx, b []byte) {
	ctx.SetContentType(contentJSON)
	e.tell(ctx, b)
}

// answerHealth says by its status alone whether something is well; the body
// of a failure is an error like any other.
func (e *Endpoint) answerHealth(ctx *fasthttp.RequestCtx, well bool) {
	if !well {
		writeError(ctx, query.ErrUnavailable)
		return
	}
	e.writeJSON(ctx, nil)
}

// answerMetrics answers a scrape.
func (e *Endpoint) answerMetrics(ctx *fasthttp.RequestCtx) {
	if e.metrics == nil {
		writeError(ctx, query.NotFound("there are no metrics: the configuration has metrics = false"))
		return
	}
	text, err := e.metrics()
	if err != nil {
		e.log.Error().Err(err).Msg("the metrics cannot be told")
		writeError(ctx, query.ErrInternal)
		return
	}
	ctx.SetContentType(metrics.ContentType)
	e.send(ctx, e.queries.Memory.Holding(text))
}

package daemon

import (
	"bytes"
	"net/http"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/valyala/fasthttp"
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
	version := []byte(query.ModelVersion)
	if v, ok := bytes.CutPrefix(tail, versionsPrefix); ok {
		version, tail = splitElement(v)
	}
	kind, ok := modelRoutes[string(tail)]
	if !ok {
		return route{}, query.NotFound("there is nothing at this path")
	}
	s := e.backend.Service(name)
	if s == nil {
		return route{}, query.NotFound("unknown model %q", query.Cut(name))
	}
	if string(version) != query.ModelVersion {
		return route{}, query.NotFound("model %q has only version %s", s.Name, query.ModelVersion)
	}
	return route{kind: kind, service: s}, nil
}

// splitElement splits "name/tail" into "name" and "/tail".
func splitElement(path []byte) (element, tail []byte) {
	if i := bytes.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, nil
}

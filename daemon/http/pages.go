package http

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	page "github.com/overlapd/overlapd/daemon/observe/dashboard"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
)

var (
	errWatchers     = query.Unavailable(query.ReasonWatchers, "too many clients watch this daemon: close a dashboard")
	errSince        = query.Invalid("since must be the number of a round: the next of the answer before, or 0")
	errQueriesSince = query.Invalid("since must be a number of queries: the next of the answer before, or 0")
)

// pages answers every request but those to infer: what the protocol asks about
// services, and what the daemon publishes of itself.
type pages struct {
	queries   *query.Server
	bodies    *bodies
	access    *access.Access
	status    func() (*status.Status, bool)
	timelines func() []*timeline.Ring
	metrics   func() ([]byte, error)
	watchers  watchers
}

// answer answers everything but inference.
func (p *pages) answer(ctx *fasthttp.RequestCtx, r route) {
	switch r.kind {
	case routeLive:
		p.answerHealth(ctx, p.queries.Live())
	case routeReady:
		p.answerHealth(ctx, p.queries.Ready())
	case routeModelReady:
		p.answerHealth(ctx, r.service.Ready())
	case routeServer:
		p.writeJSON(ctx, serverMetadata{query.DaemonName, p.queries.Version, p.queries.Extensions()})
	case routeMetadata, routeModelConfig:
		sig := r.service.Signature()
		if sig == nil {
			writeError(ctx, query.ErrUnavailable)
			return
		}
		if r.kind == routeMetadata {
			p.writeJSON(ctx, metadataOf(r.service, sig))
		} else {
			p.writeJSON(ctx, configOf(r.service, sig))
		}
	case routeModelStats:
		p.writeJSON(ctx, statsOf(r.service))
	case routeAllStats:
		p.writeJSON(ctx, statsOf(p.queries.Services()...))
	case routeOverview:
		p.overviewPage(ctx)
	case routeMetrics:
		p.answerMetrics(ctx)
	case routeTimeline:
		p.answerTimeline(ctx)
	case routeQueries:
		p.answerQueries(ctx)
	case routeEvents:
		p.answerEvents(ctx)
	case routeDashboard:
		p.answerDashboard(ctx)
	case routeIndex:
		p.writeJSON(ctx, indexOf(p.queries.Services()))
	}
}

func (p *pages) overviewPage(ctx *fasthttp.RequestCtx) {
	text, ok := p.overview()
	if !ok {
		writeError(ctx, query.ErrUnavailable)
		return
	}
	p.writeText(ctx, text)
}

// overview returns the status as JSON, or false if the scheduler goroutine does
// not publish one.
func (p *pages) overview() ([]byte, bool) {
	s, ok := p.status()
	if !ok {
		return nil, false
	}
	text, err := json.Marshal(s)
	return text, err == nil
}

// writeJSON answers with a value as JSON, in which every character that needs no
// escape stands for itself.
func (p *pages) writeJSON(ctx *fasthttp.RequestCtx, v any) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		writeError(ctx, query.ErrInternal)
		return
	}
	p.writeText(ctx, bytes.TrimSuffix(text.Bytes(), []byte{'\n'}))
}

// writeText answers with JSON that is written already, or with nothing.
func (p *pages) writeText(ctx *fasthttp.RequestCtx, text []byte) {
	ctx.SetContentType(contentJSON)
	p.bodies.text(ctx, text)
}

// answerHealth answers by its status alone whether something is well; the body
// of a failure is an error like any other.
func (p *pages) answerHealth(ctx *fasthttp.RequestCtx, well bool) {
	if !well {
		writeError(ctx, query.ErrUnavailable)
		return
	}
	p.writeText(ctx, nil)
}

// answerMetrics answers a scrape.
func (p *pages) answerMetrics(ctx *fasthttp.RequestCtx) {
	if p.metrics == nil {
		writeError(ctx, query.NotFound("there are no metrics: the configuration has metrics = false"))
		return
	}
	text, err := p.metrics()
	if err != nil {
		p.queries.Log.Error().Err(err).Msg("the metrics cannot be written")
		writeError(ctx, query.ErrInternal)
		return
	}
	ctx.SetContentType(metrics.ContentType)
	p.bodies.send(ctx, p.bodies.memory.Holding(text))
}

// ringOf returns the timeline that a request asks for: that of the first
// instance, unless it names another.
func (p *pages) ringOf(ctx *fasthttp.RequestCtx) (*timeline.Ring, *query.Error) {
	rings, n := p.timelines(), 0
	if v := ctx.QueryArgs().Peek("instance"); v != nil {
		var err error
		if n, err = strconv.Atoi(string(v)); err != nil || n < 0 || n >= len(rings) {
			return nil, query.Invalid("instance must be a number from 0 to %d", len(rings)-1)
		}
	}
	return rings[n], nil
}

// sinceOf returns after what a request asks to be told, the latest if it does
// not say.
func sinceOf(ctx *fasthttp.RequestCtx) (since uint64, ok bool) {
	v := ctx.QueryArgs().Peek("since")
	if v == nil {
		return timeline.Latest, true
	}
	since, err := strconv.ParseUint(string(v), 10, 63)
	return since, err == nil
}

// answerTimeline answers with the rounds after one, or with the latest ones.
func (p *pages) answerTimeline(ctx *fasthttp.RequestCtx) {
	ring, fault := p.ringOf(ctx)
	if fault != nil {
		writeError(ctx, fault)
		return
	}
	since, ok := sinceOf(ctx)
	if !ok {
		writeError(ctx, errSince)
		return
	}
	p.writeJSON(ctx, ring.Read(since, timeline.PageRounds, nil))
}

// answerDashboard sends the page.
func (p *pages) answerDashboard(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	h.Set("Content-Security-Policy", page.Policy())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set(fasthttp.HeaderCacheControl, "no-cache")
	ctx.SetContentType("text/html; charset=utf-8")
	p.bodies.text(ctx, page.Page())
}

// answerEvents sends the events for as long as the client reads them and the
// daemon serves.
func (p *pages) answerEvents(ctx *fasthttp.RequestCtx) {
	ring, fault := p.ringOf(ctx)
	if fault != nil {
		writeError(ctx, fault)
		return
	}
	if p.watchers.count.Add(1) > maxWatchers {
		p.watchers.count.Add(-1)
		writeError(ctx, errWatchers)
		return
	}
	ctx.SetContentType("text/event-stream")
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	ctx.Response.Header.Set("X-Accel-Buffering", "no")
	ctx.SetConnectionClose()
	if ctx.IsHead() {
		p.watchers.count.Add(-1)
		return
	}
	s := &events{watchers: &p.watchers, ring: ring, stopped: ctx.Done(), since: timeline.Latest}
	s.conn, _ = ctx.Conn().(*conn)
	authorization := bytes.Clone(ctx.Request.Header.Peek(fasthttp.HeaderAuthorization))
	s.allowed = func() bool { return p.access.Allows(authorization) }
	ctx.Response.SetBodyStream(s, -1)
}

// answerQueries answers with the queries that ended after so many, or with how
// many there were.
func (p *pages) answerQueries(ctx *fasthttp.RequestCtx) {
	ring, fault := p.ringOf(ctx)
	if fault != nil {
		writeError(ctx, fault)
		return
	}
	since, ok := sinceOf(ctx)
	if !ok {
		writeError(ctx, errQueriesSince)
		return
	}
	p.writeJSON(ctx, ring.ReadQueries(since))
}

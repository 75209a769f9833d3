package http

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/access"
	page "github.com/overlapd/overlapd/daemon/observe/dashboard"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/daemon/text"
)

// Errors of the pages. A 503 here never means that inference is unavailable.
var (
	errWatchers     = query.Unavailable(query.ReasonWatchers, "too many clients watch this daemon: close a dashboard")
	errSince        = query.Invalid("since must be the number of a round: next of the previous answer, or 0")
	errQueriesSince = query.Invalid("since must be a number of queries: next of the previous answer, or 0")
)

// pageBytes limits the memory of pages that clients have not read yet, as a part of
// limits.memory_bytes. It has a limit of its own so that a daemon whose memory is used up
// by queries can still be observed.
const pageBytes = 64 << 20

// Options configures an endpoint besides the configuration file. Access may be nil, which
// lets everybody in. Metrics may be nil, which disables /metrics.
type Options struct {
	Queries *query.Server
	Access  *access.Access

	// Status returns the current status. It returns false if the scheduler goroutine has
	// ended or does not respond.
	Status func() (*status.Status, bool)

	// Timeline records the last rounds and queries.
	Timeline *timeline.Ring

	// Metrics returns the response to /metrics. It needs no token if OpenMetrics is set.
	Metrics     func() ([]byte, error)
	OpenMetrics bool

	// Texts answers requests of texts.
	Texts *text.Server

	// Lasting is set if the listening socket outlives the endpoint, as with systemd's.
	// Clients cannot see that the endpoint stops, so Shutdown first serves those that are
	// connected.
	Lasting bool
}

// pages answers every request but inference: the metadata of the protocol, and what the
// daemon publishes about itself.
type pages struct {
	Options
	bodies *bodies

	// watchers counts the clients that stream events.
	watchers atomic.Int32
	heavy    turns
}

const (
	// heavyRest is the pause after a heavy page, as a multiple of the time it took. Heavy
	// pages thus take a fifth of a core at most, however many clients ask, and leave the
	// rest to queries. The pause is limited to mostRest.
	heavyRest = 4
	mostRest  = 100 * time.Millisecond

	// heavyWait is how long a request waits for its turn before it is rejected.
	heavyWait = 2 * time.Second
)

var errCrowded = query.Unavailable(query.ReasonWatchers, "too many clients request pages of this kind: request them less often")

// turns serializes heavy pages, with a pause after each.
type turns chan struct{}

// take waits for a turn. It returns false if there is none within heavyWait.
func (t turns) take() bool {
	late := time.NewTimer(heavyWait)
	defer late.Stop()
	select {
	case t <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

// give ends a turn. The next one starts after a pause that depends on took.
func (t turns) give(took time.Duration) {
	time.AfterFunc(min(heavyRest*took, mostRest), func() { <-t })
}

// server answers GET /v2.
func (p *pages) server(ctx *fasthttp.RequestCtx, _ *query.Service) {
	p.writeJSON(ctx, p.Queries.Metadata())
}

// live answers the liveness check. The daemon is live as long as its scheduler goroutine
// makes progress.
func (p *pages) live(ctx *fasthttp.RequestCtx, _ *query.Service) {
	p.health(ctx, map[string]any{"live": p.Queries.Live()}, query.ErrUnavailable)
}

// ready answers the readiness check of the daemon.
func (p *pages) ready(ctx *fasthttp.RequestCtx, _ *query.Service) {
	err := p.Queries.NotReady()
	p.health(ctx, map[string]any{"ready": err == nil}, err)
}

// modelReady answers the readiness check of one service.
func (p *pages) modelReady(ctx *fasthttp.RequestCtx, s *query.Service) {
	p.health(ctx, map[string]any{"name": query.ModelOf(s.Name), "ready": s.Ready()}, s.NotReady())
}

func (p *pages) metadata(ctx *fasthttp.RequestCtx, s *query.Service) {
	p.describe(ctx, s, p.Queries.ModelMetadata)
}

func (p *pages) config(ctx *fasthttp.RequestCtx, s *query.Service) {
	p.describe(ctx, s, p.Queries.ModelConfig)
}

// describe answers with by's description of a service, or with an error while its model is
// unknown.
func (p *pages) describe(ctx *fasthttp.RequestCtx, s *query.Service, by func(*query.Service, *query.Signature) any) {
	sig, err := s.Known()
	if err != nil {
		writeError(ctx, err)
		return
	}
	p.writeJSON(ctx, by(s, sig))
}

// statistics answers with the statistics of a model, of all its versions unless the path
// names one.
func (p *pages) statistics(ctx *fasthttp.RequestCtx, s *query.Service) {
	list := []*query.Service{s}
	if !bytes.Contains(ctx.URI().PathOriginal(), versionsPrefix) {
		list = p.Queries.Versions(query.ModelOf(s.Name))
	}
	p.writeJSON(ctx, query.Statistics(list...))
}

// allStatistics answers with the statistics of all services. With many services this is a
// heavy page.
func (p *pages) allStatistics(ctx *fasthttp.RequestCtx, _ *query.Service) {
	p.writeJSON(ctx, query.Statistics(p.Queries.Services()...))
}

// overviewPage answers with the status of the whole daemon.
func (p *pages) overviewPage(ctx *fasthttp.RequestCtx, _ *query.Service) {
	text, ok := p.overview()
	if !ok {
		writeError(ctx, query.ErrUnavailable)
		return
	}
	p.writeText(ctx, text)
}

// overview returns the status as JSON, or false if the scheduler goroutine does not publish
// one.
func (p *pages) overview() ([]byte, bool) {
	s, ok := p.Status()
	if !ok {
		return nil, false
	}
	text, err := json.Marshal(s)
	return text, err == nil
}

// writeJSON answers with v as JSON. It does not escape <, > and &, which need no escape
// outside HTML.
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

// writeText answers with text, which is JSON already.
func (p *pages) writeText(ctx *fasthttp.RequestCtx, text []byte) {
	ctx.SetContentType(contentJSON)
	p.send(ctx, text, p.bodies.sendPlain)
}

// send answers with text, which others may hold too. It fails if pages that clients have
// not read yet have used up pageBytes.
func (p *pages) send(ctx *fasthttp.RequestCtx, text []byte, by func(*fasthttp.RequestCtx, *query.Body)) {
	b, err := p.bodies.memory.Holding(text)
	if err != nil {
		writeError(ctx, err)
		return
	}
	by(ctx, b)
}

// health answers a health check with fields that clients of the protocol read. If the
// status is bad, it has the status code and the message of err.
func (p *pages) health(ctx *fasthttp.RequestCtx, fields map[string]any, err *query.Error) {
	if fields["live"] == false || fields["ready"] == false {
		writeError(ctx, err)
		fields["error"], fields["reason"] = err.Message, err.Reason
	}
	p.writeJSON(ctx, fields)
}

// answerMetrics answers a scrape by Prometheus.
func (p *pages) answerMetrics(ctx *fasthttp.RequestCtx, _ *query.Service) {
	if p.Metrics == nil {
		writeError(ctx, query.NotFound("there are no metrics: the configuration has metrics = false"))
		return
	}
	text, err := p.Metrics()
	if err != nil {
		p.Queries.Log.Error().Err(err).Msg("the metrics cannot be written")
		writeError(ctx, query.ErrInternal)
		return
	}
	ctx.SetContentType(metrics.ContentType)
	p.send(ctx, text, p.bodies.send)
}

// answerSince answers with what read returns for the query parameter "since", or for the
// latest if it is missing. wrong is the error for a malformed number.
func (p *pages) answerSince(ctx *fasthttp.RequestCtx, wrong *query.Error, read func(r *timeline.Ring, since uint64) any) {
	since := uint64(timeline.Latest)
	if v := ctx.QueryArgs().Peek("since"); v != nil {
		var err error
		if since, err = strconv.ParseUint(string(v), 10, 63); err != nil {
			writeError(ctx, wrong)
			return
		}
	}
	p.writeJSON(ctx, read(p.Timeline, since))
}

// answerTimeline answers with the rounds after "since", or with the latest ones.
func (p *pages) answerTimeline(ctx *fasthttp.RequestCtx, _ *query.Service) {
	p.answerSince(ctx, errSince, func(r *timeline.Ring, since uint64) any { return r.Read(since, timeline.PageRounds, nil) })
}

// answerHistory answers with the history of the last twenty minutes.
func (p *pages) answerHistory(ctx *fasthttp.RequestCtx, _ *query.Service) {
	p.writeJSON(ctx, p.Timeline.History())
}

// answerLoad answers with the load. It reads what is published already, so it works even if
// the scheduler does not respond.
func (p *pages) answerLoad(ctx *fasthttp.RequestCtx, _ *query.Service) {
	p.writeJSON(ctx, p.Timeline.Load(p.Queries.Live()))
}

// answerDashboard answers with the dashboard page and headers that confine it to this
// daemon.
func (p *pages) answerDashboard(ctx *fasthttp.RequestCtx, _ *query.Service) {
	h := &ctx.Response.Header
	html, policy := page.Page()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set(fasthttp.HeaderCacheControl, "no-cache")
	ctx.SetContentType("text/html; charset=utf-8")
	p.send(ctx, []byte(html), p.bodies.send)
}

// answerEvents streams events until the client disconnects or the endpoint stops.
func (p *pages) answerEvents(ctx *fasthttp.RequestCtx, _ *query.Service) {
	if p.watchers.Add(1) > maxWatchers {
		p.watchers.Add(-1)
		writeError(ctx, errWatchers)
		return
	}
	ctx.SetContentType("text/event-stream")
	// Events are only meaningful while they happen.
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	// Tells nginx not to buffer the stream.
	ctx.Response.Header.Set("X-Accel-Buffering", "no")
	ctx.SetConnectionClose()
	if ctx.IsHead() {
		p.watchers.Add(-1)
		return
	}
	s := &events{pages: p, ring: p.Timeline, stopped: ctx.Done(), since: timeline.Latest}
	s.conn, _ = ctx.Conn().(*conn)
	// The token is checked again for each frame, because it may be replaced while the
	// stream is open. The header itself is only valid during the request.
	authorization := bytes.Clone(ctx.Request.Header.Peek(fasthttp.HeaderAuthorization))
	s.allowed = func() bool { return p.Access.Allows(authorization) }
	ctx.Response.SetBodyStream(s, -1)
}

// answerQueries answers with the queries that ended after "since", or with their current
// number.
func (p *pages) answerQueries(ctx *fasthttp.RequestCtx, _ *query.Service) {
	p.answerSince(ctx, errQueriesSince, func(r *timeline.Ring, since uint64) any { return r.ReadQueries(since) })
}

// textModelInfo describes a service that takes text, in OpenAI's form.
type textModelInfo struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// describeText describes a service as a model of OpenAI's. When a model was made is not known.
func describeText(s *query.Service) textModelInfo {
	return textModelInfo{ID: s.Name, Object: "model", OwnedBy: query.DaemonName}
}

// textModels answers with the services that take text.
func (p *pages) textModels(ctx *fasthttp.RequestCtx, _ *query.Service) {
	list := []textModelInfo{}
	for _, s := range p.Queries.Services() {
		if s.Text != nil {
			list = append(list, describeText(s))
		}
	}
	p.writeJSON(ctx, map[string]any{"object": "list", "data": list})
}

// textModel answers with one service that takes text.
func (p *pages) textModel(ctx *fasthttp.RequestCtx, s *query.Service) {
	if s.Text == nil {
		writeError(ctx, query.NotFound("model %q has no tokenizer", s.Name).Of("model"))
		return
	}
	p.writeJSON(ctx, describeText(s))
}

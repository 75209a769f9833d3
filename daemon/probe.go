package daemon

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/valyala/fasthttp"
)

// answer answers everything but inference.
func (e *Endpoint) answer(ctx *fasthttp.RequestCtx, r route) {
	switch r.kind {
	case routeLive:
		e.answerHealth(ctx, e.backend.Live())
	case routeReady:
		e.answerHealth(ctx, e.backend.Ready())
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
		e.writeJSON(ctx, appendStats(nil, e.backend.Services()...))
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
		e.writeJSON(ctx, appendIndex(nil, e.backend.Services()))
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

// overview returns the status as JSON, or false if the scheduler goroutine does not
// publish one.
func (e *Endpoint) overview() ([]byte, bool) {
	s, ok := e.backend.Status()
	if !ok {
		return nil, false
	}
	all := *s
	all.NotStored = e.storage.faults()
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

// protocolExtensions are the protocol's extensions that the endpoint has. Of
// model_repository it has the index.
var protocolExtensions = []string{
	"binary_tensor_data", "parameters", "schedule_policy", "model_configuration", "statistics", "model_repository",
}

func appendServerMetadata(b []byte, version string, extensions []string) []byte {
	b = appendString(append(b, `{"name":"`+serverName+`","version":`...), version)
	b = append(b, `,"extensions":[`...)
	for i, x := range extensions {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, x)
	}
	return append(b, `]}`...)
}

func appendIndex(b []byte, services []*query.Service) []byte {
	b = append(b, '[')
	for i, s := range services {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"name":`...), s.Name)
		if s.Ready() {
			b = append(b, `,"version":"`+query.ModelVersion+`","state":"READY","reason":""}`...)
		} else {
			b = append(b, `,"version":"`+query.ModelVersion+`","state":"UNAVAILABLE","reason":"`+query.ReasonLoading+`"}`...)
		}
	}
	return append(b, ']')
}

func appendStats(b []byte, services ...*query.Service) []byte {
	b = append(b, `{"model_stats":[`...)
	for i, s := range services {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCounts(appendString(append(b, `{"name":`...), s.Name), s.Stats.Counts())
	}
	return append(b, `]}`...)
}

// appendCounts writes every field that Triton's clients read: those of the
// response cache too, which overlapd does not have, and those of computing input
// and output, which are part of its compute_infer.
func appendCounts(b []byte, c query.Counts) []byte {
	last := int64(0)
	if !c.Last.IsZero() {
		last = c.Last.UnixMilli()
	}
	b = appendNumber(append(b, `,"version":"`+query.ModelVersion+`"`...), "last_inference", uint64(last))
	b = appendNumber(b, "inference_count", c.Queries)
	b = appendNumber(b, "execution_count", c.Executions)
	b = append(b, `,"inference_stats":{`...)
	copied := query.Total{Count: c.Compute.Count}
	for i, t := range []struct {
		name string
		query.Total
	}{
		{"success", c.Success}, {"fail", c.Fail}, {"queue", c.Queue},
		{"compute_input", copied}, {"compute_infer", c.Compute}, {"compute_output", copied},
		{"cache_hit", query.Total{}}, {"cache_miss", query.Total{}},
	} {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `"`+t.name+`":{"count":`...)
		b = strconv.AppendUint(b, t.Count, 10)
		b = append(strconv.AppendInt(append(b, `,"ns":`...), int64(t.Took), 10), '}')
	}
	return append(b, `},"batch_stats":[]}`...)
}

func appendNumber(b []byte, key string, v uint64) []byte {
	return strconv.AppendUint(append(b, `,"`+key+`":`...), v, 10)
}

// retrySeconds returns the value of Retry-After: whole seconds, at least one.
func retrySeconds(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Second-1)/time.Second), 1), 10)
}

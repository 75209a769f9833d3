package daemon

import (
	"encoding/json"
	"strconv"
	"time"

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
		sig := r.service.signature.Load()
		if sig == nil {
			writeError(ctx, ErrUnavailable)
			return
		}
		if r.kind == routeMetadata {
			e.writeJSON(ctx, sig.metadata)
		} else {
			e.writeJSON(ctx, sig.config)
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
		writeError(ctx, ErrUnavailable)
		return
	}
	e.writeJSON(ctx, text)
}

// overview returns the overview as JSON, or false if the loop does not tell. It
// is shared: it must not be changed.
func (e *Endpoint) overview() ([]byte, bool) { return e.shared.get(e.askOverview) }

func (e *Endpoint) askOverview() ([]byte, bool) {
	o, ok := e.backend.Overview()
	o.NotStored = e.storage.faults()
	text, err := json.Marshal(&o)
	return text, ok && err == nil
}

func (e *Endpoint) writeJSON(ctx *fasthttp.RequestCtx, b []byte) {
	ctx.SetContentType(contentJSON)
	e.tell(ctx, b)
}

// answerHealth says by its status alone whether something is well; the body
// of a failure is an error like any other.
func (e *Endpoint) answerHealth(ctx *fasthttp.RequestCtx, well bool) {
	if !well {
		writeError(ctx, ErrUnavailable)
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

func appendIndex(b []byte, services []*Service) []byte {
	b = append(b, '[')
	for i, s := range services {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"name":`...), s.Name)
		if s.Ready() {
			b = append(b, `,"version":"`+modelVersion+`","state":"READY","reason":""}`...)
		} else {
			b = append(b, `,"version":"`+modelVersion+`","state":"UNAVAILABLE","reason":"`+ReasonLoading+`"}`...)
		}
	}
	return append(b, ']')
}

func appendStats(b []byte, services ...*Service) []byte {
	b = append(b, `{"model_stats":[`...)
	for i, s := range services {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.Stats.append(appendString(append(b, `{"name":`...), s.Name))
	}
	return append(b, `]}`...)
}

// append writes every field that Triton's clients read, those of the response
// cache too, which overlapd does not have.
func (s *Stats) append(b []byte) []byte {
	b = appendNumber(append(b, `,"version":"`+modelVersion+`"`...), "last_inference", uint64(s.last.Load()))
	b = appendNumber(b, "inference_count", s.queries.Load())
	b = appendNumber(b, "execution_count", s.executions.Load())
	b = append(b, `,"inference_stats":{`...)
	var none total
	for i, t := range []struct {
		name string
		*total
	}{
		{"success", &s.success}, {"fail", &s.fail}, {"queue", &s.queue},
		{"compute_input", &s.computeInput}, {"compute_infer", &s.computeInfer}, {"compute_output", &s.computeOutput},
		{"cache_hit", &none}, {"cache_miss", &none},
	} {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `"`+t.name+`":{"count":`...)
		b = strconv.AppendUint(b, t.count.Load(), 10)
		b = append(strconv.AppendUint(append(b, `,"ns":`...), t.ns.Load(), 10), '}')
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

package load

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/internal/stats"
)

// busyTries is how often a test makes a short run in which a busy machine may
// not come to send anything.
const busyTries = 20

// short returns options for a run against s that a test can wait for.
func short(s *server, set func(*Options)) Options {
	o := DefaultOptions()
	o.URL, o.Services = s.url, []string{"a"}
	o.Duration, o.Warmup, o.Inputs = 150*time.Millisecond, 50*time.Millisecond, 3
	set(&o)
	return o
}

func mustRun(t *testing.T, o Options) *Result {
	t.Helper()
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func wantErrors(t *testing.T, l *measurement, want map[string]int64) {
	t.Helper()
	if !maps.Equal(l.Errors, want) {
		t.Errorf("errors %v of %d requests, want %v", l.Errors, l.Requests, want)
	}
}

// crowd is a handler that notes how many requests it had at once.
type crowd struct {
	now, most atomic.Int64
}

func (c *crowd) answer(ctx *fasthttp.RequestCtx) {
	n := c.now.Add(1)
	for {
		most := c.most.Load()
		if n <= most || c.most.CompareAndSwap(most, n) {
			break
		}
	}
	time.Sleep(time.Millisecond)
	c.now.Add(-1)
	answerOK(ctx)
}

func TestClosedLoopCountsEveryRequest(t *testing.T) {
	var c crowd
	s := serve(t, c.answer)
	res := mustRun(t, short(s, func(o *Options) { o.Connections = 4 }))
	if res.Requests == 0 || res.Requests+res.Warmup.Requests != s.infers.Load() {
		t.Errorf("%d requests and %d of the warm-up, but the server saw %d", res.Requests, res.Warmup.Requests, s.infers.Load())
	}
	wantErrors(t, &res.measurement, map[string]int64{})
	if most := c.most.Load(); most > 4 {
		t.Errorf("%d requests at once over 4 connections", most)
	}
	if res.Latency.P50 < 1 || res.Latency.Max < res.Latency.P999 || res.Throughput <= 0 {
		t.Errorf("latency %+v, throughput %g", res.Latency, res.Throughput)
	}
	if res.Device != "cpu" || res.Server != "overlapd test" || res.Seed != 1 {
		t.Errorf("device %q, server %q, seed %d", res.Device, res.Server, res.Seed)
	}
	if res.TargetMS != 50 || res.Goodput == nil || *res.Goodput > res.Throughput {
		t.Errorf("target %g ms, goodput %v: the configuration says 50 ms", res.TargetMS, res.Goodput)
	}
}

func TestOpenLoopSendsTheSchedule(t *testing.T) {
	s := serve(t, answerOK)
	o := short(s, func(o *Options) { o.Rate, o.Services = 1000, []string{"a", "b"} })
	res := mustRun(t, o)
	for i, svc := range res.Services {
		var warm, measured int64
		for _, due := range o.arrivalsOf(i) {
			if due < 0 {
				warm++
			} else {
				measured++
			}
		}
		if svc.Requests != measured || svc.Warmup.Requests != warm {
			t.Errorf("service %s: %d requests and %d of the warm-up, %d and %d were due",
				svc.Name, svc.Requests, svc.Warmup.Requests, measured, warm)
		}
	}
	if sum := res.Services[0].Requests + res.Services[1].Requests; res.Requests != sum {
		t.Errorf("%d requests, the services have %d", res.Requests, sum)
	}
	if res.Scenario != "open" || res.SendLag == nil {
		t.Errorf("scenario %s, send lag %v", res.Scenario, res.SendLag)
	}
}

// A request that is due during a stall must show the rest of the stall,
// although the one connection has it wait.
func TestStallIsSeenByAllRequestsDue(t *testing.T) {
	const stall = 200 * time.Millisecond
	var n atomic.Int64
	s := serve(t, func(ctx *fasthttp.RequestCtx) {
		if n.Add(1) == 100 {
			time.Sleep(stall)
		}
		answerOK(ctx)
	})
	res := mustRun(t, short(s, func(o *Options) {
		o.Rate, o.Connections, o.Warmup, o.Duration = 500, 1, 0, 800*time.Millisecond
	}))
	// 75 requests are due, on average, in the first 150 ms of the stall.
	slow := int64(0)
	for _, b := range res.latency.hist.Distribution() {
		if b.From >= int64(50*time.Millisecond) {
			slow += b.Count
		}
	}
	if slow < 40 {
		t.Errorf("%d of %d requests took 50 ms or more, want at least 40", slow, res.Requests)
	}
	if res.Latency.Max < 200 || res.Latency.P99 < 100 {
		t.Errorf("max %g ms and p99 %g ms hide a stall of 200 ms", res.Latency.Max, res.Latency.P99)
	}
	if res.SendLag.Late < 40 || res.SendLag.LateBusy < 40 {
		t.Errorf("send lag %+v hides that the connection was busy", res.SendLag)
	}
}

func TestErrorsByReason(t *testing.T) {
	for reason, infer := range map[string]func(*fasthttp.RequestCtx){
		"queue_full": func(ctx *fasthttp.RequestCtx) {
			ctx.SetStatusCode(503)
			ctx.SetBodyString(`{"error":"the queue is full","reason":"queue_full"}`)
		},
		"http_503": func(ctx *fasthttp.RequestCtx) { ctx.Error("unavailable", 503) },
		"http_500": func(ctx *fasthttp.RequestCtx) { ctx.Error(`{"error":"x","reason":""}`, 500) },
		"http_400": func(ctx *fasthttp.RequestCtx) {
			ctx.Error(`{"reason":"`+strings.Repeat("x", maxReasonBytes+1)+`"}`, 400)
		},
		"connection": func(ctx *fasthttp.RequestCtx) { ctx.HijackSetNoResponse(true); ctx.Hijack(func(net.Conn) {}) },
		"timeout":    func(ctx *fasthttp.RequestCtx) { time.Sleep(60 * time.Millisecond); answerOK(ctx) },
	} {
		t.Run(reason, func(t *testing.T) {
			s := serve(t, infer)
			var res *Result
			for range busyTries {
				res = mustRun(t, short(s, func(o *Options) {
					o.Connections = 2
					if reason == "timeout" {
						o.Timeout = 20 * time.Millisecond
					}
				}))
				if res.Requests > 0 && res.Warmup.Requests > 0 {
					break
				}
			}
			if res.Requests == 0 || res.Throughput != 0 || *res.Goodput != 0 {
				t.Errorf("%d requests, throughput %g", res.Requests, res.Throughput)
			}
			wantErrors(t, &res.measurement, map[string]int64{reason: res.Requests})
			wantErrors(t, &measurement{Errors: res.Warmup.Errors}, map[string]int64{reason: res.Warmup.Requests})
		})
	}
}

func TestRequestsThatFindNoConnectionAreUnsent(t *testing.T) {
	s := serve(t, func(ctx *fasthttp.RequestCtx) { time.Sleep(100 * time.Millisecond); answerOK(ctx) })
	res := mustRun(t, short(s, func(o *Options) {
		o.Rate, o.Connections, o.Warmup, o.Timeout = 20_000, 1, 0, 30*time.Millisecond
	}))
	if res.Errors[unsent] == 0 || res.Errors["timeout"] == 0 || stats.Sum(res.Errors) != res.Requests {
		t.Errorf("errors %v of %d requests, want unsent and timeout only", res.Errors, res.Requests)
	}
}

func TestVerify(t *testing.T) {
	var n atomic.Int64
	s := serve(t, func(ctx *fasthttp.RequestCtx) {
		if n.Add(1)%10 == 0 {
			ctx.SetBodyString("other")
			return
		}
		ctx.SetBody(ctx.PostBody()[:len(ctx.PostBody())/2])
	})
	res := mustRun(t, short(s, func(o *Options) { o.Connections, o.Verify, o.Warmup = 2, true, 0 }))
	// Every tenth answer is wrong, and none of them is the first to its input.
	wantErrors(t, &res.measurement, map[string]int64{wrongAnswer: s.infers.Load() / 10})
	if res.Errors[wrongAnswer] == 0 {
		t.Errorf("no wrong answer among %d", res.Requests)
	}
}

func TestCancelKeepsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	var n atomic.Int64
	s := serve(t, func(c *fasthttp.RequestCtx) {
		if n.Add(1) == 50 {
			cancel()
		}
		if n.Load() >= 50 {
			<-release
		}
		answerOK(c)
	})
	defer close(release)
	res, err := Run(ctx, short(s, func(o *Options) { o.Connections, o.Warmup, o.Duration = 1, 0, time.Hour }))
	if err != nil {
		t.Fatal(err)
	}
	if !res.Interrupted || res.Requests != 49 || len(res.Errors) != 0 || res.Duration >= 3600 {
		t.Errorf("interrupted %t, %d requests in %g s with errors %v, want 49 and none",
			res.Interrupted, res.Requests, res.Duration, res.Errors)
	}
}

func TestCancelWakesAnOpenLoop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, answerOK)
	res, err := Run(ctx, short(s, func(o *Options) {
		o.Rate, o.Duration = 0.001, time.Hour
		o.Progress = func(string, float64) { cancel() }
	}))
	if err != nil || !res.Interrupted {
		t.Errorf("interrupted %v, error %v", res, err)
	}
}

func TestRunRefuses(t *testing.T) {
	s := serve(t, answerOK)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + ln.Addr().String()
	ln.Close()
	for _, tc := range []struct {
		set  func(*Options)
		want error
	}{
		{func(o *Options) { o.URL = nobody }, errDaemon},
		{func(o *Options) { o.Services = []string{"c"} }, errService},
		{func(o *Options) { o.Batch = 0 }, errOptions},
		{func(o *Options) { o.SeqLen = 1 << 30 }, errInput},
	} {
		if _, err := Run(t.Context(), short(s, func(o *Options) { o.Connections = 1; tc.set(o) })); !errors.Is(err, tc.want) {
			t.Errorf("error %v, want %v", err, tc.want)
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(done, short(s, func(o *Options) { o.Connections = 1 })); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v of a cancelled run", err)
	}
}

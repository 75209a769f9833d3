package daemon

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// publishedBy returns what the daemon of a backend says about itself.
func publishedBy(b *backend) *published { return b.daemon.published() }

// metricLabels are all that a metric may have.
var metricLabels = []string{"service", "model", "version", "reason", "policy", "gpu_uuid", "device"}

// inboxOf returns how many messages wait for a loop that was asked for a status, and
// how many may.
func inboxOf(b *backend) (waiting, limit int) {
	s, _ := b.StatusWithin(0, false)
	return s.Inbox, s.InboxLimit
}

// scrape returns a fresh response to a scrape.
func scrape(t testing.TB, p *published) string {
	t.Helper()
	text, err := p.exporter("test", "overlap")()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// series returns the names and labels in a text, without values, but for those
// of the Go runtime.
func series(text string) (all []string) {
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go_") {
			all = append(all, name)
		}
	}
	return all
}

// tells fails the test unless a text has all of the lines.
func tells(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, " ")
			t.Errorf("it does not tell %s, but %s", line, regexp.MustCompile(regexp.QuoteMeta(name)+".*").FindString(text))
		}
	}
}

// A real daemon tells what clients have seen of it, by the names that
// perf_analyzer and dashboards of Triton look for and by our own.
func TestMetricsOfADaemon(t *testing.T) {
	began := time.Now()
	d := serveEmulated(t, emulatedConfig(t, nil))
	for i := range 6 {
		if status, text := d.infer(i%2, 1+i, 8); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
	}
	text, server := d.get("/metrics")
	if server != "overlapd (emulated)" {
		t.Errorf("Server: %s", server)
	}
	tells(t, text,
		`nv_inference_request_success{model="s0",version="1"} 3`,
		`nv_inference_count{model="s0",version="1"} 9`, // of 1, 3 and 5
		`nv_inference_exec_count{model="s1",version="1"} 3`,
		`nv_inference_request_failure{model="s0",reason="REJECTED",version="1"} 0`,
		`nv_inference_pending_request_count{model="s0",version="1"} 0`,
		`overlapd_info{policy="overlap",version="test"} 1`,
		`overlapd_service_ready{service="s1"} 1`,
		`overlapd_service_target_seconds{service="s1"} 60`,
		`overlapd_queries_accepted_total{service="s0"} 3`,
		`overlapd_queries_finished_total{service="s1"} 3`,
		`overlapd_deadline_misses_total{service="s1"} 0`,
		`overlapd_query_latency_seconds_count{service="s1"} 3`,
		`overlapd_query_latency_target_ratio_bucket{service="s1",le="1"} 3`,
		`overlapd_queue_limit{service="s0"} 256`,
		`overlapd_queue_oldest_age_seconds{service="s0"} 0`,
		`overlapd_rounds_total{device=""} 6`,
		`overlapd_round_seconds_count 6`,
		`overlapd_group_spans_sum 6`,
		`overlapd_prediction_margin_ratio_count 6`,
		`overlapd_dispatch_headroom_seconds_count 6`,
		`overlapd_solo_prediction_ratio_count 6`,
		`overlapd_predictor_serving 0`,
	)
	if strings.Contains(text, "nv_gpu_") {
		t.Error("it tells of a GPU without one")
	}
	if busy := valueOf(t, text, "overlapd_scheduler_busy_seconds_total"); busy <= 0 || busy > time.Since(began).Seconds() {
		t.Errorf("the scheduler goroutine was busy for %v s", busy)
	}
	if took := valueOf(t, text, `nv_inference_request_duration_us{model="s0",version="1"}`); took < 9*10*20 {
		t.Errorf("the requests took %v µs, less than the device", took)
	}
}

// valueOf returns the value of a series.
func valueOf(t *testing.T, text, name string) (v float64) {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+name+" ")
	if _, err := fmt.Sscan(rest, &v); !ok || err != nil {
		t.Fatalf("there is no %s: %v", name, err)
	}
	return v
}

// Queries without outputs are counted by reason, and for clients of Triton by Triton's
// reasons.
func TestMetricsOfFailures(t *testing.T) {
	b, f := startLoop(t, 1, func(c *config.Config) { c.Services[0].QueueLimit = 1 })
	c := mustSubmit(t, b, 0)
	f.Await()
	f.End(models.SpanFailed)
	wantError(t, answerOf(t, b, c), 500, query.ReasonModelFailed)
	running := mustSubmit(t, b, 0)
	f.Await()
	waiting, refused := mustSubmit(t, b, 0), mustSubmit(t, b, 0)
	wantError(t, answerOf(t, b, refused), 503, query.ReasonQueueFull)
	text := scrape(t, publishedBy(b))
	tells(t, text,
		`overlapd_queries_failed_total{reason="model_failed",service="s0"} 1`,
		`overlapd_queries_failed_total{reason="worker_lost",service="s0"} 0`,
		`overlapd_queries_refused_total{reason="queue_full",service="s0"} 1`,
		`overlapd_deadline_misses_total{service="s0"} 1`,
		`overlapd_queue_length{service="s0"} 1`,
	)
	if age := valueOf(t, text, `overlapd_queue_oldest_age_seconds{service="s0"}`); age <= 0 {
		t.Errorf("the query waits for %v s", age)
	}
	for _, c := range []*query.Call{running, waiting} {
		f.Await()
		f.End(models.SpanDone)
		isServed(t, b, c)
	}
}

// Nothing of a request becomes a label, whatever it holds.
func TestRequestsAddNoSeries(t *testing.T) {
	d := serveEmulated(t, emulatedConfig(t, nil))
	d.infer(0, 1, 0)
	before, _ := d.get("/metrics")
	for i := range 50 {
		d.infer(0, 1000+i, 0) // too large
		for _, path := range []string{fmt.Sprintf("/v2/models/none%d", i), fmt.Sprintf("/v2/models/s0/versions/%d", i+2), fmt.Sprintf("/metrics/%d", i), fmt.Sprintf("/%d", i)} {
			if r, err := http.Get(d.url(path)); err == nil {
				r.Body.Close()
			}
		}
		body := fmt.Sprintf(`{"id":"id%d","parameters":{"p%d":"v%d","priority":%d},"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[0,0,0,0]}]}`, i, i, i, i+1)
		if r, err := http.Post(d.url("/v2/models/s0/infer"), contentJSON, strings.NewReader(body)); err == nil {
			r.Body.Close()
		}
	}
	after := scrape(t, d.published())
	if want, got := series(before), series(after); !slices.Equal(want, got) {
		t.Errorf("%d series have become %d", len(want), len(got))
	}
	for _, name := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(after, -1) {
		if !slices.Contains(append(metricLabels, "le", "quantile"), name[1]) {
			t.Errorf("there is a label %s", name[1])
		}
	}
}

// A scrape of a loop that is stalled, or has ended, tells what it told last, and
// leaves one question behind at most.
func TestScrapeOfAStalledLoop(t *testing.T) {
	b, f := startLoop(t, 1, nil)
	p := publishedBy(b)
	finished := func() uint64 { return p.scrape().Status.Services[0].Finished }
	c := mustSubmit(t, b, 0)
	f.Await()
	f.End(models.SpanDone)
	isServed(t, b, c)
	if n := finished(); n != 1 {
		t.Fatalf("%d queries finished", n)
	}
	hold, held := make(chan struct{}), make(chan struct{})
	go b.Ask(func() { close(held); <-hold })
	<-held
	for range 3 {
		if s := p.scrape(); s.Status.Services[0].Finished != 1 || s.Status.Age <= 0 {
			t.Errorf("%d finished, %v ago", s.Status.Services[0].Finished, s.Status.Age)
		}
	}
	if n, _ := inboxOf(b); n != 1 {
		t.Errorf("%d questions wait", n)
	}
	close(hold)
	b.Ask(func() {})
	if last := p.scrape(); p.scrape().Status.At <= last.Status.At {
		t.Error("the loop goes on, and what it tells does not")
	}
	b.Close()
	if n := finished(); n != 1 {
		t.Errorf("a loop that has ended tells of %d", n)
	}
}

// Nor does a scrape wait for room in the inbox.
func TestScrapeOfAFullInbox(t *testing.T) {
	b, _ := startLoop(t, 1, nil)
	hold, held := make(chan struct{}), make(chan struct{})
	go b.Ask(func() { close(held); <-hold })
	<-held
	_, inboxLimit := inboxOf(b)
	for range inboxLimit {
		b.Services()[0].Backend.Cancel(new(query.Call)) // of whom the loop knows nothing
	}
	if s := publishedBy(b).scrape(); s.Status.Inbox != inboxLimit || s.Status.InboxLimit != inboxLimit {
		t.Errorf("%d messages of %d", s.Status.Inbox, s.Status.InboxLimit)
	}
	close(hold)
}

func TestMetricsOff(t *testing.T) {
	d := serveEmulated(t, emulatedConfig(t, func(c *config.Config) { c.Metrics = false }))
	if status, text := d.infer(0, 1, 0); status != http.StatusOK {
		t.Errorf("status %d: %s", status, text)
	}
	r, err := http.Get(d.url("/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusNotFound || d.recorder != nil {
		t.Errorf("status %d, recorder %v", r.StatusCode, d.recorder)
	}
}

// A round that failed or was stopped says nothing of predictions.
func TestMeteringOfFailedRounds(t *testing.T) {
	b, f := startLoop(t, 1, nil)
	c := mustSubmit(t, b, 0)
	f.Await()
	f.End(models.SpanFailed)
	wantError(t, answerOf(t, b, c), 500, query.ReasonModelFailed)
	tells(t, scrape(t, publishedBy(b)), `overlapd_round_seconds_count 1`, `overlapd_solo_prediction_ratio_count 0`, `overlapd_query_latency_seconds_count{service="s0"} 0`)
	f.Be(fakeworkers.Refusing, true)
	c = mustSubmit(t, b, 0)
	if err := answerOf(t, b, c); err == nil {
		t.Error("a round that cannot be sent has outputs")
	}
	tells(t, scrape(t, publishedBy(b)), `overlapd_rounds_total{device=""} 2`, `overlapd_round_seconds_count 1`)
}

// BenchmarkTold is how long a scrape waits for a status.
func BenchmarkTold(b *testing.B) {
	for _, services := range []int{2, 64} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			back := startInstant(b, services, nil)
			b.ReportAllocs()
			for b.Loop() {
				back.StatusWithin(scrapeTimeout, false)
			}
		})
	}
}

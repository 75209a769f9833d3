package metrics

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/status"
)

// apart returns the first line of overlapd's own in which two texts differ.
func apart(a, b string) (line string, same bool) {
	own := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return !strings.HasPrefix(l, "overlapd_") })
	}
	x, y := own(a), own(b)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return y[i], false
		}
	}
	return "", len(x) == len(y)
}

// foreign matches the naming rules that counters with Triton's names break.
var foreign = regexp.MustCompile(`^nv_inference_\w+ (counter metrics should have "_total" suffix|` +
	`metric names should not contain abbreviated units|non-histogram and non-summary metrics should not have "_count" suffix)$`)

// Names, units and helps are as Prometheus wants them, apart from those that
// Triton has chosen.
func TestLint(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(text(t, full(2)))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !foreign.MatchString(p.Metric + " " + p.Text) {
			t.Errorf("promlint about %s: %s", p.Metric, p.Text)
		}
	}
}

// The lint finds what is wrong, or the test above says nothing.
func TestLintFinds(t *testing.T) {
	for _, wrong := range []string{
		"# TYPE overlapd_x_ms gauge\noverlapd_x_ms 1\n",
		"# HELP overlapd_x X.\n# TYPE overlapd_x counter\noverlapd_x 1\n",
		"# HELP overlapd_x_hours X.\n# TYPE overlapd_x_hours gauge\noverlapd_x_hours 1\n",
	} {
		problems, err := promlint.New(strings.NewReader(wrong)).Lint()
		if err != nil || len(problems) == 0 || foreign.MatchString(problems[0].Metric+" "+problems[0].Text) {
			t.Errorf("%q: promlint found %v, %v, want a problem that is not exempt", wrong, problems, err)
		}
	}
}

// Helps are sentences, and no two metrics have one name.
func TestFamilies(t *testing.T) {
	seen := map[string]bool{}
	for i := range families {
		f := &families[i]
		if seen[f.name] || !strings.HasSuffix(f.help, ".") || strings.ToUpper(f.help[:1]) != f.help[:1] {
			t.Errorf("%s: the name must be unique, and the help a sentence: %q", f.name, f.help)
		}
		seen[f.name] = true
		for _, l := range f.labels {
			if !slices.Contains(labels, l) {
				t.Errorf("%s has the label %s", f.name, l)
			}
		}
	}
}

// Every family is told, once everything has happened, as what it is.
func TestEveryFamilyIsTold(t *testing.T) {
	told := parse(t, text(t, full(2)))
	for i := range families {
		f := &families[i]
		if m := told[f.name]; m == nil || len(m.Metric) == 0 || strings.ToLower(m.GetType().String()) != kinds[f.kind] || m.GetHelp() != f.help {
			t.Errorf("%s: exported as %v, want kind %s and help %q", f.name, m, kinds[f.kind], f.help)
		}
	}
}

// maxSeriesOfService is how many series one service has at most.
const maxSeriesOfService = 140

// The number of series is bounded by the number of services, and what is told
// of 64 is in proportion to what is told of one.
func TestCardinality(t *testing.T) {
	series := func(services int) (n int) {
		for line := range strings.Lines(text(t, full(services))) {
			if strings.HasPrefix(line, "overlapd_") || strings.HasPrefix(line, "nv_") {
				n++
			}
		}
		return n
	}
	none, one, all := series(0), series(1), series(64)
	if own := one - none; own > maxSeriesOfService || all != none+64*own {
		t.Errorf("%d series without services, %d with one, %d with 64; a service may have %d", none, one, all, maxSeriesOfService)
	}
}

func TestValues(t *testing.T) {
	s := full(1)
	everything(s.recorder)
	says(t, text(t, s),
		`nv_inference_request_success{model="s0",version="1"} 60`,
		`nv_inference_request_failure{model="s0",reason="CANCELED",version="1"} 2`,
		`nv_inference_count{model="s0",version="1"} 120`,
		`nv_inference_exec_count{model="s0",version="1"} 30`,
		`nv_inference_request_duration_us{model="s0",version="1"} 1500`,
		`nv_inference_pending_request_count{model="s0",version="1"} 3`,
		`overlapd_info{policy="overlap",version="1.2.3"} 1`,
		`overlapd_service_ready{service="s0"} 1`,
		`overlapd_service_target_seconds{service="s0"} 1`,
		`overlapd_queries_dropped_total{reason="cannot_finish",service="s0"} 4`,
		`overlapd_deadline_misses_total{service="s0"} 77`, // 5 late, 36 dropped, 36 failed
		`overlapd_queue_oldest_age_seconds{service="s0"} 2`,
		`overlapd_intermediate_bytes{service="s0"} 4096`,
		`overlapd_query_latency_seconds_bucket{service="s0",le="0.5"} 2`,
		`overlapd_query_latency_seconds_bucket{service="s0",le="0.02"} 0`,
		`overlapd_group_spans_sum 2`,
		`overlapd_overlap_gained_seconds_total 0.002`,
		`overlapd_merge_gained_seconds_total 0.003`,
		`overlapd_scheduler_busy_seconds_total 2.001`,
		`overlapd_scheduler_turns_total 2`,
		`overlapd_predictor_serving 1`,
		`overlapd_predictor_fallbacks_total{reason="queue_full"} 2`,
	)
}

// perf_analyzer finds readings of GPUs by these lines, at the start of one and
// with one label.
func TestReadingsForPerfAnalyzer(t *testing.T) {
	got := text(t, full(1))
	says(t, got, `nv_gpu_utilization{gpu_uuid="GPU-1"} 0.41`, `nv_gpu_power_usage{gpu_uuid="GPU-1"} 300`)
	for _, name := range []string{"nv_gpu_utilization", "nv_gpu_power_usage", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"} {
		if !regexp.MustCompile(`\n` + name + `\{gpu_uuid="[^"]*"\} [0-9.e+]+\n`).MatchString(got) {
			t.Errorf("%s is not told as perf_analyzer reads it", name)
		}
	}
}

// Without a GPU nothing is told of one, and of a MIG device only what it knows.
func TestReadingsThatAreMissing(t *testing.T) {
	s := full(1)
	g := cuda.Sample{UUID: "MIG-1"}
	g.Memory.Known, g.Memory.Value.Total = true, 10
	s.status.GPU = []gpu.Status{{Sample: &g}}
	got := text(t, s)
	says(t, got, `nv_gpu_memory_used_bytes{gpu_uuid="MIG-1"} 0`)
	if strings.Contains(got, "nv_gpu_utilization") || strings.Contains(got, "nv_gpu_power") {
		t.Error("it tells what is not known")
	}
	for _, none := range [][]gpu.Status{nil, {{}}} {
		s.status.GPU = none
		if strings.Contains(text(t, s), "nv_gpu_") {
			t.Error("it tells of a GPU that is not there")
		}
	}
}

// A name that Prometheus cannot have fails the scrape and nothing else.
func TestForeignName(t *testing.T) {
	s := full(1)
	s.status.Services[0].Name = "\xff"
	if b, err := exporterOf(s).Text(); err == nil {
		t.Errorf("no error: %.100s", b)
	}
}

// Of a pool, what is a device's own has its name, and what its predictors do is added up.
func TestPool(t *testing.T) {
	a := full(1)
	everything(a.recorder)
	a.status.Services[0].Replicas = []status.Replica{{Device: "left", Ready: true}, {Device: "right"}}
	a.status.Pool = []status.Device{
		{Name: "left", Rounds: 4, BusySeconds: 0.5},
		{Name: "right", Rounds: 3, BusySeconds: 0.25, Predictor: &status.Predictor{Unknown: 8, Fallbacks: status.Nonzero{"another": 9}}},
	}
	says(t, text(t, a),
		`overlapd_rounds_total{device="left"} 4`,
		`overlapd_rounds_total{device="right"} 3`,
		`overlapd_device_busy_seconds_total{device="right"} 0.25`,
		`overlapd_worker_ready{device="left",service="s0"} 1`,
		`overlapd_worker_ready{device="right",service="s0"} 0`,
		`overlapd_devices 1`,
		`overlapd_devices_demanded 0.5`,
		`overlapd_bad_ratio 0.25`,
		`overlapd_device_idle_ratio{device="left"} 0.75`,
		`overlapd_service_headroom_ratio{service="s0"} 0.3`,
		`overlapd_service_bad_ratio{service="s0"} 0.125`,
		`overlapd_service_device_seconds_total{service="s0"} 1.5`,
		`overlapd_predictor_serving 0`,
		`overlapd_predictor_unknown_total 9`,
		`overlapd_predictor_fallbacks_total{reason="queue_full"} 2`,
		`overlapd_predictor_fallbacks_total{reason="another"} 9`,
	)
}

// Scrapes of any number are answered with the same text while it is fresh.
func TestScrapesAreBounded(t *testing.T) {
	asked, now := 0, time.Duration(0)
	x := NewExporter("", "", new(Recorder), func() Scrape { asked++; return Scrape{Status: new(status.Status)} })
	x.now = func() time.Duration { return now }
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := x.Text(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	now = freshFor - 1
	first, _ := x.Text()
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	now = freshFor
	if again, err := x.Text(); asked != 2 || err != nil || &first[0] == &again[0] {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

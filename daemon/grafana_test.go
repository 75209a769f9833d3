package daemon

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
)

// dashboard is what a test looks at of a dashboard of Grafana.
type dashboard struct {
	Title      string
	Panels     []panel
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
}

type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr, LegendFormat string }
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	b, err := os.ReadFile("../docs/grafana/overlapd.json")
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	metricName = regexp.MustCompile(`\b(overlapd|nv|process|go)_[a-z0-9_]+`)
	labelUsed  = regexp.MustCompile(`([a-z_]+)=~?"|by \(([a-z_, ]+)\)|\{\{([a-z_]+)\}\}`)
	histogram  = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// atScrape are the labels that Prometheus adds.
var atScrape = []string{"instance", "job"}

// expressions returns what a dashboard asks Prometheus, panel by panel.
func (d *dashboard) expressions() map[string][]string {
	all := map[string][]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			all["variable "+v.Name] = []string{q["query"].(string)}
		}
	}
	return all
}

// scrapeOfEverything is a scrape of a daemon that serves, with a GPU.
func scrapeOfEverything(t *testing.T) string {
	t.Helper()
	d := serveEmulated(t, emulatedConfig(t, nil))
	d.infer(0, 1, 0)
	g := cuda.Sample{UUID: "GPU-1"}
	g.Utilization.Known, g.Memory.Known, g.Power.Known, g.PowerLimit.Known = true, true, true, true
	g.Utilization.Value.GPU = 41
	text, err := metrics.NewExporter("test", "overlap", d.recorder, func() metrics.Scrape {
		s := d.published().scrape()
		s.Status.GPU = []gpu.Status{{Sample: &g}}
		return s
	}).Text()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The dashboard asks for nothing that a daemon does not tell.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	told := map[string]bool{}
	for _, s := range series(scrapeOfEverything(t) + "go_goroutines 1\n") {
		name, _, _ := strings.Cut(s, "{")
		told[name] = true
	}
	told["go_goroutines"] = true // series leaves it out
	d := readDashboard(t)
	asked := 0
	for title, list := range d.expressions() {
		for _, expr := range list {
			names := metricName.FindAllString(expr, -1)
			if len(names) == 0 {
				t.Errorf("%s asks for no metric: %s", title, expr)
			}
			for _, name := range names {
				if asked++; !told[name] {
					t.Errorf("%s: there is no %s", title, name)
				}
			}
			if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
				t.Errorf("%s: a bracket is open: %s", title, expr)
			}
			checkLabels(t, title, expr)
		}
	}
	if asked < 50 {
		t.Errorf("only %d names were found", asked)
	}
}

func checkLabels(t *testing.T, title, expr string) {
	t.Helper()
	known := slices.Concat(metricLabels, atScrape, []string{"le"})
	for _, match := range labelUsed.FindAllStringSubmatch(expr, -1) {
		for _, label := range strings.Split(match[1]+match[2]+match[3], ", ") {
			if !slices.Contains(known, label) {
				t.Errorf("%s: there is no label %s", title, label)
			}
		}
	}
}

// Counters are asked for by their rates, and gauges are not.
func TestDashboardRates(t *testing.T) {
	d := readDashboard(t)
	rated := regexp.MustCompile(`(rate|increase)\((\w+)\{`)
	for title, list := range d.expressions() {
		for _, expr := range list {
			var rates []string
			for _, m := range rated.FindAllStringSubmatch(expr, -1) {
				rates = append(rates, m[2])
			}
			for _, name := range metricName.FindAllString(expr, -1) {
				counts := strings.HasSuffix(name, "_total") || histogram.MatchString(name)
				if counts != slices.Contains(rates, name) {
					t.Errorf("%s: %s: its rate is what counts, and of counters alone: %s", title, name, expr)
				}
			}
		}
	}
}

// Panels say what they show, do not cover each other, and come in the rows that
// people look for.
func TestDashboardPanels(t *testing.T) {
	d := readDashboard(t)
	var rows []string
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: its id is that of another", p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
		} else if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s: it does not say what it shows, or shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			checkLabels(t, p.Title, target.LegendFormat)
			if target.LegendFormat == "" {
				t.Errorf("%s: a line has no name", p.Title)
			}
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := cells[at]; other != "" || at[0] >= 24 {
					t.Errorf("%s lies over %s or beside the page", p.Title, other)
				}
				cells[at] = p.Title
			}
		}
	}
	want := []string{"Services", "Latency against target", "Misses and drops", "Queue", "Groups", "Predicted against measured", "Scheduler, workers, memory", "Scaling", "GPU"}
	if !slices.Equal(rows, want) {
		t.Errorf("its rows are %q, want %q", rows, want)
	}
}

// What Triton's own dashboard asks for is told, by its labels.
func TestMetricsForDashboardsOfTriton(t *testing.T) {
	text := scrapeOfEverything(t)
	tells(t, text, `nv_inference_request_success{model="s0",version="1"} 1`, `nv_inference_count{model="s0",version="1"} 1`, `nv_gpu_utilization{gpu_uuid="GPU-1"} 0.41`)
	for _, name := range []string{
		"nv_inference_request_success", "nv_inference_request_failure", "nv_inference_count", "nv_inference_exec_count",
		"nv_inference_request_duration_us", "nv_inference_queue_duration_us", "nv_inference_compute_infer_duration_us",
		"nv_gpu_power_usage", "nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes",
	} {
		if !strings.Contains(text, "\n"+name+"{") {
			t.Errorf("there is no %s", name)
		}
	}
}

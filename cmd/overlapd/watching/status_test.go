package watching

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/internal/report"
)

// TestStatusFits prints the tables of a status in terminals of some widths, with a name as
// long as names may be: no line of a table is wider.
func TestStatusFits(t *testing.T) {
	var s answers
	for _, name := range []string{"resnet50", strings.Repeat("long-name-", 12), "bert"} {
		m := modelStatus{Name: name, ExecutionCount: 123456}
		m.Stats.Success = total{123456, 1}
		m.Stats.Queue, m.Stats.Infer = total{1, 12_345_678}, total{1, 112_345_678}
		s.Models = append(s.Models, m)
		r := timeline.Service{Name: name, Target: 50 * time.Millisecond}
		r.Ended, r.P50, r.P99 = 256, 12_345_678, 112_345_678
		s.Recent = append(s.Recent, r)
		s.Overview.Services = append(s.Overview.Services, status.Service{Name: name, Ready: true, ResidentBytes: 1 << 34})
	}
	for width, wants := range map[int][]string{
		0:   {strings.Repeat("long-name-", 12), "MEMORY", "16384 MiB", "since the start", "FAILED OR DROPPED"},
		100: {"long-name-", "…", "MEMORY", "16384 MiB", "since the start", "FAILED OR DROPPED", "MEAN RUN"},
		60:  {"resnet50", "P99", "FAILED OR DROPPED"},
	} {
		d := s.document()
		d.Width = width
		var b strings.Builder
		if err := d.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%d columns: there is no %q in\n%s", width, want, b.String())
			}
		}
		for line := range strings.Lines(b.String()) {
			table := strings.Contains(line, "SERVICE") || strings.HasPrefix(line, "resnet50") || strings.HasPrefix(line, "long")
			if n := utf8.RuneCountInString(line) - 1; table && width > 0 && n > width {
				t.Errorf("%d columns: a line has %d: %s", width, n, line)
			}
		}
	}
}

func TestWriteGPUs(t *testing.T) {
	for name, tt := range map[string]struct{ overview, want string }{
		"none": {`{}`, ""},
		"a GPU": {`{"gpu": [{"device": "H", "uuid": "GPU-1", "services": ["a", "b"], "mps": {"phase": "running", "starts": 2, "server_pids": [7]},
			"sample": {"utilization": {"gpu_percent": 41}, "memory": {"total_bytes": 1073741824, "used_bytes": 1048576}, "power_watts": 300.4, "power_limit_watts": 700,
				"temperature_celsius": 61, "sm_clock_mhz": 1200, "max_sm_clock_mhz": 1980, "clock_reasons": "power limit"}}]}`,
			"\nH (GPU-1): a, b; MPS running, started 2 times; busy 41 % of the time; 1 of 1024 MiB used; 300 of 700 W; 61 °C; 1200 of 1980 MHz; CLOCK THROTTLED: power limit\n"},
		"an instance that tells little": {`{"gpu": [{"device": "H", "uuid": "MIG-1", "services": ["a"], "sample": {"utilization": null, "memory": null, "clock_reasons": "idle"}}]}`,
			"\nH (MIG-1): a\n"},
		"a cut": {`{"services": [{"name": "a", "cut": {"operators": 16, "reason": "it is cheap", "costs": []}}]}`,
			"\na is cut into 16 operators: it is cheap\n"},
		"faults": {`{"gpu": [{"device": "H", "uuid": "GPU-1", "services": ["a"], "mps": {"phase": "given up", "starts": 6, "fault": "it died"}, "fault": "the GPU is lost"}],
			"services": [{"name": "a", "fault": "no MPS"}, {"name": "b"}]}`,
			"\nH (GPU-1): a; MPS given up, started 6 times; it died; no readings: the GPU is lost\n\na has failed permanently: no MPS; fix the cause, then run: overlapd restart a\n"},
	} {
		var o status.Status
		if err := json.Unmarshal([]byte(tt.overview), &o); err != nil {
			t.Fatalf("%s: decoding the overview: %v", name, err)
		}
		var d report.Document
		addGPUs(&d, &o)
		var b strings.Builder
		if err := d.WriteText(&b); err != nil || b.String() != tt.want {
			t.Errorf("%s: %q, want %q", name, b.String(), tt.want)
		}
	}
}

func TestBrief(t *testing.T) {
	for of, want := range map[time.Duration]string{
		0: "0s", 12300 * time.Microsecond: "12ms", 1500 * time.Nanosecond: "2µs", 90 * time.Second: "1m30s", 2 * time.Minute: "2m",
		10 * time.Second: "10s", time.Hour: "1h", time.Hour + 30*time.Second: "1h0m30s", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m",
	} {
		if got := brief(of.Seconds()); got != want {
			t.Errorf("%v: %s, want %s", of, got, want)
		}
	}
}

func TestMeasuredText(t *testing.T) {
	for want, m := range map[string]status.Progress{
		"measured 0 of 20":                   {Total: 20},
		"measured 3 of 20, 45s left for all": {Done: 3, Total: 20, LeftSeconds: 45.2, LimitSeconds: 120},
	} {
		if got := measuredText(&m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestLoadingText(t *testing.T) {
	for want, l := range map[string]status.Loading{
		"bert has been loading its model (load 12 %) for 1m": {Service: "bert", Phase: "load", Done: 41, Total: 353, LoadSeconds: 60},
		"new has been loading its model (read) for 2s":       {Service: "new", Phase: "read", LoadSeconds: 2},
	} {
		if got := loadingText(&l); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What the predictor does not know is said with what to do.
func TestWriteOverviewOfUnknownServices(t *testing.T) {
	o := &status.Status{Policy: "overlap", Predictor: status.Predictor{
		Phase: "serving", Reason: "trained; it does not cover bert", UnknownServices: []string{"bert"}, Remedy: "restart overlapd",
	}}
	var d report.Document
	addOverview(&d, o)
	var b strings.Builder
	if err := d.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "bert: no predictions for groups") || !strings.Contains(b.String(), "restart overlapd\n") {
		t.Error(b.String())
	}
}

// The state of each service, why queries were lost, and what was saved lately.
func TestStatusText(t *testing.T) {
	s := viewOf(3, 1).now.Status
	for i := range s.Overview.Services {
		name := s.Overview.Services[i].Name
		s.Models, s.Recent = append(s.Models, modelStatus{Name: name}), append(s.Recent, timeline.Service{Name: name})
	}
	s.Overview.Rounds = 1
	var b strings.Builder
	if err := s.document().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nservice-0  ready       ", "\nservice-1  loading 25 %  ", "\nservice-2  failed       ",
		"\nservice-1: 3 queries late or not answered since the start: cannot_finish 2, late 1\n",
		"\nthe last 20s, newest on the right\nsaved   ▆ █\nlost    ▁█▄\n", "policy overlap: 1 round, 0 of them",
		"save 0.75 s of device time per second (overlapping 0.25, batching 0.50), 0.0 s since the start",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it has no %q:\n%s", want, b.String())
		}
	}
}

// status --ready fails where the daemon is not ready, and where there is none.
func TestStatusReady(t *testing.T) {
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/health/ready" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(code)
	}))
	ask := func() error {
		cmd := statusCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{"--ready", "--url", server.URL})
		return cmd.Execute()
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	code = http.StatusServiceUnavailable
	if err := ask(); err == nil {
		t.Errorf("not ready: %v", err)
	}
	server.Close()
	if err := ask(); err == nil {
		t.Errorf("not there: %v", err)
	}
}

// Of a pool the text has each device, and the workers on it that do not serve.
func TestStatusOfAPool(t *testing.T) {
	var o status.Status
	text := `{"up_seconds": 100, "devices": [{"name": "left", "device": "a CPU", "rounds": 7, "busy_seconds": 25}, {"name": "right", "device": "a CPU"}],
		"services": [{"name": "a", "replicas": [{"device": "left", "ready": true}, {"device": "right", "fault": "no room"}]}]}`
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	var d report.Document
	addPool(&d, &o)
	var b strings.Builder
	if err := d.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`left +a CPU +7 +25 % +1`, `right +a CPU +0 +0 % +1 +a: no room`} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// Of models that are not all in memory it is said where each is, how much memory they take, and why one
// could not be loaded.
func TestStatusOfModels(t *testing.T) {
	var s answers
	for name, state := range map[string]string{"warm": "in memory", "cold": "on disk", "bad": status.StateFailed, "next": "waiting"} {
		s.Models = append(s.Models, modelStatus{Name: name})
		s.Overview.Services = append(s.Overview.Services, status.Service{Name: name, State: state})
	}
	for i := range s.Overview.Services {
		switch o := &s.Overview.Services[i]; o.Name {
		case "warm":
			o.Ready, o.MemoryBytes, o.ResidentBytes = true, 20<<20, 30<<20
			s.Recent = append(s.Recent, timeline.Service{Name: "warm", Target: time.Second})
		case "bad":
			o.Fault = "the file is damaged"
		}
	}
	s.Overview.Memory = &status.Memory{UsedBytes: 20 << 20, LimitBytes: 80 << 20, Loads: 7, Evictions: 6, Failures: 2}
	var b strings.Builder
	if err := s.document().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nmodels: 1 failed, 1 on disk, 1 ready, 1 waiting; 20 of 80 MiB in use; 7 loads, 6 evictions, 2 failed loads\n",
		"\nthe model of bad could not be loaded: the file is damaged; the next query tries again\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
	for _, row := range []string{`warm +ready +1s .* 20 MiB`, `cold +on disk`, `bad +failed`, `next +waiting`} {
		if !regexp.MustCompile(`(?m)^` + row + ` *$`).MatchString(b.String()) {
			t.Errorf("there is no row %q in\n%s", row, b.String())
		}
	}
	v := view{now: seen{Status: s}, width: 200}
	if !strings.HasSuffix(v.summary(), "models: 1 failed, 1 on disk, 1 ready, 1 waiting; 20 of 80 MiB in use") {
		t.Errorf("top says %s", v.summary())
	}
}

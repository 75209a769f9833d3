package daemon

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda/mig"
)

// text returns a fresh response to a scrape.
func (r *gpuRig) text() string {
	r.t.Helper()
	return scrape(r.t, r.published())
}

// A GPU is told of as NVML sees it, and an instance of one by what it knows: it
// has memory and no utilization.
func TestMetricsOfGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		instances   []mig.Want
		gpus        int
		utilization int
	}{
		"whole":   {nil, 1, 1},
		"divided": {[]mig.Want{{Profile: "3g.40gb", Services: []string{"a"}}, {Profile: "2g.20gb", Services: []string{"b"}}}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newGPURig(t, "a", "b")
			if c.instances != nil {
				r.divide(c.instances...)
			}
			r.start()
			r.eventually("ready", r.Ready)
			for _, s := range []string{"a", "b"} {
				if status, text := r.ask(http.DefaultClient, s); status != http.StatusOK {
					t.Errorf("%s: %d %s", s, status, text)
				}
			}
			http.DefaultClient.CloseIdleConnections()
			count := func(metric string) int {
				return len(regexp.MustCompile(`\n`+metric+`\{gpu_uuid="[^"]+"\} [0-9.e+]+`).FindAllString(r.text(), -1))
			}
			r.eventually("samples", func() bool { return count("nv_gpu_memory_total_bytes") == c.gpus })
			if n := count("nv_gpu_utilization"); n != c.utilization {
				t.Errorf("%d tell how much they are used", n)
			}
			if n := count("nv_gpu_power_usage"); n != c.gpus {
				t.Errorf("%d tell their power", n)
			}
			text := r.text()
			tells(t, text, `overlapd_queries_finished_total{service="a"} 1`, `overlapd_queries_finished_total{service="b"} 1`,
				`overlapd_worker_restarts_total{service="a"} 0`)
			if n := strings.Count(text, "\noverlapd_device_busy_seconds_total{"); n != c.gpus {
				t.Errorf("%d devices", n)
			}
			if strings.Contains(text, `overlapd_worker_resident_bytes{service="b"} 0`) {
				t.Error("a worker takes no memory")
			}
		})
	}
}

package test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/load"
	"github.com/overlapd/overlapd/internal/report"
)

// The load of BenchmarkCPU: as many queries for each model.
const (
	cpuSeqLen = 64
	cpuWarmup = 500 * time.Millisecond
)

// cpuRates are queries a second, those of CPU_RATES if it is set, and cpuCallers how many clients each
// send a query when the last one is answered.
var (
	cpuRates   = ratesOf(cmp.Or(os.Getenv("CPU_RATES"), "12,16,20,24,28"))
	cpuCallers = []int{1, 2, 4, 8}
)

func ratesOf(list string) (rates []float64) {
	for text := range strings.SplitSeq(list, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate <= 0 {
			panic(fmt.Sprintf("CPU_RATES: %q: set queries a second, separated by commas", text))
		}
		rates = append(rates, rate)
	}
	return rates
}

// cpuModels and cpuTarget are what CPU_MODELS and CPU_TARGET say.
func cpuModels() []string {
	return strings.Split(cmp.Or(os.Getenv("CPU_MODELS"), "resnet50,bert"), ",")
}

func cpuTarget() time.Duration {
	target, err := time.ParseDuration(cmp.Or(os.Getenv("CPU_TARGET"), "300ms"))
	if err != nil {
		panic(fmt.Sprintf("CPU_TARGET: %v; set a duration such as 300ms", err))
	}
	return target
}

// cpuSystem is a server under BenchmarkCPU: overlapd with lines of its configuration, or
// Triton with the config.pbtxt of both models.
type cpuSystem struct {
	name        string
	top, tables string
	triton      string
}

// cpuSystems returns what BenchmarkCPU compares. Triton's names have its instances for each
// model and the threads of each instance, of which two for one instance answer least, since they spin. REJECT is a queue policy under which a query is
// rejected once it has been queued for half of the target.
func cpuSystems(b *testing.B) []cpuSystem {
	const reject = "dynamic_batching { default_queue_policy { timeout_action: REJECT default_timeout_microseconds: %d } }"
	return []cpuSystem{
		{name: "overlapd"},
		{name: "overlapd, edf", top: `policy = "edf"`},
		{name: "overlapd, two devices, edf", top: `policy = "edf"`, tables: twoCores(b)},
		{name: "Triton, 1 × 1", triton: tritonConfig(1, 1, 1)},
		{name: "Triton, 2 × 1", triton: tritonConfig(1, 2, 1)},
		{name: "Triton, 2 × 1, REJECT", triton: tritonConfig(1, 2, 1) + fmt.Sprintf(reject, (cpuTarget()/2).Microseconds())},
	}
}

// cpuCell is the outcome of one load on one system in one turn.
type cpuCell struct {
	System  string  `json:"system"`
	Rate    float64 `json:"rate,omitempty"`
	Callers int     `json:"callers,omitempty"`
	Turn    int     `json:"turn"`
	Queries int64   `json:"queries"`
	// InTime is the number of answers within the target, and Goodput the same in each second
	// in which queries arrive.
	InTime  float64 `json:"in_time"`
	Goodput float64 `json:"goodput"`
	// Share is InTime over Queries, and Shares the same for each model.
	Share  float64            `json:"share"`
	Shares map[string]float64 `json:"shares"`
	Errors map[string]int64   `json:"errors"`
	// Answers is the number of answers a second, and Each the same for each model, in the order of
	// CPU_MODELS.
	Answers float64   `json:"answers"`
	Each    []float64 `json:"each"`
	P50     float64   `json:"p50_ms"`
	P99     float64   `json:"p99_ms"`
}

// BenchmarkCPU compares the goodput of overlapd with Triton's for two models on the cores that
// this process may use, the client included. In each iteration, every system gets each load
// once, with the same Poisson arrivals, while all others are idle. It prints tables of the
// medians, and those of closed loops. CPU_WINDOW is the time for which queries of a load arrive, TRITON
// the folder of Triton, and CPU_OUT a folder for cpu.json and cpu.svg.
func BenchmarkCPU(b *testing.B) {
	window, err := time.ParseDuration(cmp.Or(os.Getenv("CPU_WINDOW"), "10s"))
	if err != nil {
		b.Fatalf("CPU_WINDOW: %v; set a duration such as 10s", err)
	}
	var servers []*served
	for _, system := range cpuSystems(b) {
		s := system.start(b)
		if s == nil {
			break // there is no Triton, and its systems are the last
		}
		s.halt(syscall.SIGSTOP)
		servers = append(servers, s)
	}
	var names []string
	for _, s := range servers {
		names = append(names, s.name)
	}
	var cells []cpuCell
	for turn := 1; b.Loop(); turn++ {
		for _, rate := range cpuRates {
			for _, s := range servers {
				cells = append(cells, s.askCPU(rate, 0, turn, window))
			}
			slices.Reverse(servers) // none is always the first
		}
		for _, callers := range cpuCallers {
			for _, s := range servers {
				cells = append(cells, s.askCPU(0, callers, turn, window))
			}
			slices.Reverse(servers)
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%s\n%s\n", cpuTables(names, cells), cpuLoops(names, cells))
	if dir := os.Getenv("CPU_OUT"); dir != "" {
		text, err := json.MarshalIndent(cells, "", "\t")
		drawing := cpuChart(names, cells).File()
		if err = cmp.Or(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "cpu.json"), text, 0o600),
			os.WriteFile(filepath.Join(dir, "cpu.svg"), drawing, 0o600)); err != nil {
			b.Fatal(err)
		}
	}
}

// start starts the system, or returns nil if there is no Triton. A daemon has the default
// memory and threads.
func (c *cpuSystem) start(b *testing.B) *served {
	s := &served{name: c.name}
	if c.triton != "" {
		if !s.startTriton(b, c.triton, cpuModels()...) {
			return nil
		}
		return s
	}
	daemon := config{top: "log_level = \"info\"\n" + c.top, tables: c.tables,
		worker: "threads = 0\ninput_bytes = \"256MiB\"\noutput_bytes = \"128MiB\""}
	for _, model := range cpuModels() {
		daemon.services = append(daemon.services, service{model, "zoo:" + model, fmt.Sprintf("target = %q", cpuTarget())})
	}
	s.process = serve(b, daemon)
	s.web = s.address
	return s
}

// askCPU puts a load on a server, at a rate or by callers, and waits for the last answer.
func (s *served) askCPU(rate float64, callers, turn int, window time.Duration) cpuCell {
	s.halt(syscall.SIGCONT)
	defer s.halt(syscall.SIGSTOP)
	o := load.DefaultOptions()
	o.URL, o.Services, o.Rate, o.Connections, o.Seed = "http://"+s.web, cpuModels(), rate, callers, uint64(turn)
	if callers > 0 {
		o.Services = o.Services[:min(callers, len(o.Services))]
	}
	o.Duration, o.Warmup, o.SeqLen, o.Target = window, cpuWarmup, cpuSeqLen, cpuTarget()
	r, err := load.Run(context.Background(), o)
	if err != nil {
		s.t.Fatalf("%s: %v", s.name, err)
	}
	c := cpuCell{System: s.name, Rate: rate, Callers: callers, Turn: turn, Queries: r.Requests, Errors: r.Errors, P50: r.Latency.P50, P99: r.Latency.P99, Answers: r.Throughput}
	c.Shares = map[string]float64{}
	for _, of := range r.Services {
		good := math.Round(*of.Goodput * r.Duration)
		c.InTime += good
		c.Shares[of.Name] = good / max(float64(of.Requests), 1)
		c.Each = append(c.Each, of.Throughput)
	}
	c.Goodput, c.Share = c.InTime/window.Seconds(), c.InTime/max(float64(c.Queries), 1)
	return c
}

// halt stops a Triton or lets it go on. One with threads that spin would take the cores of the server
// under load.
func (s *served) halt(signal syscall.Signal) {
	if !strings.HasPrefix(s.name, "Triton") {
		return
	}
	for _, pid := range s.processes() {
		if err := sendSignal(pid, signal); err != nil {
			s.t.Fatal(err)
		}
	}
}

// cpuOf returns a value of the system's cells at a rate, one of each turn.
func cpuOf(cells []cpuCell, system string, rate float64, value func(cpuCell) float64) (list []float64) {
	for _, c := range cells {
		if c.System == system && c.Rate == rate && c.Callers == 0 {
			list = append(list, value(c))
		}
	}
	return list
}

// cpuLoops returns the medians of the closed loops as Markdown: the median latency of one caller, and
// the answers a second of several, those of each model in brackets, with their quotient to those of the
// best Triton in the same turn.
func cpuLoops(systems []string, cells []cpuCell) string {
	of := func(system string, callers int, value func(cpuCell) float64) (list []float64) {
		for _, c := range cells {
			if c.System == system && c.Callers == callers {
				list = append(list, value(c))
			}
		}
		return list
	}
	answers := func(c cpuCell) float64 { return c.Answers }
	var text strings.Builder
	text.WriteString("| system | 1 caller, p50 |")
	for _, callers := range cpuCallers[1:] {
		fmt.Fprintf(&text, " %d callers | over Triton's best |", callers)
	}
	text.WriteString("\n|---|--:" + strings.Repeat("|--:|--:", len(cpuCallers)-1) + "|\n")
	for _, s := range systems {
		fmt.Fprintf(&text, "| %s | %.0f ms |", s, middle(of(s, 1, func(c cpuCell) float64 { return c.P50 })))
		for _, callers := range cpuCallers[1:] {
			ours, quotient := of(s, callers, answers), "–"
			var quotients []float64
			for turn := range ours {
				best := 0.0
				for _, o := range systems {
					if list := of(o, callers, answers); strings.HasPrefix(o, "Triton") && turn < len(list) {
						best = max(best, list[turn])
					}
				}
				if best > 0 {
					quotients = append(quotients, ours[turn]/best)
				}
			}
			if len(quotients) > 0 {
				quotient = fmt.Sprintf("%.2f", middle(quotients))
			}
			fmt.Fprintf(&text, " %.1f", middle(ours))
			var each []string
			for i := range cpuModels()[:min(callers, len(cpuModels()))] {
				each = append(each, fmt.Sprintf("%.1f", middle(of(s, callers, func(c cpuCell) float64 { return c.Each[i] }))))
			}
			fmt.Fprintf(&text, " (%s) | %s |", strings.Join(each, " + "), quotient)
		}
		text.WriteString("\n")
	}
	return text.String()
}

func goodputOf(c cpuCell) float64 { return c.Goodput }
func shareOf(c cpuCell) float64   { return c.Share }

// cpuPeaks returns the highest goodput of a system at any rate, one of each turn.
func cpuPeaks(cells []cpuCell, system string) (list []float64) {
	for _, rate := range cpuRates {
		for turn, v := range cpuOf(cells, system, rate, goodputOf) {
			if turn == len(list) {
				list = append(list, v)
			}
			list[turn] = max(list[turn], v)
		}
	}
	return list
}

// cpuTables returns the medians as Markdown: of goodput, with the peak and its quotient to
// that of the best Triton in the same turn, and of the share that is in time.
func cpuTables(systems []string, cells []cpuCell) string {
	var best []float64
	for _, s := range systems {
		if peaks := cpuPeaks(cells, s); strings.HasPrefix(s, "Triton") && middle(peaks) > middle(best) {
			best = peaks
		}
	}
	var goodput, share strings.Builder
	for _, of := range []*strings.Builder{&goodput, &share} {
		of.WriteString("| system |")
		for _, rate := range cpuRates {
			fmt.Fprintf(of, " %g/s |", rate)
		}
	}
	line := "\n|---" + strings.Repeat("|--:", len(cpuRates))
	goodput.WriteString(" peak | over Triton's best |" + line + "|--:|--:|\n")
	share.WriteString(line + "|\n")
	for _, s := range systems {
		fmt.Fprintf(&goodput, "| %s |", s)
		fmt.Fprintf(&share, "| %s |", s)
		for _, rate := range cpuRates {
			fmt.Fprintf(&goodput, " %.1f |", middle(cpuOf(cells, s, rate, goodputOf)))
			fmt.Fprintf(&share, " %.0f %% |", 100*middle(cpuOf(cells, s, rate, shareOf)))
		}
		peaks, quotient := cpuPeaks(cells, s), "–"
		if best != nil {
			var quotients []float64
			for turn := range peaks {
				quotients = append(quotients, peaks[turn]/best[turn])
			}
			quotient = fmt.Sprintf("%.2f, %.2f to %.2f", middle(quotients), slices.Min(quotients), slices.Max(quotients))
		}
		fmt.Fprintf(&goodput, " %.1f | %s |\n", middle(peaks), quotient)
		share.WriteString("\n")
	}
	return goodput.String() + "\n" + share.String()
}

// cpuColors are the colours of the systems: cool ones for overlapd, warm ones for Triton.
var cpuColors = []int{0, 7, 2, 1, 8, 3}

// cpuChart returns the median goodput of each system over the offered load.
func cpuChart(systems []string, cells []cpuCell) *report.Chart {
	c := &report.Chart{X: "queries a second", Y: "answers in time a second"}
	for i, s := range systems {
		series := report.Series{Name: s, Color: cpuColors[i], X: cpuRates}
		for _, rate := range cpuRates {
			series.Y = append(series.Y, middle(cpuOf(cells, s, rate, goodputOf)))
		}
		c.Series = append(c.Series, series)
	}
	return c
}

// TestCPUTables checks the medians, the peaks and the quotients of three turns.
func TestCPUTables(t *testing.T) {
	var cells []cpuCell
	for turn := range 3 {
		for i, rate := range cpuRates {
			cells = append(cells,
				cpuCell{System: "overlapd", Turn: turn, Rate: rate, Goodput: 12, Share: 0.5},
				cpuCell{System: "Triton, 1 × 1", Turn: turn, Rate: rate, Goodput: float64(turn + i), Share: 0.25},
				cpuCell{System: "Triton, 2 × 1", Turn: turn, Rate: rate, Goodput: 1, Share: 1})
		}
	}
	got := cpuTables([]string{"overlapd", "Triton, 1 × 1", "Triton, 2 × 1"}, cells)
	const want = `| system | 12/s | 16/s | 20/s | 24/s | 28/s | peak | over Triton's best |
|---|--:|--:|--:|--:|--:|--:|--:|
| overlapd | 12.0 | 12.0 | 12.0 | 12.0 | 12.0 | 12.0 | 2.40, 2.00 to 3.00 |
| Triton, 1 × 1 | 1.0 | 2.0 | 3.0 | 4.0 | 5.0 | 5.0 | 1.00, 1.00 to 1.00 |
| Triton, 2 × 1 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | 0.20, 0.17 to 0.25 |

| system | 12/s | 16/s | 20/s | 24/s | 28/s |
|---|--:|--:|--:|--:|--:|
| overlapd | 50 % | 50 % | 50 % | 50 % | 50 % |
| Triton, 1 × 1 | 25 % | 25 % | 25 % | 25 % | 25 % |
| Triton, 2 × 1 | 100 % | 100 % | 100 % | 100 % | 100 % |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

package load

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
)

// Result is what a run measured. Requests of the warm-up appear in Warmup only.
type Result struct {
	Scenario    string  `json:"scenario"` // "open" or "closed"
	URL         string  `json:"url"`
	Server      string  `json:"server"`
	Device      string  `json:"device"` // what the services run on, "" if the daemon does not say
	Version     string  `json:"version"`
	Commit      string  `json:"commit"`
	Seed        uint64  `json:"seed"`
	Rate        float64 `json:"rate_rps,omitempty"` // asked for, of all services together
	Arrivals    string  `json:"arrivals,omitempty"`
	CV          float64 `json:"cv,omitempty"`
	Connections int     `json:"connections"`
	Batch       int     `json:"batch"`
	SeqLen      int     `json:"seq_len"`
	Verified    bool    `json:"verified"`
	Interrupted bool    `json:"interrupted"`

	// Duration ends with the last answer, or later if less was sent than the
	// time allowed.
	Duration float64 `json:"duration_s"`
	CPU      float64 `json:"generator_cpu_us"` // processor time of this process per request

	measurement
	Services []serviceResult `json:"services"`

	latency *latencies
}

// serviceResult is the part of a result that concerns one service.
type serviceResult struct {
	Name   string `json:"name"`
	Device string `json:"device"`
	measurement
}

// measurement is what was measured of the load on one service, or on all.
type measurement struct {
	Requests   int64            `json:"requests"` // failed ones too
	Errors     map[string]int64 `json:"errors"`   // by reason
	Latency    latency          `json:"latency_ms"`
	Throughput float64          `json:"throughput_rps"`        // answers
	Goodput    *float64         `json:"goodput_rps,omitempty"` // answers inside the target, absent without one
	TargetMS   float64          `json:"target_ms,omitempty"`   // absent if there is none, or several
	SendLag    *sendLag         `json:"send_lag_ms,omitempty"` // open loop only
	Warmup     warmupLoad       `json:"warmup"`                // before all of this
}

// latency is a distribution of the latencies of answered requests, in
// milliseconds.
type latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// sendLag is how much later than due requests were sent, in milliseconds.
// WakeP99 leaves out those that waited for a connection: if it is large, then
// the generator was too slow and not the daemon.
type sendLag struct {
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	Max      float64 `json:"max"`
	WakeP99  float64 `json:"wake_p99"`
	Late     int64   `json:"late"`      // requests sent more than 1 ms late
	LateBusy int64   `json:"late_busy"` // those among them that waited for a connection
}

// warmupLoad is what happened before the measurement.
type warmupLoad struct {
	Duration float64          `json:"duration_s"`
	Requests int64            `json:"requests"`
	Errors   map[string]int64 `json:"errors"`
}

// result puts together what the recorders hold.
func (r *run) result(interrupted bool) *Result {
	o := r.options
	all, warm := newTally(), newTally()
	for _, s := range r.streams {
		all.merge(s.rec.mu.measured)
		warm.merge(s.rec.mu.warmup)
	}
	elapsed := r.elapsed(all.lastAnswer, interrupted)
	res := &Result{
		Scenario:    "closed",
		URL:         o.URL,
		Server:      r.daemon.server,
		Device:      r.device(),
		Version:     o.Version,
		Commit:      o.Commit,
		Seed:        o.Seed,
		Connections: o.Connections,
		Batch:       o.Batch,
		SeqLen:      o.SeqLen,
		Verified:    o.Verify,
		Interrupted: interrupted,
		Duration:    elapsed.Seconds(),
		measurement: measure(all, warm, elapsed, o.Warmup, 0),
		latency:     all.latency,
	}
	if o.open() {
		res.Scenario, res.Arrivals, res.Rate = "open", o.Arrivals, o.Rate
		if o.RatePerService {
			res.Rate *= float64(len(o.Services))
		}
		if o.Arrivals == gamma {
			res.CV = o.CV
		}
	}
	if n := all.requests + warm.requests; n > 0 {
		res.CPU = float64(r.cpu.Nanoseconds()/n) / 1000
	}
	res.addServices(r, elapsed)
	return res
}

// elapsed returns how long the measurement took. An answer that never came
// does not lengthen it.
func (r *run) elapsed(lastAnswer time.Duration, interrupted bool) time.Duration {
	window := r.options.Duration
	if interrupted {
		window = min(window, max(r.ended, 0))
	}
	return max(window, lastAnswer)
}

// addServices adds the results of each service. All together have a goodput if each
// has one, and a target if it is the same.
func (res *Result) addServices(r *run, elapsed time.Duration) {
	goodput, targets := 0.0, map[time.Duration]bool{}
	for _, s := range r.streams {
		m := measure(s.rec.mu.measured, s.rec.mu.warmup, elapsed, r.options.Warmup, s.service.target)
		res.Services = append(res.Services, serviceResult{s.service.name, s.service.device, m})
		targets[s.service.target] = true
		if m.Goodput != nil {
			goodput += *m.Goodput
		}
	}
	if targets[0] {
		return
	}
	res.Goodput = &goodput
	if len(targets) == 1 {
		res.TargetMS = res.Services[0].TargetMS
	}
}

// measure sums up tallies. There is no target if it is 0.
func measure(t, warm *tally, elapsed, warmup, target time.Duration) measurement {
	m := measurement{
		Requests:   t.requests,
		Errors:     t.errors,
		Latency:    t.latency.summary(),
		Throughput: perSecond(t.requests-stats.Sum(t.errors), elapsed),
		Warmup:     warmupLoad{Duration: warmup.Seconds(), Requests: warm.requests, Errors: warm.errors},
	}
	if t.lag.count() > 0 {
		m.SendLag = &sendLag{
			P50:      milliseconds(t.lag.percentile(50)),
			P99:      milliseconds(t.lag.percentile(99)),
			Max:      milliseconds(t.lag.max),
			WakeP99:  milliseconds(t.wake.percentile(99)),
			Late:     t.late,
			LateBusy: t.lateBusy,
		}
	}
	if target > 0 {
		goodput := perSecond(t.good, elapsed)
		m.Goodput, m.TargetMS = &goodput, milliseconds(target)
	}
	return m
}

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// device returns what the services run on, if they all run on the same.
func (r *run) device() string {
	device := r.daemon.services[0].device
	for _, s := range r.daemon.services {
		if s.device != device {
			return "several"
		}
	}
	return device
}

// Document returns the result for a person to look at.
func (res *Result) Document() *report.Document {
	d := &report.Document{Title: "Load on " + res.URL}
	head := fmt.Sprintf("%s, %s", res.Scenario, res.URL)
	if server := strings.TrimSpace(res.Server); server != "" {
		head += fmt.Sprintf(" (%s)", server)
	}
	if res.Device != "" {
		head += ", device " + res.Device
	}
	d.Text("%s", head)
	arrivals := ""
	if res.Rate > 0 {
		arrivals = fmt.Sprintf(", %s arrivals at %g/s", res.Arrivals, res.Rate)
	}
	d.Text("%.1f s after %.1f s of warm-up, %d connections%s, seed %d; times in ms", res.Duration, res.Warmup.Duration, res.Connections, arrivals, res.Seed)
	if res.Interrupted {
		d.Text("interrupted: this is what was measured until then")
	}
	d.Heading("what was answered")
	d.Table(res.table())
	for _, e := range []struct {
		title string
		count map[string]int64
	}{{"errors", res.Errors}, {"errors in warm-up", res.Warmup.Errors}} {
		if len(e.count) > 0 {
			d.Text("%s: %s", e.title, report.Frequent(e.count))
		}
	}
	if l := res.SendLag; l != nil {
		d.Text("send lag: p99 %.3f ms, max %.3f ms; %d sent over 1 ms late, %d of them for want of a connection; generator alone p99 %.3f ms",
			l.P99, l.Max, l.Late, l.LateBusy, l.WakeP99)
	}
	if res.latency.count() > 0 {
		d.Heading("latency, ms")
		d.Table(res.latency.histogram())
	}
	return d
}

func (res *Result) table() *report.Table {
	t := report.NewTable("service", "requests", "errors", "answers/s", "good/s", "target", "p50", "p90", "p99", "p99.9", "max")
	row := func(name string, l *measurement) {
		good, target := "-", "-"
		if l.Goodput != nil {
			good = fmt.Sprintf("%.1f", *l.Goodput)
		}
		if l.TargetMS > 0 {
			target = fmt.Sprintf("%g", l.TargetMS)
		}
		t.Rowf("%s\t%d\t%d\t%.1f\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f", name, l.Requests, stats.Sum(l.Errors), l.Throughput, good, target,
			l.Latency.P50, l.Latency.P90, l.Latency.P99, l.Latency.P999, l.Latency.Max)
	}
	for i := range res.Services {
		row(res.Services[i].Name, &res.Services[i].measurement)
	}
	if len(res.Services) > 1 {
		row("all", &res.measurement)
	}
	return t
}

const (
	histogramRows  = 14
	histogramWidth = 40 // columns of the longest bar
)

// histogram draws latencies in rows whose bounds grow by a fixed factor.
func (l *latencies) histogram() *report.Table {
	low := math.Log(float64(max(l.min, minLatency)))
	step := max((math.Log(float64(max(l.max, minLatency)))-low)/histogramRows, 1e-9)
	var rows [histogramRows]int64
	for _, bar := range l.hist.Distribution() {
		if bar.Count > 0 {
			middle := float64(bar.From+bar.To) / 2
			at := int((math.Log(max(middle, 1)) - low) / step)
			rows[min(max(at, 0), histogramRows-1)] += bar.Count
		}
	}
	most := slices.Max(rows[:])
	t := report.NewTable("up to", "", "requests")
	for i, n := range rows {
		upper := time.Duration(math.Exp(low + step*float64(i+1)))
		t.Rowf("%10.3f\t%s\t%d", milliseconds(upper), bar(n, most), n)
	}
	return t
}

// bar draws n of most; what is not zero can be seen.
func bar(n, most int64) string {
	columns := int(math.Round(float64(n) / float64(most) * histogramWidth))
	if n > 0 && columns == 0 {
		return "▏"
	}
	return strings.Repeat("█", columns)
}

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
)

func statusCommand() *cobra.Command {
	var at target
	var out cli.Output
	var ready bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what a running daemon serves, and its latencies",
		Long: `Status asks a running daemon once and prints how it is doing. Use it to see whether the
services are ready and meet their targets; top shows the same continuously.

For each service it prints:
  STATE, TARGET   ready, loading, overrun or failed; and the latency target
  P50, P99        latency of the last 256 queries
  MISSED          percentage of those that were late or not answered
  HEADROOM        time left before the deadline at p99, in % of the target, in the
                  last minute
  DEVICE          percentage of the last minute that a device worked for the service
  QUEUE, MEMORY   queued queries; memory of the worker

Below are totals since the start, the number of devices that the load needs, why
queries were lost, what overlapping and batching save, how rounds are chosen, and the
predictor's error. Tables are as wide as the terminal, or 100 columns; --json omits
nothing.`,
		Example: `  overlapd status
  overlapd status --config overlapd.toml
  overlapd status --url http://127.0.0.1:9000 --json
  overlapd status --ready                for health checks and scripts`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ready {
				return askReady(&at)
			}
			s, err := askStatus(&at)
			if err != nil {
				return err
			}
			d := s.document()
			d.Width = cmp.Or(cli.Columns(cmd.OutOrStdout()), statusColumns)
			return out.Print(cmd.OutOrStdout(), s, d.WriteText)
		},
	}
	at.flags(cmd)
	out.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&ready, "ready", false, "print nothing; exit with status 1 unless the daemon is ready")
	return cmd
}

// statusColumns is how wide tables are where there is no terminal.
const statusColumns = 100

func askReady(t *target) error {
	code, body, err := t.get("/v2/health/ready", "")
	if err == nil && code != fasthttp.StatusOK {
		var why struct{ Error string }
		_ = json.Unmarshal(body, &why) // another server may say so in another form
		err = fmt.Errorf("the daemon is not ready: %s; see overlapd status", cmp.Or(why.Error, fasthttp.StatusMessage(code)))
	}
	return err
}

// answers is what several endpoints say. Recent covers the last queries of each service.
type answers struct {
	Live     bool          `json:"live"`
	Ready    bool          `json:"ready"`
	Models   []modelStatus `json:"models"`
	Overview status.Status `json:"overview"`

	Recent  []timeline.Service `json:"recent"`
	History timeline.History   `json:"history"`
}

// modelStatus is the statistics of one service, in the protocol's names.
type modelStatus struct {
	Name           string `json:"name"`
	InferenceCount uint64 `json:"inference_count"`
	ExecutionCount uint64 `json:"execution_count"`
	Stats          struct {
		Success total `json:"success"`
		Fail    total `json:"fail"`
		Queue   total `json:"queue"`
		Infer   total `json:"compute_infer"`
	} `json:"inference_stats"`
}

type total struct {
	Count uint64 `json:"count"`
	NS    uint64 `json:"ns"`
}

func (t total) mean() time.Duration {
	if t.Count == 0 {
		return 0
	}
	return time.Duration(t.NS / t.Count).Round(time.Microsecond)
}

func askStatus(t *target) (s answers, err error) {
	for path, healthy := range map[string]*bool{"/v2/health/live": &s.Live, "/v2/health/ready": &s.Ready} {
		code, _, err := t.get(path, "")
		if err != nil {
			return s, err
		}
		*healthy = code == fasthttp.StatusOK
	}
	if s.Models, err = askModels(t); err != nil {
		return s, err
	}
	if err := t.ask("/overlapd/status", "", "status", &s.Overview, func() bool { return true }); err != nil {
		return s, err
	}
	p, err := askTimeline(t, noRounds)
	if err != nil {
		return s, err
	}
	s.Recent = p.Services
	return s, t.ask("/overlapd/history", "", "history", &s.History, func() bool { return s.History.Lost != nil })
}

// emulatedNote says what an emulated device is not, and that this host is late for such
// a share of the time, if that matters.
func emulatedNote(late float64) string {
	const matters = 0.05
	if late < matters {
		return "nothing is computed"
	}
	return fmt.Sprintf("nothing is computed, and this host was late %s of the time", percentOf(late))
}

// askModels returns the statistics of each service.
func askModels(t *target) ([]modelStatus, error) {
	var stats struct {
		Models []modelStatus `json:"model_stats"`
	}
	err := t.ask("/v2/models/stats", "", "statistics", &stats, func() bool { return stats.Models != nil })
	return stats.Models, err
}

// askServices returns the names of all services, of which there must be some.
func askServices(t *target) (names []string, err error) {
	list, err := askModels(t)
	for _, m := range list {
		names = append(names, m.Name)
	}
	if err == nil && len(names) == 0 {
		err = errors.New("the daemon has no services")
	}
	return names, err
}

func (s answers) document() *report.Document {
	d := new(report.Document)
	note := ""
	if s.Overview.Emulated {
		note = ", " + emulatedNote(s.Overview.HostLateSeconds/max(s.Overview.BusySeconds, 1))
	}
	leaves := ""
	if s.Overview.Draining {
		leaves = "  draining: about to be stopped"
	}
	d.Text("live: %t  ready: %t%s", s.Live, s.Ready, leaves)
	d.Heading("device: %s%s", s.Overview.Device, note)
	t := report.NewTable("SERVICE", "STATE", "TARGET", "P50", "P99", "MISSED", "HEADROOM", "DEVICE", "QUEUE", "MEMORY")
	sums := report.NewTable("SERVICE", "ANSWERED", "FAILED OR DROPPED", "BATCHES", "MEAN QUEUE", "MEAN RUN")
	load := &s.Overview.Load
	for _, m := range s.Models {
		sums.Row(m.Name, fmt.Sprint(m.Stats.Success.Count), fmt.Sprint(m.Stats.Fail.Count), fmt.Sprint(m.ExecutionCount), m.Stats.Queue.mean().String(), m.Stats.Infer.mean().String())
		cells := []string{m.Name, ""}
		if slices.ContainsFunc(s.Overview.Services, func(o status.Service) bool { return o.Ready && strings.HasPrefix(o.Name, m.Name+"/") }) {
			cells[1] = "ready" // one of its variants is
		}
		at := slices.IndexFunc(s.Recent, func(r timeline.Service) bool { return r.Name == m.Name })
		i := slices.IndexFunc(s.Overview.Services, func(o status.Service) bool { return o.Name == m.Name })
		if at >= 0 && i >= 0 {
			r, service := &s.Recent[at], &s.Overview.Services[i]
			cells[1] = stateOf(&s.Overview, service)
			cells = append(cells, r.Target.String(), short(r.P50), short(r.P99), missedOf(r), percentOf(load.Services[m.Name].Headroom), percentOf(load.Services[m.Name].DeviceSeconds/max(load.WindowSeconds, 1)), fmt.Sprint(service.Queued), memoryOf(service))
		}
		t.Row(cells...)
	}
	d.Table(t)
	d.Heading("since the start:")
	d.Table(sums)
	addLoad(d, load)
	addPool(d, &s.Overview)
	addVariants(d, s.Overview.Services)
	for i := range s.Overview.Services {
		service := &s.Overview.Services[i]
		if service.Plan != "" {
			d.Heading("%s: runs by a plan: %s; %s moved to another device, %d were lost on the way",
				service.Name, service.Plan, report.Count(int(service.Moves), "batch", "batches"), service.MovesLost)
		}
		if n := losses(service); n > 0 {
			d.Heading("%s: %s late or not answered since the start: %s", service.Name, report.Count(n, "query", "queries"), whyLost(service))
		}
	}
	if h := &s.History; slices.ContainsFunc(append(gained(h), lost(h)...), func(v float64) bool { return v != 0 }) {
		d.Heading("the last %s, newest on the right", brief((time.Duration(len(h.InTime)) * h.Step).Seconds()))
		d.Text("saved  %s", sparkline(gained(h), historyWidth))
		d.Text("lost   %s", sparkline(lost(h), historyWidth))
	}
	for i := range s.Overview.Loading {
		d.Heading("%s", loadingText(&s.Overview.Loading[i]))
	}
	addGPUs(d, &s.Overview)
	addOverview(d, &s.Overview)
	return d
}

// addLoad adds how many devices are demanded, and why.
func addLoad(d *report.Document, l *status.Load) {
	d.Heading("the load of the last %[3]s needs %.2[1]f of %[2]s: idle %.0[4]f %% of the time, %.1[5]f %% of the queries late or lost", l.DevicesDemanded, report.Count(len(l.Devices), "device"), brief(l.WindowSeconds), 100*l.Idle, 100*l.BadRate)
	for i := range l.Devices {
		if on := &l.Devices[i]; len(l.Devices) > 1 {
			d.Text("%s: idle %.0f %% of the time, %s before a round", on.Name, 100*on.Idle, report.OrDash("%.1f ms", on.IdleBeforeRoundMS))
		}
	}
}

// addVariants says of each service with variants how accurate its answers in time were, and
// how the variant is selected that answers.
func addVariants(d *report.Document, services []status.Service) {
	for i := range services {
		first := &services[i]
		if first.Selection == "" {
			continue
		}
		of, _, _ := strings.Cut(first.Name, "/")
		answers, sum := 0.0, 0.0
		for _, s := range services {
			if name, _, is := strings.Cut(s.Name, "/"); is && name == of {
				n := float64(s.Finished - s.Late)
				answers, sum = answers+n, sum+n*s.Accuracy
			}
		}
		mean := "nothing answered yet"
		if answers > 0 {
			mean = fmt.Sprintf("mean accuracy %.4g of %.0f answers in time", sum/answers, answers)
		}
		d.Heading("%s: %s; variants are selected %s", of, mean, first.Selection)
	}
}

// percentOf formats a share.
func percentOf(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// addPool says how each device of a pool stands, and which workers on it do not serve.
func addPool(d *report.Document, o *status.Status) {
	if len(o.Pool) == 0 {
		return
	}
	t := report.NewTable("DEVICE", "WHAT", "ROUNDS", "BUSY", "WORKERS", "NOT READY")
	for _, on := range o.Pool {
		workers, waits := 0, []string{}
		for i := range o.Services {
			for _, r := range o.Services[i].Replicas {
				switch {
				case r.Device != on.Name:
				case r.Ready:
					workers++
				default:
					workers, waits = workers+1, append(waits, strings.TrimSuffix(o.Services[i].Name+": "+r.Fault, ": "))
				}
			}
		}
		t.Row(on.Name, on.Text, fmt.Sprint(on.Rounds), percentOf(on.BusySeconds/max(o.UpSeconds, 1)), fmt.Sprint(workers), strings.Join(waits, "; "))
	}
	d.Table(t)
}

// gainText says what running queries together saves.
func gainText(o *status.Status) string {
	g := &o.Gain
	return fmt.Sprintf("overlapping and batching save %.2f s of device time per second (overlapping %.2f, batching %.2f), %.1f s since the start",
		g.OverlapNow+g.MergeNow, g.OverlapNow, g.MergeNow, g.OverlapSeconds+g.MergeSeconds)
}

// historyWidth is how many bars a history has, each of twenty seconds at the end.
const historyWidth = 60

// gained returns the seconds of device time that were saved in each step of a history.
func gained(h *timeline.History) []float64 {
	sums := make([]float64, len(h.Overlap))
	for i := range sums {
		sums[i] = (h.Overlap[i] + h.Merge[i]).Seconds()
	}
	return sums
}

// lost returns how many queries were lost in each step of a history.
func lost(h *timeline.History) []float64 {
	sums := make([]float64, len(h.InTime))
	for _, counts := range h.Lost {
		for i, n := range counts {
			sums[i] += float64(n)
		}
	}
	return sums
}

// stateOf names the state of a service: ready, overrun while an operator that does
// not end keeps it, loading and how far, or failed.
func stateOf(o *status.Status, s *status.Service) string {
	i := slices.IndexFunc(o.Loading, func(l status.Loading) bool { return l.Service == s.Name })
	switch {
	case s.Overrun:
		return "overrun"
	case s.Ready:
		return "ready"
	case i >= 0 && o.Loading[i].Total > 0:
		return fmt.Sprintf("loading %.0f %%", 100*float64(o.Loading[i].Done)/float64(o.Loading[i].Total))
	case i < 0 && s.Fault != "":
		return "failed"
	}
	return "loading"
}

// memoryOf formats the memory of a service's worker.
func memoryOf(s *status.Service) string {
	return report.OrDash("%.0f MiB", float64(s.ResidentBytes)/(1<<20))
}

// losses returns how many queries of a service were lost since the start: late or
// without an answer.
func losses(s *status.Service) uint64 {
	return s.Late + stats.Sum(s.Dropped) + stats.Sum(s.Failed) + stats.Sum(s.Refused)
}

// whyLost lists why queries of a service were lost.
func whyLost(s *status.Service) string {
	counts := map[string]uint64{"late": s.Late}
	for _, by := range []map[string]uint64{s.Refused, s.Dropped, s.Failed} {
		for reason, n := range by {
			counts[reason] += n
		}
	}
	return report.Frequent(counts)
}

func addOverview(d *report.Document, o *status.Status) {
	p := &o.Predictor
	d.Heading("policy %s: %s, %d of them chosen ahead", o.Policy, report.Count(o.Rounds, "round"), o.Plans.Kept)
	d.Text("%s", gainText(o))
	d.Text("predictor %s: %s", p.Phase, cmp.Or(p.Reason, "not all services are ready"))
	for _, fault := range o.NotStored {
		d.Text("NOT STORED: %s", fault)
	}
	if len(p.UnknownServices) > 0 {
		d.Text("%s: no predictions for groups, so its operators overlap with no others; to get predictions, %s",
			strings.Join(p.UnknownServices, ", "), p.Remedy)
	}
	if m := p.Measuring; m != nil {
		d.Text("%s", measuredText(m))
	}
	t := report.NewTable("GROUPS OF", "BY", "RUNS", "ERROR", "MEASURED/PREDICTED P50", "P99", "BOUND")
	for _, s := range p.Shapes {
		t.Rowf("%s\t%s\t%d\t%.1f %%\t%s\t%s\t%.2f",
			cmp.Or(strings.Join(s.Services, " + "), "others"), s.Source, s.Runs, s.MAPE, report.OrDash("%.2f", s.P50), report.OrDash("%.2f", s.P99), s.Bound)
	}
	d.Table(t)
}

// addGPUs adds parts of a GPU, services that were given up, and cuts by measuring.
func addGPUs(d *report.Document, o *status.Status) {
	for i := range o.GPU {
		d.Heading("%s", gpuText(&o.GPU[i]))
	}
	for _, s := range o.Services {
		if s.Fault != "" {
			d.Heading("%s has failed permanently: %s; fix the cause, then run: overlapd restart %[1]s", s.Name, s.Fault)
		}
		if s.Cut != nil {
			d.Heading("%s is cut into %s: %s", s.Name, report.Count(s.Cut.Operators, "operator"), s.Cut.Reason)
		}
	}
}

func gpuText(g *gpu.Status) string {
	parts := []string{fmt.Sprintf("%s (%s): %s", g.Device, g.UUID, strings.Join(g.Services, ", "))}
	add := func(known bool, format string, args ...any) {
		if known {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	if m := g.MPS; m != nil {
		add(true, "MPS %s, started %s", m.Phase, report.Count(m.Starts, "time"))
		add(m.Fault != "", "%s", m.Fault)
	}
	add(g.Fault != "", "no readings: %s", g.Fault)
	if s := g.Sample; s != nil {
		add(s.Utilization.Known, "busy %d %% of the time", s.Utilization.Value.GPU)
		add(s.Memory.Known, "%d of %d MiB used", s.Memory.Value.Used>>20, s.Memory.Value.Total>>20)
		add(s.Power.Known && s.PowerLimit.Known, "%.0f of %.0f W", s.Power.Value, s.PowerLimit.Value)
		add(s.Temperature.Known, "%d °C", s.Temperature.Value)
		add(s.SMClock.Known && s.MaxSMClock.Known, "%d of %d MHz", s.SMClock.Value, s.MaxSMClock.Value)
		add(s.ClockReasons.Known && s.ClockReasons.Value.Throttled(), "CLOCK THROTTLED: %s", s.ClockReasons.Value)
	}
	return strings.Join(parts, "; ")
}

func loadingText(l *status.Loading) string {
	part := ""
	if l.Total > 0 {
		part = fmt.Sprintf(" %.0f %%", 100*float64(l.Done)/float64(l.Total))
	}
	return fmt.Sprintf("%s has been loading its model (%s%s) for %s", l.Service, l.Phase, part, brief(l.LoadSeconds))
}

func measuredText(m *status.Progress) string {
	text := fmt.Sprintf("measured %d of %d", m.Done, m.Total)
	if m.LeftSeconds > 0 {
		text += fmt.Sprintf(", %s left for all", brief(m.LeftSeconds))
	}
	return text
}

// brief formats seconds for people: 90 as 1m30s, 120 as 2m, 0.0123 as 12ms.
func brief(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= time.Second:
		d = d.Round(time.Second)
	case d >= time.Millisecond:
		d = d.Round(time.Millisecond)
	default:
		d = d.Round(time.Microsecond)
	}
	text := d.String()
	for _, unit := range []string{"m0s", "h0m"} {
		if whole, ok := strings.CutSuffix(text, unit); ok {
			text = whole + unit[:1]
		}
	}
	return text
}

// noRounds asks a timeline for no rounds, only for its services and its position.
const noRounds = math.MaxInt64

// pageQuery asks for what there is after a position, or for the latest.
func pageQuery(since uint64) string {
	if since == timeline.Latest {
		return ""
	}
	return "since=" + strconv.FormatUint(since, 10)
}

func askTimeline(t *target, since uint64) (p timeline.Page, err error) {
	err = t.ask("/overlapd/timeline", pageQuery(since), "timeline", &p, func() bool { return p.Services != nil })
	return p, err
}

func askQueries(t *target, since uint64) (p timeline.QueryPage, err error) {
	err = t.ask("/overlapd/queries", pageQuery(since), "queries", &p, func() bool { return p.Queries != nil })
	return p, err
}

// short formats a latency with three digits, and none as a dash.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 100*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// missedOf formats the share of the last queries that were late or unanswered.
func missedOf(s *timeline.Service) string {
	if s.Ended == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(s.Missed)/float64(s.Ended))
}

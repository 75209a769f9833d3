package watching

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
)

// statusCommand asks once, for people and scripts. What a column means is in its help, since there is no
// room in a table.
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
  STATE, TARGET   ready, loading, overrun or failed, or where its model is; and the
                  latency target
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
			// Into a file or a pipe the width is one that fits most screens later.
			d.Width = cmp.Or(cli.Columns(cmd.OutOrStdout()), statusColumns)
			return out.Print(cmd.OutOrStdout(), s, d.WriteText)
		},
	}
	at.flags(cmd)
	out.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&ready, "ready", false, "print nothing; exit with status 1 unless the daemon is ready")
	return cmd
}

// service returns the name of the service of a model, which has the version unless that is the
// highest.
func (m *modelStatus) service(all []status.Service) string {
	model, variant, is := strings.Cut(m.Name, "/")
	name := model + ":" + m.Version
	versioned := func(s status.Service) bool { return s.Name == name || strings.HasPrefix(s.Name, name+"/") }
	switch {
	case !slices.ContainsFunc(all, versioned):
		return m.Name
	case is:
		return name + "/" + variant
	}
	return name
}

// statusColumns is how wide tables are where there is no terminal.
const statusColumns = 100

// document shows what matters most first: whether it is ready, how each service does, and below that why.
// What is as usual is left out, so that what is not can be seen.
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
	// The statistics name every service, also one that has variants and no row of its own elsewhere.
	for _, m := range s.Models {
		m.Name = m.service(s.Overview.Services)
		sums.Row(m.Name, fmt.Sprint(m.Stats.Success.Count), fmt.Sprint(m.Stats.Fail.Count), fmt.Sprint(m.ExecutionCount), m.Stats.Queue.mean().String(), m.Stats.Infer.mean().String())
		// A service that is gone from the timeline, or has variants, has no latencies of its own.
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
		// Of a model that is not in memory nothing was measured recently.
		if i >= 0 && at < 0 && s.Overview.Services[i].State != "" {
			cells[1] = stateOf(&s.Overview, &s.Overview.Services[i])
		}
		t.Row(cells...)
	}
	// Recent latencies and totals are two tables: one number per column cannot be of both.
	d.Table(t)
	if m := s.Overview.Memory; m != nil {
		d.Heading("%s; %d loads, %d evictions, %d failed loads", modelsText(&s.Overview), m.Loads, m.Evictions, m.Failures)
	}
	d.Heading("since the start:")
	d.Table(sums)
	addLoad(d, load)
	addPool(d, &s.Overview)
	addVariants(d, s.Overview.Services)
	for i := range s.Overview.Services {
		service := &s.Overview.Services[i]
		// Of a pipeline what was lost on the way points at a link that is too slow for the plan.
		if service.Plan != "" {
			d.Heading("%s: runs by a plan: %s; %s moved to another device, %d were lost on the way",
				service.Name, service.Plan, report.Count(int(service.Moves), "batch", "batches"), service.MovesLost)
		}
		// The reasons are the point: each has a remedy of its own.
		if n := losses(service); n > 0 {
			d.Heading("%s: %s late or not answered since the start: %s", service.Name, report.Count(n, "query", "queries"), whyLost(service))
		}
	}
	// Twenty minutes of nothing are no picture.
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
		// Of a single device the line above has said it.
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
		// Late answers count for nothing, however accurate they are.
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
		// Accuracy is what variants trade for time, so it is the result of selecting them.
		d.Heading("%s: %s; variants are selected %s", of, mean, first.Selection)
	}
}

// addPool says how each device of a pool stands, and which workers on it do not serve.
func addPool(d *report.Document, o *status.Status) {
	if len(o.Pool) == 0 {
		return
	}
	t := report.NewTable("DEVICE", "WHAT", "ROUNDS", "BUSY", "WORKERS", "NOT READY")
	for _, on := range o.Pool {
		// A service may have a worker on each device, and lack only one of them.
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

// addOverview adds how rounds are chosen, what that saves, and how good the predictions are.
func addOverview(d *report.Document, o *status.Status) {
	p := &o.Predictor
	d.Heading("policy %s: %s, %d of them chosen ahead", o.Policy, report.Count(o.Rounds, "round"), o.Plans.Kept)
	d.Text("%s", gainText(o))
	d.Text("predictor %s: %s", p.Phase, cmp.Or(p.Reason, "not all services are ready"))
	// What is not stored is lost with the next restart, and nobody sees it before.
	for _, fault := range o.NotStored {
		d.Text("NOT STORED: %s", fault)
	}
	// To run alone is safe, and costs what overlapping would gain. The remedy depends on the reason.
	if len(p.UnknownServices) > 0 {
		d.Text("%s: no predictions for groups, so its operators overlap with no others; to get predictions, %s",
			strings.Join(p.UnknownServices, ", "), p.Remedy)
	}
	if m := p.Measuring; m != nil {
		d.Text("%s", measuredText(m))
	}
	// The error by shape shows where the predictor is wrong, and the bound how much that costs.
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
		// A service that was given up waits for somebody to act, so the command is there to paste.
		switch {
		case s.Fault != "" && s.State != "" && !s.Ready:
			d.Heading("the model of %s could not be loaded: %s; the next query tries again", s.Name, s.Fault)
		case s.Fault != "":
			d.Heading("%s has failed permanently: %s; fix the cause, then run: overlapd restart %[1]s", s.Name, s.Fault)
		}
		if s.Cut != nil {
			d.Heading("%s is cut into %s: %s", s.Name, report.Count(s.Cut.Operators, "operator"), s.Cut.Reason)
		}
	}
}

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cmd/overlapd/load"
	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/lab/synthetic"
	"github.com/overlapd/overlapd/models"
)

func demoCommand() *cobra.Command {
	o := demo{seed: 1}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See in a second what overlapping gains, on an emulated GPU",
		Long: `Demo compares four scheduling policies on an emulated GPU and shows what overlapping
gains. Start here: it needs no GPU, no ONNX Runtime and no data. Three services run in
virtual time. Demo shows what runs when, and the highest load of each policy with at
most 1 % of the queries late or rejected. All policies use dynamic batching.

Then it runs a daemon on the same emulated device under load, with its dashboard,
until Ctrl-C. With --headless or --json it ends after the comparison.`,
		Example: `  overlapd demo
  overlapd demo --headless --duration 10s --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.headless, "headless", false, "only compare; start no daemon")
	f.DurationVar(&o.duration, "duration", 0, "how long the load lasts: in virtual time with --headless (default 3s), else on the daemon (default until Ctrl-C)")
	f.StringVar(&o.listen, "listen", "", "address of the daemon (default 127.0.0.1:8000, or another port if that is taken)")
	f.Uint64Var(&o.seed, "seed", o.seed, "seed of the virtual-time comparison")
	o.Flags(f)
	return cmd
}

type demo struct {
	cli.Output
	headless bool
	duration time.Duration
	listen   string
	seed     uint64
}

// What is served: models of the device, with targets in the range of those of the
// Abacus paper, 50 to 150 ms.
var demoServices = []struct {
	model   string
	target  time.Duration
	seqLens []int
}{
	{"resnet50", 50 * time.Millisecond, nil},
	{"inception_v3", 100 * time.Millisecond, nil},
	{"bert", 75 * time.Millisecond, []int{8, 16, 32, 64}},
}

// Queries have one of these batch sizes, each as likely, and are merged up to the
// largest batch that the device knows.
var demoSizes = []int{2, 4, 8, 16}

const (
	demoQPS        = 850 // is what all are put under: somewhat less than what ours bears
	demoMaxBatch   = 32
	demoViolations = 0.01            // of the queries, at the highest load that counts
	demoVirtual    = 3 * time.Second // of load, in each run
	demoLongest    = 10 * time.Minute
	demoOurs       = "overlap"
	demoMerging    = "edf" // merges as ours does, one batch at a time
)

// demoPolicies are what is compared, ours last.
var demoPolicies = []string{"fcfs", "edf", "abacus", demoOurs}

// comparison is what came out in virtual time.
type comparison struct {
	QPS      float64      `json:"qps"` // that all were put under
	Policies []demoPolicy `json:"policies"`
	Gain     float64      `json:"gain"` // highest load of ours over that of demoMerging
	Best     string       `json:"best_other"`
	OverBest float64      `json:"gain_over_best_other"`
	Seed     uint64       `json:"seed"`
	Device   string       `json:"device"`
	Commit   string       `json:"commit"`
}

type demoPolicy struct {
	Policy     string  `json:"policy"`
	GoodputQPS float64 `json:"goodput_qps"`
	Violations float64 `json:"violations"`
	HighestQPS float64 `json:"highest_qps"` // with at most 1 % violations

	serve func(qps float64, watch func(*sim.Round)) (*sim.Result, error)
	spans []demoSpan // of the load that all were put under
}

// demoSpan is operators of a batch of a service that ran.
type demoSpan struct {
	service    models.ServiceID
	start, end time.Duration
}

func (o *demo) run(cmd *cobra.Command) error {
	if o.duration < 0 || o.duration > demoLongest && o.headless {
		return fmt.Errorf("--duration is %v; give 0 to %v", o.duration, demoLongest)
	}
	virtual := demoVirtual
	if o.headless || o.JSON {
		virtual = cmp.Or(o.duration, virtual)
	}
	c, err := newComparison(o.seed, virtual)
	if err == nil {
		err = c.each((*demoPolicy).record)
	}
	out := newPainter(cmd.OutOrStdout())
	if err == nil && !o.JSON {
		err = c.draw(out) // before the rest, which takes most of the second
	}
	if err == nil {
		err = c.each((*demoPolicy).findHighest)
	}
	if err != nil {
		return err
	}
	c.judge()
	if err := o.Print(out.to, c, func(io.Writer) error { return c.write(out) }); err != nil || o.headless || o.JSON {
		return err
	}
	return o.serve(out.to, 0.75*c.QPS)
}

// newComparison returns the policies with the load that they are to serve.
func newComparison(seed uint64, virtual time.Duration) (*comparison, error) {
	profile, trained := synthetic.Device(), synthetic.Predictor()
	c := &comparison{QPS: demoQPS, Policies: make([]demoPolicy, len(demoPolicies)), Seed: seed, Device: "emulated: " + profile.Device, Commit: cli.Commit()}
	for i, name := range demoPolicies {
		on, err := device.NewModel(profile) // each its own, since it remembers what it was asked
		if err != nil {
			return nil, err
		}
		p := &c.Policies[i]
		p.Policy = name
		p.serve = func(qps float64, watch func(*sim.Round)) (*sim.Result, error) {
			sc := sim.Scenario{
				Arrivals: sim.Arrivals{Process: sim.Poisson, QPS: qps, Scale: 1, Keep: 1}, Queries: max(int(qps*virtual.Seconds()), 1),
				Seed: seed, Policy: name, Plan: true, Device: on, DeviceName: profile.Device, Predictor: trained,
			}
			sc.Observer.Round = watch
			for _, s := range demoServices {
				sc.Services = append(sc.Services, sim.Service{Name: s.model, Target: s.target, MaxBatch: demoMaxBatch, Sizes: demoSizes, SeqLens: s.seqLens})
			}
			return sim.Run(sc)
		}
	}
	return c, nil
}

// judge puts ours beside the best of the others.
func (c *comparison) judge() {
	others, ours := c.Policies[:len(c.Policies)-1], c.Policies[len(c.Policies)-1]
	best := slices.MaxFunc(others, func(a, b demoPolicy) int { return cmp.Compare(a.HighestQPS, b.HighestQPS) })
	c.Best, c.OverBest = best.Policy, ours.HighestQPS/best.HighestQPS
	c.Gain = ours.HighestQPS / others[slices.Index(demoPolicies, demoMerging)].HighestQPS
}

// each does something with all policies at once.
func (c *comparison) each(do func(*demoPolicy) error) error {
	faults := make([]error, len(c.Policies))
	var all sync.WaitGroup
	for i := range c.Policies {
		all.Go(func() { faults[i] = do(&c.Policies[i]) })
	}
	all.Wait()
	return errors.Join(faults...)
}

// record serves the load of all and keeps what came out, and what ran when.
func (p *demoPolicy) record() error {
	r, err := p.serve(demoQPS, func(r *sim.Round) {
		for _, s := range r.Spans {
			p.spans = append(p.spans, demoSpan{s.Service, r.Start, r.End})
		}
	})
	if err == nil {
		p.GoodputQPS, p.Violations = r.GoodputQPS, r.Violations
	}
	return err
}

// findHighest finds about the highest load with few violations.
func (p *demoPolicy) findHighest() error {
	const (
		first = 200  // queries per second
		near  = 1.02 // of what is found to what is too much
	)
	tooMuch := math.Inf(1)
	for qps := float64(first); tooMuch/p.HighestQPS > near; {
		r, err := p.serve(qps, nil)
		if err != nil {
			return err
		}
		if r.Violations > demoViolations {
			tooMuch = qps
		} else {
			p.HighestQPS = qps
		}
		if qps = (p.HighestQPS + tooMuch) / 2; math.IsInf(tooMuch, 1) {
			qps = 2 * p.HighestQPS
		}
	}
	return nil
}

// draw shows what ran when, one batch at a time and under ours.
func (c *comparison) draw(p *painter) error {
	fmt.Fprintf(p.picture, "\nThe GPU is emulated: all times are formulas, and nothing is computed (docs/device.md).\n")
	for _, shown := range []struct{ policy, how string }{
		{demoMerging, "one batch at a time"},
		{demoOurs, "operators of several services at the same time"},
	} {
		i := slices.Index(demoPolicies, shown.policy)
		fmt.Fprintf(p.picture, "\n  %s: %s\n\n", shown.policy, shown.how)
		p.lanes(c.Policies[i].spans)
	}
	return p.picture.Flush()
}

// write gives the numbers.
func (c *comparison) write(p *painter) error {
	d := new(report.Document)
	targets := make([]string, len(demoServices))
	for i, s := range demoServices {
		targets[i] = fmt.Sprintf("%s %v", s.model, s.target)
	}
	d.Text("%.0f queries/s, batch sizes %v; targets: %s", c.QPS, demoSizes, strings.Join(targets, ", "))
	t := report.NewTable("", "in time/s", "late or rejected", "highest load with at most 1 % of them")
	for _, p := range c.Policies {
		t.Rowf("%s\t%.0f\t%.1f %%\t%.0f/s", p.Policy, p.GoodputQPS, 100*p.Violations, p.HighestQPS)
	}
	d.Table(t)
	fmt.Fprintln(p.to)
	if err := d.WriteText(p.to); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.to, "\n%s\n", p.bold(fmt.Sprintf("overlap sustains %.2f times the load of %s, which also batches, and %.2f times that of\nthe best other policy (%s), with at most 1 %% late or rejected.", c.Gain, demoMerging, c.OverBest, c.Best)))
	return err
}

// painter draws on a terminal in colours, and elsewhere without.
type painter struct {
	to      io.Writer
	picture *bufio.Writer // the same, for what is drawn character by character
	colours bool
	columns int
}

// Of a picture: what it begins with, when everything runs, and how long it is.
const (
	laneFrom    = time.Second
	laneTime    = 150 * time.Millisecond
	laneColumns = 75 // at most, and without a terminal
	laneName    = 16
)

// laneColours are a light and a dark one for each service, by the numbers of terminals
// with 256 colours, so that one batch can be told from the next.
var laneColours = [][2]int{{39, 32}, {208, 172}, {77, 71}}

func newPainter(to io.Writer) *painter {
	p := &painter{to: to, columns: laneColumns}
	// What is painted is our own, so that no character needs to be made harmless.
	if behind, terminal := cli.Behind(to); terminal {
		p.to = behind
		p.colours = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if width := cli.Columns(to); width > 0 {
			p.columns = min(max(width-laneName-2, 10), laneColumns)
		}
	}
	p.picture = bufio.NewWriter(p.to)
	return p
}

func (p *painter) bold(text string) string {
	if !p.colours {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// lanes draws a row for each service, with what ran in the middle of each column.
func (p *painter) lanes(spans []demoSpan) {
	for i, s := range demoServices {
		fmt.Fprintf(p.picture, "  %-*s", laneName-2, s.model)
		of := slices.DeleteFunc(slices.Clone(spans), func(d demoSpan) bool { return int(d.service) != i })
		for x := range p.columns {
			at := laneFrom + laneTime*time.Duration(2*x+1)/time.Duration(2*p.columns)
			ran := slices.IndexFunc(of, func(d demoSpan) bool { return d.start <= at && at < d.end })
			switch {
			case ran < 0:
				fmt.Fprint(p.picture, "·")
			case p.colours:
				fmt.Fprintf(p.picture, "\x1b[38;5;%dm█\x1b[0m", laneColours[i][ran%2])
			default:
				fmt.Fprint(p.picture, []string{"█", "▒"}[ran%2])
			}
		}
		fmt.Fprintln(p.picture)
	}
	fmt.Fprintf(p.picture, "%*s0 ms%*s\n", laneName, "", p.columns-4, laneTime)
}

// serve runs a daemon on the device under load until a signal stops it, or the time for
// it is over.
func (o *demo) serve(out io.Writer, qps float64) (err error) {
	dir, err := os.MkdirTemp("", "overlapd-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := o.config(dir)
	if err != nil {
		return err
	}
	ctx, hurry, stop, release := serving.StopSignals()
	defer release()
	log := serving.NewLogger(c, os.Stderr)
	d, err := o.open(c, log)
	if err != nil {
		return err
	}
	var loading sync.WaitGroup
	loading.Go(func() {
		defer stop()
		lerr := o.load(ctx, out, d, qps)
		if ctx.Err() == nil && lerr != nil {
			log.Error().Err(lerr).Msg("putting load on the daemon")
		}
	})
	err = d.Run(ctx, hurry)
	stop()
	loading.Wait()
	return err
}

// config is that of a daemon that has all its files in a folder.
func (o *demo) config(dir string) (config.Config, error) {
	c := config.Default()
	c.Device, c.StateDir, c.GRPCListen, c.LogLevel = "emulated", dir, "", "error"
	c.Admin.Socket = ""
	c.Listen = cmp.Or(o.listen, c.Listen)
	c.DeviceProfile, c.Predictor.File = filepath.Join(dir, "gpu.device.json"), filepath.Join(dir, "gpu.predictor.json")
	for _, s := range demoServices {
		of := config.DefaultService()
		of.Name, of.Model, of.Target, of.MaxBatch = s.model, config.EmulatedPrefix+s.model, s.target, demoMaxBatch
		c.Services = append(c.Services, of)
	}
	return c, errors.Join(synthetic.Device().WriteFile(c.DeviceProfile), synthetic.Predictor().WriteFile(c.Predictor.File), c.Validate())
}

// open opens the daemon, on any port if nobody has asked for one and the usual one is
// taken.
func (o *demo) open(c config.Config, log zerolog.Logger) (*daemon.Daemon, error) {
	d, err := serving.NewDaemon(c, serving.DaemonOptions(log))
	if errors.Is(err, unix.EADDRINUSE) && o.listen == "" {
		c.Listen = "127.0.0.1:0"
		d, err = serving.NewDaemon(c, serving.DaemonOptions(log))
	}
	return d, err
}

// demoConnections is how many connections each service gets from the load of each
// size. The daemon gives one address half of its connections, and whoever watches the
// demo has the same address.
const demoConnections = 16

// load puts queries of all sizes on the daemon, and says where to look once it answers.
func (o *demo) load(ctx context.Context, out io.Writer, d *daemon.Daemon, qps float64) error {
	for !d.Ready() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	end := "until Ctrl-C"
	if o.duration > 0 {
		end = fmt.Sprintf("for %v", o.duration)
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, o.duration)
		defer done()
	}
	url := "http://" + d.Addr().String()
	fmt.Fprintf(out, "\nlive, %s, emulated, under %.0f queries/s: %s/\n", end, qps, url)
	fmt.Fprintf(out, "in another terminal: %s top --url %s\n", os.Args[0], url)
	faults := make([]error, len(demoSizes))
	var each sync.WaitGroup
	for i, size := range demoSizes {
		run := load.DefaultOptions()
		run.URL, run.Rate, run.Batch, run.Seed, run.Warmup = url, qps/float64(len(demoSizes)), size, uint64(i), 0
		run.Connections = demoConnections * len(demoServices)
		run.Duration = time.Minute // a run after another, since each lists its arrivals beforehand
		for _, s := range demoServices {
			run.Services = append(run.Services, s.model)
			if s.seqLens != nil {
				run.SeqLen = s.seqLens[i%len(s.seqLens)]
			}
		}
		each.Go(func() {
			for faults[i] == nil && ctx.Err() == nil {
				_, faults[i] = load.Run(ctx, run)
			}
		})
	}
	each.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(faults...)
}

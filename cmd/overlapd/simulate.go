package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/sim/bound"
)

func simulateCommand() *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Try services, loads and policies on a modelled device, in virtual time",
		Long: `Simulate serves made-up queries with the scheduler and the predictor of the
daemon, on a device that is a profile, in virtual time. The same seed gives the
same result, and every policy meets the same queries.

A service has the name of a model of the profile, or is written name=model. Its
queries have each of --sizes and --seq-lens as likely; without these, those that
the model was measured with. Without --targets a service promises twice what its
largest query takes alone.

Queries come by --arrivals: poisson, constant, gamma:SHAPE (a shape below 1 makes
bursts), mmpp:QPS/MEAN,QPS/MEAN (states with their mean time), times:FILE (a CSV
file with a column time_s or timestamp, and perhaps size, seq_len and service),
or loads:FILE (one with a column load, the queries of each minute). --scale
multiplies the rate, --keep is the share that is kept.

Violations are queries answered late, dropped, refused or failed, of all that
were submitted. Without a predictor, groups are taken to last as long as their
spans one after another, and the policy overlap overlaps nothing.`,
		Example: `  overlapd simulate --device a100.device.json --services resnet50,bert --qps 100 --queries 1000
  overlapd simulate --device a100.device.json --predictor a100.predictor.json \
      --services resnet152,inception_v3 --targets 150ms,90ms --policy fcfs,edf,abacus,overlap --max-batch 32
  overlapd simulate --device a100.device.json --services resnet50,bert --arrivals loads:loads.csv \
      --devices 16 --dispatch least-loaded
  overlapd simulate --scenario scenario.json --trace run.json     then open it in Perfetto

A scenario file is a JSON object:
  {"device": "a100.device.json", "policies": ["edf", "overlap"], "queries": 1000, "seed": 1,
   "services": [{"name": "resnet50", "target_ms": 100, "sizes": [4, 8], "max_batch": 32, "share": 2},
                {"name": "bert", "target_ms": 75, "seq_lens": [8, 64]}],
   "arrivals": {"process": "gamma", "qps": 100, "shape": 0.5},
   "faults": {"every_s": 60, "restart_s": 2}, "clients": {"leaving": 0.01, "timeout_ms": 500}}`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.flags(cmd.Flags())
	return cmd
}

// simulateOptions are the flags. What is not set is left to the scenario file,
// or to the defaults.
type simulateOptions struct {
	flag     scenarioFile
	scenario string
	services []string
	arrivals string
	targets  []time.Duration
	sizes    []int
	seqLens  []int
	maxBatch int
	decision time.Duration
	round    time.Duration
	trace    string
	bound    bool
	asJSON   bool
}

func (o *simulateOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.scenario, "scenario", "", "scenario file; flags go before what it says")
	f.StringVar(&o.flag.Device, "device", "", "profile of the device (*.device.json)")
	f.StringVar(&o.flag.Predictor, "predictor", "", "predictor that the scheduler uses (*.predictor.json)")
	f.StringSliceVar(&o.flag.Policies, "policy", []string{"overlap"}, "policies: "+strings.Join(policyNames(), ", "))
	f.StringSliceVar(&o.services, "services", nil, "services, by their models")
	f.DurationSliceVar(&o.targets, "targets", nil, "QoS targets of the services in `durations`, such as 90ms,1s, or one for all")
	f.Lookup("targets").DefValue = "" // or it says []
	f.IntSliceVar(&o.sizes, "sizes", nil, "batch sizes of queries")
	f.IntSliceVar(&o.seqLens, "seq-lens", nil, "sequence lengths of queries, for models that have them")
	f.IntVar(&o.maxBatch, "max-batch", 1, "largest batch that queries are merged into, 1 for no merging")
	f.StringVar(&o.arrivals, "arrivals", "poisson", "how queries come")
	f.Float64Var(&o.flag.Arrivals.QPS, "qps", 100, "queries per second of poisson, constant and gamma, over all services")
	f.Float64Var(&o.flag.Arrivals.Scale, "scale", 1, "times the rate")
	f.Float64Var(&o.flag.Arrivals.Keep, "keep", 1, "share of the queries that is kept")
	f.IntVar(&o.flag.Queries, "queries", 1000, "queries, 0 for all of a file")
	f.Uint64Var(&o.flag.Seed, "seed", 1, "seed of everything random")
	f.IntVar(&o.flag.Devices, "devices", 1, "devices, all alike, with all services on each")
	f.StringVar(&o.flag.Dispatch, "dispatch", sim.RoundRobin, "to which device a query goes: round-robin, random, least-loaded, or central for a queue before all")
	f.IntVar(&o.flag.Ways, "ways", 0, "groups that a search asks about at once, 0 for the default")
	f.BoolVar(&o.flag.Plan, "plan", false, "choose the next group while one runs")
	f.StringVar(&o.flag.Knows, "knows", sim.KnowsAll, "what the scheduler knows of latencies: all, order (of queries, for sjf) or nothing; without all it drops only what is past its deadline, as the server of the Abacus authors does")
	f.DurationVar(&o.decision, "decision-time", 0, "time that a decision takes that was not planned")
	f.DurationVar(&o.round, "round-time", 0, "time that a round takes besides its group")
	f.StringVar(&o.trace, "trace", "", "write the timeline to this file, in the Chrome trace format; of one policy")
	f.BoolVar(&o.bound, "bound", false, fmt.Sprintf("tell too what no schedule does better than, of up to %d queries", bound.MaxQueries))
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object")
}

// check refuses flags whose zero would be taken for what is usual.
func (o *simulateOptions) check() error {
	switch {
	case len(o.flag.Policies) == 0:
		return fmt.Errorf("no policy: name some of %s with --policy", strings.Join(policyNames(), ", "))
	case o.flag.Devices == 0:
		return errors.New("--devices is 0; simulate at least one")
	case o.flag.Arrivals.Scale == 0:
		return errors.New("--scale is 0, so that no query would come; give a factor above 0")
	case o.flag.Arrivals.Keep == 0:
		return errors.New("--keep is 0, so that no query would be left; give a share above 0")
	case len(o.seqLens) > 0 && slices.Min(o.seqLens) < 0:
		return fmt.Errorf("--seq-lens has %d; give lengths of 0 or more", slices.Min(o.seqLens))
	}
	return nil
}

// file joins the scenario file and the flags.
func (o *simulateOptions) file(set *pflag.FlagSet) (*scenarioFile, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	f := &o.flag
	if o.scenario != "" {
		var err error
		if f, err = readScenario(o.scenario); err != nil {
			return nil, err
		}
	}
	given := func(name string) bool { return o.scenario == "" || set.Changed(name) }
	for name, take := range map[string]func(){
		"device":        func() { f.Device = o.flag.Device },
		"predictor":     func() { f.Predictor = o.flag.Predictor },
		"queries":       func() { f.Queries = o.flag.Queries },
		"seed":          func() { f.Seed = o.flag.Seed },
		"devices":       func() { f.Devices = o.flag.Devices },
		"dispatch":      func() { f.Dispatch = o.flag.Dispatch },
		"ways":          func() { f.Ways = o.flag.Ways },
		"plan":          func() { f.Plan = o.flag.Plan },
		"knows":         func() { f.Knows = o.flag.Knows },
		"qps":           func() { f.Arrivals.QPS = o.flag.Arrivals.QPS },
		"scale":         func() { f.Arrivals.Scale = o.flag.Arrivals.Scale },
		"keep":          func() { f.Arrivals.Keep = o.flag.Arrivals.Keep },
		"decision-time": func() { f.DecisionMicros = micro(o.decision) },
		"round-time":    func() { f.RoundMicros = micro(o.round) },
	} {
		if given(name) {
			take()
		}
	}
	if given("policy") || len(f.Policies) == 0 {
		f.Policies = o.flag.Policies
	}
	if given("arrivals") {
		if err := f.Arrivals.parse(o.arrivals); err != nil {
			return nil, err
		}
	}
	return f, o.takeServices(f, given)
}

// takeServices takes over what flags say of the services.
func (o *simulateOptions) takeServices(f *scenarioFile, given func(string) bool) error {
	if given("services") {
		f.Services = nil
		for _, s := range o.services {
			name, model, _ := strings.Cut(s, "=")
			f.Services = append(f.Services, scenarioService{Name: name, Model: model})
		}
	}
	if len(f.Services) == 0 {
		return errors.New("no services: name models of the device with --services")
	}
	if n := len(o.targets); n > 1 && n != len(f.Services) {
		return fmt.Errorf("%d targets for %d services: give --targets one for each, or one for all", n, len(f.Services))
	}
	for i := range f.Services {
		s := &f.Services[i]
		if len(o.targets) > 0 {
			s.TargetMillis = micro(o.targets[min(i, len(o.targets)-1)]) / 1000
			if s.TargetMillis <= 0 {
				return fmt.Errorf("target %v of service %s: give one above 0", o.targets[min(i, len(o.targets)-1)], s.Name)
			}
		}
		if given("sizes") {
			s.Sizes = o.sizes
		}
		if given("seq-lens") {
			s.SeqLens = o.seqLens
		}
		if given("max-batch") {
			s.MaxBatch = o.maxBatch
		}
	}
	return nil
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// simulateResult is what simulate prints with --json for one policy.
type simulateResult struct {
	*sim.Result
	Bound  *bound.Bound `json:"bound,omitempty"`
	Device string       `json:"device"`
	Commit string       `json:"commit"`
}

// simulateResults is the same for several.
type simulateResults struct {
	Results []*sim.Result `json:"results"`
	Bound   *bound.Bound  `json:"bound,omitempty"`
	Seed    uint64        `json:"seed"`
	Device  string        `json:"device"`
	Commit  string        `json:"commit"`
}

func (o *simulateOptions) run(cmd *cobra.Command) error {
	f, err := o.file(cmd.Flags())
	if err != nil {
		return err
	}
	for _, p := range f.Policies {
		if !slices.Contains(policyNames(), p) {
			return fmt.Errorf("unknown policy %q: want some of %s", p, strings.Join(policyNames(), ", "))
		}
	}
	if o.trace != "" && len(f.Policies) != 1 {
		return errors.New("a trace shows one policy: name one with --policy")
	}
	sc, err := f.scenario()
	if err != nil {
		return err
	}
	least, err := o.boundOf(sc)
	if err != nil {
		return err
	}
	if len(f.ignored) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "overlapd: columns of %s that are passed over: %s\n", f.Arrivals.File, strings.Join(f.ignored, ", "))
	}
	var results []*sim.Result
	for _, sc.Policy = range f.Policies {
		r, err := o.simulate(sc)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	label := "emulated"
	if sc.DeviceName != "" {
		label += ": " + sc.DeviceName
	}
	switch {
	case o.asJSON && len(results) == 1:
		return printJSON(cmd.OutOrStdout(), simulateResult{results[0], least, label, buildCommit()})
	case o.asJSON:
		return printJSON(cmd.OutOrStdout(), simulateResults{results, least, f.Seed, label, buildCommit()})
	}
	return errors.Join(writeSimulated(cmd.OutOrStdout(), &sc, label, results), writeBound(cmd.OutOrStdout(), least))
}

// simulate runs one policy, and writes its timeline if that is asked for.
func (o *simulateOptions) simulate(sc sim.Scenario) (r *sim.Result, err error) {
	if o.trace == "" {
		return sim.Run(sc)
	}
	w, err := os.Create(o.trace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	trace := sim.NewTrace(w, sc.Services)
	sc.Observer = trace.Observer()
	if r, err = sim.Run(sc); err != nil {
		return nil, err
	}
	return r, trace.Close()
}

// writeSimulated prints a line for each policy and, of one alone, one for each
// service.
func writeSimulated(w io.Writer, sc *sim.Scenario, label string, results []*sim.Result) error {
	first := results[0]
	fmt.Fprintf(w, "%s, devices: %d; %d queries in %.1f s of virtual time, seed %d; one after another they would keep a device busy for %.0f %% of it\n",
		label, first.Devices, first.Queries, first.Seconds, first.Seed, 100*first.Offered)
	for i := range sc.Services {
		fmt.Fprintf(w, "%s: target %v, sizes %v", sc.Services[i].Name, sc.Services[i].Target, sc.Services[i].Sizes)
		if len(sc.Services[i].SeqLens) > 0 {
			fmt.Fprintf(w, ", sequence lengths %v", sc.Services[i].SeqLens)
		}
		fmt.Fprintln(w)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\t\tviolations\tp99/target\tanswered/s\tin time/s\tspans/round\tmerged\tbusy\tprediction off\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t\t%.2f %%\t%.3f\t%.1f\t%.1f\t%.2f\t%d\t%.0f %%\t%.1f %%\t\n",
			r.Policy, 100*r.Violations, r.P99OverTarget, r.ThroughputQPS, r.GoodputQPS, spansOf(r), r.Merged, 100*r.Busy, r.Prediction.MAPE)
		if len(results) > 1 {
			continue
		}
		for i := range r.Services {
			s := &r.Services[i]
			fmt.Fprintf(t, "\t%s\t%.2f %%\t%.3f\t%.1f\t%.1f\t\t\t\t\t\n", s.Name, 100*s.Violations, s.P99OverTarget, s.ThroughputQPS, s.GoodputQPS)
		}
	}
	return t.Flush()
}

// spansOf returns the spans of a round in the mean.
func spansOf(r *sim.Result) float64 {
	spans := 0
	for i, n := range r.Groups {
		spans += (i + 1) * n
	}
	return float64(spans) / float64(max(r.Rounds, 1))
}

// boundOf returns what no schedule of a scenario's queries does better than, or
// nil if that is not asked for.
func (o *simulateOptions) boundOf(sc sim.Scenario) (*bound.Bound, error) {
	if !o.bound {
		return nil, nil
	}
	b, err := bound.Of(sc)
	if err != nil {
		return nil, fmt.Errorf("--bound: %w", err)
	}
	return b, nil
}

// writeBound prints a bound below the results.
func writeBound(w io.Writer, b *bound.Bound) error {
	if b == nil {
		return nil
	}
	how := "as a relaxation"
	if b.Exact {
		how = "all sets of queries tried"
	}
	_, err := fmt.Fprintf(w, "offline bound: no schedule has fewer violations than %.2f %%, even one that knows all queries beforehand (%s; of %d groups the best gains %.2f times)\n",
		100*b.Violations, how, b.Tried, b.Gain)
	return err
}

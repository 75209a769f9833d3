package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/lab/baselines"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/lab/sim/bound"
	"github.com/overlapd/overlapd/lab/synthetic"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

func simulateCommand() *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Compare policies under a load on a modelled device, in virtual time",
		Long: `Simulate serves generated queries with the daemon's scheduler and predictor on a
modelled device, in virtual time. Use it to compare policies, targets and loads without
a GPU. The same seed gives the same result, and every policy gets the same queries.

A service is the name of a model of the device profile, or NAME=MODEL. Its queries have
the batch sizes of --sizes and the lengths of --seq-lens with equal probability; the
default is those that the model was measured with, or size 1 on a linear device
(overlapd-lab device fit --format linear). The default target is that of the profile, or
twice the isolated latency of the service's largest query.

Queries arrive by --arrivals: poisson, constant, gamma:SHAPE (a shape below 1 makes
bursts), mmpp:QPS/MEAN,QPS/MEAN (states with their mean duration), times:FILE (CSV with
a column time_s or timestamp, and optionally size, seq_len and service), or loads:FILE
(CSV with a column load, the queries of each minute).

Violations are the queries that were answered late, dropped, rejected or failed, as a
fraction of all queries. Without a predictor, operators are assumed to run one after
another, and the policy overlap overlaps nothing. Without --device the device is a
synthetic GPU, made of formulas, with the models resnet50, resnet152, inception_v3,
vgg19 and bert, and with a predictor.`,
		Example: `  overlapd-lab simulate --services resnet50,bert --targets 75ms --max-batch 32 --qps 400 --policy edf,abacus,overlap
  overlapd-lab simulate --device a100.device.json --predictor a100.predictor.json \
      --services resnet152,inception_v3 --targets 150ms,90ms --policy fcfs,edf,abacus,overlap --max-batch 32
  overlapd-lab simulate --device a100.device.json --services resnet50,bert --arrivals loads:loads.csv \
      --devices 16 --dispatch least-loaded
  overlapd-lab simulate --services resnet50,bert --max-batch 32 --qps 400 --policy edf,static,overlap --shares 40,60
  overlapd-lab simulate --scenario scenario.json --trace run.json     then open it in Perfetto

A scenario file is a JSON object:
  {"device": "a100.device.json", "policies": ["edf", "overlap"], "queries": 1000, "seed": 1,
   "services": [{"name": "resnet50", "target_ms": 100, "sizes": [4, 8], "max_batch": 32, "share": 2},
                {"name": "bert", "target_ms": 75, "seq_lens": [8, 64]}],
   "arrivals": {"process": "gamma", "qps": 100, "shape": 0.5},
   "faults": {"every_s": 60, "restart_s": 2}, "clients": {"leaving": 0.01, "timeout_ms": 500}}
With "devices": 4, "dispatch": "pool" a service may have "on": [0, 2], the devices of its workers.
With "dispatch": "orca" devices are pods that may start and stop:
  "pods": {"starting": 2, "start_up_s": 5, "drain_every_s": 10, "fail_every_s": 30, "slow": 4, "slowed": 2}`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.scenario, "scenario", "", "scenario file; flags override it")
	f.StringVar(&o.file.Device, "device", "", "device profile (*.device.json), by default a synthetic GPU with its predictor")
	f.StringVar(&o.file.Predictor, "predictor", "", "predictor for the scheduler (*.predictor.json)")
	serving, comparing := policyNames()
	f.StringSliceVar(&o.file.Policies, "policy", []string{"overlap"}, "policies: "+strings.Join(serving, ", ")+"; only for comparison: "+strings.Join(comparing, ", "))
	f.StringSliceVar(&o.services, "services", nil, "services, by the names of their models")
	f.DurationSliceVar(&o.targets, "targets", nil, "latency targets of the services in `durations`, such as 90ms,1s, or one for all")
	f.Lookup("targets").DefValue = "" // or it says []
	f.IntSliceVar(&o.shares, "shares", nil, "with the policy static: percentage of the device reserved for each service")
	f.IntSliceVar(&o.sizes, "sizes", nil, "batch sizes of queries")
	f.IntSliceVar(&o.seqLens, "seq-lens", nil, "sequence lengths of queries, for models that have them")
	f.IntVar(&o.maxBatch, "max-batch", 1, "largest batch of dynamic batching, for all policies; 1 turns it off")
	f.StringVar(&o.arrivals, "arrivals", "poisson", "arrival process of the queries")
	f.Float64Var(&o.file.Arrivals.QPS, "qps", 100, "queries per second of poisson, constant and gamma, all services together")
	f.Float64Var(&o.file.Arrivals.Scale, "scale", 1, "factor for the rate")
	f.Float64Var(&o.file.Arrivals.Keep, "keep", 1, "fraction of the queries to keep")
	f.IntVar(&o.file.Queries, "queries", 1000, "number of queries, 0 for all of a file")
	f.Uint64Var(&o.file.Seed, "seed", 1, "seed of all random choices")
	f.IntVar(&o.file.Devices, "devices", 1, "number of equal devices, with all services on each")
	f.StringVar(&o.file.Dispatch, "dispatch", sim.RoundRobin, "how queries are assigned to devices: round-robin; random; least-loaded; pool, one scheduler for all devices; split, a plan that gives each device its services, as in Nexus; orca, by Envoy's weights from device reports; or orca-two, the better of two random devices by their reports")
	f.IntVar(&o.file.Balancers, "balancers", 1, "number of load balancers; each sees only its own queries and the device reports")
	f.DurationVar(&o.file.ReportAge, "report-age", time.Second, "interval of device reports, with orca and orca-two")
	f.IntVar(&o.file.Ways, "ways", 0, "groups that the scheduler predicts per call, 0 for the default")
	f.BoolVar(&o.file.Plan, "plan", false, "choose the next group while one runs")
	f.StringVar(&o.file.Knows, "knows", sim.KnowsAll, "what the scheduler knows of latencies: all; order (of queries, for sjf); or nothing. Unless it knows all, it drops only queries past their deadline, as the server of the Abacus authors does")
	f.DurationVar(&o.file.DecisionTime, "decision-time", 0, "time of a decision that was not planned ahead")
	f.DurationVar(&o.file.RoundTime, "round-time", 0, "overhead of a round in addition to its group")
	f.StringVar(&o.trace, "trace", "", "write the timeline of one policy to this file, in the Chrome trace format")
	f.BoolVar(&o.bound, "bound", false, fmt.Sprintf("also print the violations that no schedule can avoid, for up to %d queries, and those of a schedule with foresight, for up to %d", bound.MaxQueries, bound.MaxForeseen))
	o.Flags(f)
	return cmd
}

// simulateOptions are the flags, which go before the scenario file.
type simulateOptions struct {
	cli.Output
	file     scenarioFile
	scenario string
	services []string
	arrivals string
	targets  []time.Duration
	shares   []int
	sizes    []int
	seqLens  []int
	maxBatch int
	trace    string
	bound    bool
}

// join adds what the flags say to the scenario file, or to nothing. It refuses flags
// whose zero the simulator would take for its default.
func (o *simulateOptions) join(set *pflag.FlagSet) error {
	switch {
	case len(o.file.Policies) == 0:
		return fmt.Errorf("no policy: name some of %s with --policy", strings.Join(slices.Concat(policyNames()), ", "))
	case o.file.Devices == 0:
		return errors.New("--devices is 0: give 1 or more")
	case o.file.Balancers == 0:
		return errors.New("--balancers is 0: give 1 or more")
	case o.file.ReportAge == 0:
		return errors.New("--report-age is 0: give 1ms or more")
	case o.file.Arrivals.Scale == 0:
		return errors.New("--scale is 0, so no query would arrive: give a factor above 0")
	case o.file.Arrivals.Keep == 0:
		return errors.New("--keep is 0, so no query would remain: give a fraction above 0")
	case len(o.seqLens) > 0 && slices.Min(o.seqLens) < 0:
		return fmt.Errorf("--seq-lens contains %d: give lengths of 0 or more", slices.Min(o.seqLens))
	}
	policies := o.file.Policies
	if o.scenario != "" {
		if err := o.readScenario(set); err != nil {
			return err
		}
	}
	given := func(name string) bool { return o.scenario == "" || set.Changed(name) }
	if given("policy") || len(o.file.Policies) == 0 {
		o.file.Policies = policies
	}
	if given("arrivals") {
		if err := o.file.Arrivals.parse(o.arrivals); err != nil {
			return err
		}
	}
	return o.takeServices(given)
}

// readScenario replaces what the flags say by the file, and sets those that were given again.
func (o *simulateOptions) readScenario(set *pflag.FlagSet) (err error) {
	given := map[string]string{}
	set.Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
	if o.file, err = readScenario(o.scenario); err != nil {
		return err
	}
	set.Visit(func(f *pflag.Flag) {
		if _, list := f.Value.(pflag.SliceValue); !list {
			err = errors.Join(err, f.Value.Set(given[f.Name]))
		}
	})
	return err
}

func (o *simulateOptions) takeServices(given func(string) bool) error {
	services := o.file.Services
	if given("services") {
		services = nil
		for _, s := range o.services {
			name, model, _ := strings.Cut(s, "=")
			services = append(services, scenarioService{Service: sim.Service{Name: name, Model: model}})
		}
	}
	if len(services) == 0 {
		return errors.New("no services: name models of the device with --services")
	}
	if n := len(o.targets); n > 1 && n != len(services) {
		return fmt.Errorf("%d targets for %d services: give --targets one for each, or one for all", n, len(services))
	}
	if n := len(o.shares); n > 0 && n != len(services) {
		return fmt.Errorf("%d shares for %d services: give --shares one for each", n, len(services))
	}
	for i := range services {
		s := &services[i]
		if len(o.shares) > 0 {
			s.Percentage = o.shares[i]
		}
		if len(o.targets) > 0 {
			if s.Target = o.targets[min(i, len(o.targets)-1)]; s.Target <= 0 {
				return fmt.Errorf("service %[2]s: target %[1]v is not positive: give one above 0", s.Target, s.Name)
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
	o.file.Services = services
	return nil
}

// targetOverSolo is the paper's target over the time of the largest query alone.
const targetOverSolo = 2

// scenarioFile is a scenario as files and flags have it: with the paths of files, and
// in files with units in the names of fields. What needs neither is in the Scenario.
type scenarioFile struct {
	sim.Scenario
	Device    string            `json:"device"`
	Predictor string            `json:"predictor"`
	Policies  []string          `json:"policies"`
	Services  []scenarioService `json:"services"`
	Arrivals  scenarioArrivals  `json:"arrivals"`

	DecisionMicros float64 `json:"decision_us"`
	RoundMicros    float64 `json:"round_us"`
	ReportMillis   float64 `json:"report_age_ms"`
	Pods           struct {
		Slow              int     `json:"slow"`
		Slowed            float64 `json:"slowed"`
		Starting          int     `json:"starting"`
		StartUpSeconds    float64 `json:"start_up_s"`
		DrainEverySeconds float64 `json:"drain_every_s"`
		FailEverySeconds  float64 `json:"fail_every_s"`
	} `json:"pods"`
	Faults struct {
		EverySeconds   float64 `json:"every_s"`
		RestartSeconds float64 `json:"restart_s"`
		Failing        float64 `json:"failing"`
	} `json:"faults"`
	Clients struct {
		Leaving       float64 `json:"leaving"`
		TimeoutMillis float64 `json:"timeout_ms"`
	} `json:"clients"`
}

type scenarioService struct {
	sim.Service
	TargetMillis float64 `json:"target_ms"`
}

type scenarioArrivals struct {
	sim.Arrivals
	File string `json:"file"`
}

var (
	errScenario  = errors.New("not a scenario")
	scenarioKind = textfile.Kind[scenarioFile]{MaxBytes: 16 << 20, Foreign: errScenario, Damaged: errScenario, Remedy: "see overlapd-lab simulate --help for an example"}
)

// readScenario reads a scenario file. Relative paths in it start from its folder.
func readScenario(path string) (f scenarioFile, err error) {
	read, err := scenarioKind.ReadFile(path)
	if err != nil {
		return f, err
	}
	f = *read
	for _, p := range []*string{&f.Device, &f.Predictor, &f.Arrivals.File} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	f.DecisionTime, f.RoundTime = time.Duration(f.DecisionMicros*float64(time.Microsecond)), time.Duration(f.RoundMicros*float64(time.Microsecond))
	sc, seconds := &f.Scenario, func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	sc.Faults.Every, sc.Faults.Restart = seconds(f.Faults.EverySeconds), seconds(f.Faults.RestartSeconds)
	sc.ReportAge = time.Duration(f.ReportMillis * float64(time.Millisecond))
	sc.Pods.Starting, sc.Pods.StartUp = f.Pods.Starting, seconds(f.Pods.StartUpSeconds)
	sc.Pods.DrainEvery, sc.Pods.FailEvery = seconds(f.Pods.DrainEverySeconds), seconds(f.Pods.FailEverySeconds)
	sc.Faults.Failing = f.Faults.Failing
	sc.Clients.Leaving, sc.Clients.Timeout = f.Clients.Leaving, time.Duration(f.Clients.TimeoutMillis*float64(time.Millisecond))
	for i := range f.Services {
		f.Services[i].Target = time.Duration(f.Services[i].TargetMillis * float64(time.Millisecond))
	}
	return f, nil
}

// scenario reads the files that f names. Columns that mean nothing are ignored.
func (f *scenarioFile) scenario() (sc sim.Scenario, ignored []string, err error) {
	profile, trained := synthetic.Device(), synthetic.Predictor()
	if f.Device != "" {
		trained = nil
		if profile, err = device.ReadFile(f.Device); err != nil {
			return sc, nil, err
		}
	}
	on, err := device.NewModel(profile)
	if err != nil {
		return sc, nil, err
	}
	sc = f.Scenario
	sc.Scheduler = baselines.New
	sc.Device, sc.DeviceName, sc.Predictor, sc.Arrivals = on, profile.Device, trained, f.Arrivals.Arrivals
	if slow := f.Pods.Slow; slow > 0 && slow <= sc.Devices {
		sc.Slow = slices.Concat(slices.Repeat([]float64{f.Pods.Slowed}, slow), slices.Repeat([]float64{1}, sc.Devices-slow))
	} else if slow != 0 {
		return sc, nil, fmt.Errorf("%d slow pods: give 0 to %d, the number of devices", slow, sc.Devices)
	}
	if f.Predictor != "" {
		if sc.Predictor, err = predictor.ReadFile(f.Predictor); err != nil {
			return sc, nil, err
		}
	}
	for _, s := range f.Services {
		if err := complete(&s.Service, on); err != nil {
			return sc, nil, err
		}
		sc.Services = append(sc.Services, s.Service)
	}
	switch process := sc.Arrivals.Process; {
	case process != sim.Times && process != sim.Loads:
	case f.Arrivals.File == "":
		err = fmt.Errorf("arrivals are %s, but no file is given", process)
	case process == sim.Times:
		ignored, err = sim.GiveRecorded(&sc, f.Arrivals.File)
	default:
		sc.Arrivals.Loads, err = sim.ReadLoads(f.Arrivals.File)
	}
	return sc, ignored, err
}

// complete gives a service a target, and the shapes that its model was measured with.
func complete(sv *sim.Service, on *device.Model) error {
	sv.Model = cmp.Or(sv.Model, sv.Name)
	at := on.Index(sv.Model)
	if at < 0 {
		var names []string
		for _, m := range on.Models() {
			names = append(names, m.Name)
		}
		return fmt.Errorf("service %s: the device has no model %s; it has %s", sv.Name, sv.Model, strings.Join(names, ", "))
	}
	m := on.Models()[at]
	switch {
	case len(sv.Sizes) > 0:
	case on.Linear():
		sv.Sizes = []int{1}
	default:
		sv.Sizes = m.Sizes
	}
	sv.Target = cmp.Or(sv.Target, time.Duration(m.TargetMillis*float64(time.Millisecond)))
	if most := slices.Max(m.SeqLens); most == 0 {
		sv.SeqLens = nil
	} else if len(sv.SeqLens) == 0 {
		sv.SeqLens = m.SeqLens
	}
	if sv.Target == 0 {
		whole := models.Span{Service: models.ServiceID(at), End: m.Operators, Size: slices.Max(sv.Sizes)}
		if len(sv.SeqLens) > 0 {
			whole.SeqLen = slices.Max(sv.SeqLens)
		}
		solo := on.Latency(models.Group{Spans: []models.Span{whole}})
		sv.Target = (targetOverSolo * solo).Round(time.Microsecond)
	}
	return nil
}

func (a *scenarioArrivals) parse(text string) error {
	name, rest, _ := strings.Cut(text, ":")
	*a = scenarioArrivals{Arrivals: sim.Arrivals{Process: name, QPS: a.QPS, Scale: a.Scale, Keep: a.Keep}}
	var err error
	switch name {
	case sim.Times, sim.Loads:
		if a.File = rest; rest == "" {
			err = errors.New("no file is given")
		}
	case sim.Gamma:
		if a.Shape, err = strconv.ParseFloat(rest, 64); err != nil {
			err = fmt.Errorf("%q is not a shape", rest)
		}
	case sim.MMPP:
		for part := range strings.SplitSeq(rest, ",") {
			qps, mean, _ := strings.Cut(part, "/")
			rate, e1 := strconv.ParseFloat(qps, 64)
			lasts, e2 := time.ParseDuration(mean)
			a.States = append(a.States, sim.State{QPS: rate, Seconds: lasts.Seconds()})
			if err == nil && (e1 != nil || e2 != nil) {
				err = fmt.Errorf("%q is not a state", part)
			}
		}
	case sim.Poisson, sim.Constant:
		if rest != "" {
			err = fmt.Errorf("%q is not expected; give the rate with --qps", rest)
		}
	default:
		err = errors.New("no such process")
	}
	if err != nil {
		return fmt.Errorf("--arrivals %s: %w; want poisson, constant, gamma:SHAPE, mmpp:QPS/MEAN,QPS/MEAN, times:FILE or loads:FILE", text, err)
	}
	return nil
}

// policyNames returns the policies of the daemon, and those that only simulations have.
func policyNames() (serving, comparing []string) {
	for _, p := range overlap.Policies() {
		serving = append(serving, p.Name)
	}
	for _, p := range overlap.Comparisons() {
		comparing = append(comparing, p.Name)
	}
	for _, p := range baselines.Policies() {
		comparing = append(comparing, p.Name)
	}
	return serving, comparing
}

func (o *simulateOptions) run(cmd *cobra.Command) error {
	if err := o.join(cmd.Flags()); err != nil {
		return err
	}
	f, known := &o.file, slices.Concat(policyNames())
	for _, p := range f.Policies {
		if !slices.Contains(known, p) {
			return fmt.Errorf("unknown policy %q: give some of %s", p, strings.Join(known, ", "))
		}
	}
	if o.trace != "" && len(f.Policies) != 1 {
		return errors.New("a trace shows one policy: name one with --policy")
	}
	sc, ignored, err := f.scenario()
	if err != nil {
		return err
	}
	var least *bound.Bound
	if o.bound {
		if least, err = bound.Of(sc); err != nil {
			return fmt.Errorf("--bound: %w", err)
		}
		if least.Foresight, err = bound.Foresee(sc); err != nil && !errors.Is(err, bound.ErrTooMany) {
			return fmt.Errorf("--bound: %w", err)
		}
	}
	if len(ignored) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "overlapd-lab: ignored columns of %s: %s\n", f.Arrivals.File, strings.Join(ignored, ", "))
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
	var all any = struct {
		Results []*sim.Result `json:"results"`
		Bound   *bound.Bound  `json:"bound,omitempty"`
		Seed    uint64        `json:"seed"`
		Device  string        `json:"device"`
		Commit  string        `json:"commit"`
	}{results, least, f.Seed, label, cli.Commit()}
	if len(results) == 1 {
		all = struct {
			*sim.Result
			Bound  *bound.Bound `json:"bound,omitempty"`
			Device string       `json:"device"`
			Commit string       `json:"commit"`
		}{results[0], least, label, cli.Commit()}
	}
	return o.Print(cmd.OutOrStdout(), all, simulated(&sc, label, results, least).WriteText)
}

// simulate runs one policy, and writes its timeline if that is asked for.
func (o *simulateOptions) simulate(sc sim.Scenario) (r *sim.Result, err error) {
	if o.trace == "" {
		return sim.Run(sc)
	}
	err = textfile.Create(o.trace, func(w io.Writer) error {
		closeTrace := sim.Trace(&sc, w)
		if r, err = sim.Run(sc); err != nil {
			return err
		}
		return closeTrace()
	})
	return r, err
}

// simulated reports each policy and, of one alone, each service.
func simulated(sc *sim.Scenario, label string, results []*sim.Result, least *bound.Bound) *report.Document {
	d := new(report.Document)
	first := results[0]
	d.Text("%s, devices: %d; %d queries in %.1f s of virtual time, seed %d; their isolated latencies add up to %.0f %% of the device time",
		label, first.Devices, first.Queries, first.Seconds, first.Seed, 100*first.Offered)
	for _, s := range sc.Services {
		lengths := ""
		if len(s.SeqLens) > 0 {
			lengths = fmt.Sprintf(", sequence lengths %v", s.SeqLens)
		}
		d.Text("%s: target %v, sizes %v%s", s.Name, s.Target, s.Sizes, lengths)
	}
	if most := slices.MaxFunc(sc.Services, func(a, b sim.Service) int { return cmp.Compare(a.MaxBatch, b.MaxBatch) }).MaxBatch; most > 1 {
		d.Text("all policies batch queries, up to batch size %d", most)
	} else {
		d.Text("no policy batches queries; give --max-batch to batch in all")
	}
	if p := first.Pods; p != nil {
		d.Text("under %s: pods drained: %d, failed: %d; queries sent to another pod: %d", first.Policy, p.Drained, p.Failed, p.Retried)
	}
	t := report.NewTable("", "", "violations", "p99/target", "answered/s", "in time/s", "spans/round", "merged", "busy", "prediction off")
	for _, r := range results {
		spans := 0
		for i, n := range r.Groups {
			spans += (i + 1) * n
		}
		t.Rowf("%s\t\t%.2f %%\t%.3f\t%.1f\t%.1f\t%.2f\t%d\t%.0f %%\t%.1f %%",
			r.Policy, 100*r.Violations, r.P99OverTarget, r.ThroughputQPS, r.GoodputQPS, float64(spans)/float64(max(r.Rounds, 1)), r.Merged, 100*r.Busy, r.Prediction.MAPE)
		if len(results) == 1 {
			for _, s := range r.Services {
				t.Rowf("\t%s\t%.2f %%\t%.3f\t%.1f\t%.1f", s.Name, 100*s.Violations, s.P99OverTarget, s.ThroughputQPS, s.GoodputQPS)
			}
		}
	}
	d.Table(t)
	if least != nil {
		d.Text("offline bound: no schedule has fewer violations than %.2f %%, even with knowledge of all queries (a relaxation; of %d groups the best gains %.2f times)",
			100*least.Violations, least.Tried, least.Gain)
		if f := least.Foresight; f != nil {
			d.Text("foresight: a schedule with knowledge of all queries, which cuts no models, answers %d of %d in time; no other of its kind answers more than %d", f.InTime, least.Queries, f.AtMost)
		}
	}
	return d
}

package reproduce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/predictor"
)

// PPipe reproduces the figures of the PPipe paper, as [Run] does those of Abacus.
func PPipe(ctx context.Context, o Options) (*Result, error) {
	if _, err := o.check(ppipeFigures); err != nil {
		return nil, err
	}
	d, err := readBlocks(o.Data)
	if err != nil {
		return nil, err
	}
	r := o.result("Emulated: no GPU was used. Blocks take the time that the authors measured, moves that of their size and the bandwidth, in virtual time, and nothing else takes time; the scheduler is that of the daemon.", d.sha256, "clusters as in table 1")
	r.title = "PPipe, reproduced"
	r.about = "Our numbers appear next to those that the paper states for its simulator, and in figure 13 for 16 real GPUs."
	// The runs of this paper have a duration, not a number of queries.
	r.Queries = 0
	for _, s := range append(slices.Clone(systems), reactive, overlapped) {
		r.Policies = append(r.Policies, policy{s.name, s.summary})
	}
	for _, w := range sharing {
		r.Policies = append(r.Policies, policy{w.name, w.summary})
	}
	of := &reproduction{options: &o, blocks: d, result: r, stocks: map[stockKey]*stock{}}
	// Only the figure of shared devices needs the data of Abacus.
	if o.wants("shared") && exists(filepath.Join(o.Data, abacusFolder)) {
		if of.data, err = readData(o.Data); err == nil {
			err = errors.Join(of.data.atClocks(ctx), os.MkdirAll(filepath.Join(o.Out, fittedFolder), 0o755))
		}
	}
	if err != nil {
		return nil, err
	}
	return of.write(ctx, ppipeFigures)
}

// PPipeFigures returns the values of Options.Figures for PPipe.
func PPipeFigures() []string { return namesOf(ppipeFigures) }

// PPipeSeeds is the default number of runs at each load. One is enough, because figure 6 averages
// over 432 searches.
const PPipeSeeds = 1

// PPipeQueries is the largest number of queries of a run. A run is as long as the paper's,
// hybridSeconds, unless that takes more queries. hybridBad is the fraction of queries that may be
// late.
const (
	PPipeQueries  = 60_000
	hybridSeconds = 30.0
	hybridBad     = 0.01

	// hybridSteps is the number of load factors tried, from 0 to 1.
	hybridSteps    = 20
	hybridPlanTime = time.Minute
)

// hybrid is a cluster of two classes of GPU, the better one first. perServer is the number of GPUs
// of a server, by class. A server sends and receives at a fifth of its bandwidth each (section
// 7.1), which is gbps. The numbers are those of the authors' plans.
type hybrid struct {
	// name is the paper's name of the cluster.
	name string

	// classes are the two classes of GPU.
	classes []string

	// devices and perServer are by class.
	devices   []int
	perServer []int
	gbps      float64
}

// hybrids are the clusters of table 1 (PPipe).
var hybrids = []hybrid{
	{"HC1", []string{"L4", "P4"}, []int{25, 75}, []int{1, 1}, 6},
	{"HC2", []string{"L4", "T4"}, []int{25, 75}, []int{4, 2}, 10},
	{"HC3", []string{"V100", "P4"}, []int{25, 75}, []int{2, 1}, 6},
	{"HC4", []string{"V100", "T4"}, []int{25, 75}, []int{4, 2}, 10},
}

// pool returns the cluster as input for planning.
func (h *hybrid) pool() (list []planning.Device) {
	link := 0
	for c, class := range h.classes {
		for i := range h.devices[c] {
			// The devices of a server share its link.
			if i%h.perServer[c] == 0 {
				link++
			}
			list = append(list, planning.Device{Name: fmt.Sprintf("%s-%d", class, i), Memory: 1, Speed: 1, Class: class, Link: link})
		}
	}
	return list
}

// system is a way to serve a group of models on a cluster: a policy, and a function that plans
// pipelines of a largest number of stages.
type system struct {
	// name and summary describe the system in the result.
	name, summary string

	// policy is the name in package overlap.
	policy string

	// stages is the most stages of a pipeline.
	stages int

	// plan is a function of package planning.
	plan func(context.Context, []planning.Service, []planning.Device, int, planning.Search) (*planning.Placement, error)
}

// The contenders of the paper, and ours.
var (
	ppipe      = system{"PPipe", "pools of devices of two classes, one after another, with reservations; a device runs one batch at a time", "edf", 2, planning.Pipe}
	dart       = system{"DART-r", "chains of one device of each class, with reservations; the remaining devices run whole models", "edf", 2, planning.Chains}
	unparted   = system{"NP", "no partitions: each device runs whole models", "edf", 1, planning.Pipe}
	reactive   = system{"reactive", "PPipe's plan; each pool on its own takes the largest batch that its part of the target allows", "reactive", 3, planning.Pipe}
	overlapped = system{"overlap", "ours: PPipe's plan, with reservations; other batches that the predictor admits run alongside", "overlap", 3, planning.Pipe}

	systems = []system{ppipe, dart, unparted}
)

// make returns the services with the pipelines that the system plans for a cluster.
func (s *system) make(ctx context.Context, h *hybrid, services []planning.Service) ([]planning.Service, error) {
	services = slices.Clone(services)
	for i := range services {
		services[i].Pipelines = nil
	}
	p, err := s.plan(ctx, services, h.pool(), s.stages, planning.Search{Limit: hybridPlanTime})
	if err != nil {
		return nil, err
	}
	return p.Services, nil
}

// planned returns the rate that a service's plan sustains, in queries a second.
func planned(s *planning.Service) (rate float64) {
	for _, w := range s.Pipelines {
		rate += w.Rate
	}
	return rate
}

// hybridGroups are G1 to G6 of section 7.2. The file names of the authors' published plans show the
// models of each group, and their program shows the order. Names are cut where they stay unique.
var hybridGroups = [][]string{
	{"efficientnet-b8", "encnet", "rtmdet"},
	{"colorization", "googlenet", "repvgg"},
	{"apcnet", "atss", "gcnet"},
	{"fcn", "gfl", "wide_resnet101"},
	{"centernet", "convnext", "dnl"},
	{"fsaf", "nonlocal", "tf_efficientdet_d1"},
}

// The fractions of the load of the models in a group (milp_solver in the authors' program).
var (
	poissonShares = []float64{0.30, 0.33, 0.37}
	burstyShares  = []float64{0.39, 0.26, 0.35}
)

// services returns the models with the given beginnings of names, as services of a cluster. Each
// has its share of the load, the paper's target times scale, and a margin for planning.
func (d *blockData) services(h *hybrid, names []string, shares []float64, scale, margin float64) (list []planning.Service) {
	for i, name := range names {
		at := slices.IndexFunc(d.models, func(s planning.Service) bool { return strings.HasPrefix(s.Name, name) })
		// The model is copied before its rate, target and moves change.
		s := d.models[at]
		s.Rate = 1
		if shares != nil {
			s.Rate = shares[i]
		}
		s.Target *= scale
		s.Blocks.Margin = margin
		s.Blocks.Moves = slices.Clone(s.Blocks.Moves)
		for k := range s.Blocks.Moves {
			s.Blocks.Moves[k] *= d.gbps / h.gbps
		}
		list = append(list, s)
	}
	return list
}

// laid is a set of services with their pipelines, laid out for one scheduler. Each part of a device
// that a stage has becomes a device of its own. The devices of a stage are on servers of their own.
type laid struct {
	*hybrid

	// services have the pipelines that were planned.
	services []planning.Service
	policy   string

	// list holds the services in the simulator's form, and links the link of each device.
	list  []sim.Service
	links []int

	// kinds is the kind of each device.
	kinds []kindOf
}

// kindOf is a share of a device of a class.
type kindOf struct {
	// class is the class of the whole device.
	class string

	// share is the number of equal parts that the device is divided into.
	share int
}

// lay lays out planned services on the cluster.
func lay(h *hybrid, policy string, services ...planning.Service) *laid {
	l := &laid{hybrid: h, services: services, policy: policy}
	link := 0
	for _, s := range services {
		served := sim.Service{Name: s.Name, Target: time.Duration(s.Target * float64(time.Millisecond)), QueueLimit: queueRoom}
		for _, w := range s.Pipelines {
			way := models.Pipeline{Batch: w.Batch}
			for _, stage := range w.Stages {
				// Devices are numbered in the order in which stages get them. No two stages share
				// one.
				to := models.Stage{End: stage.End, Move: time.Duration(stage.Move * float64(time.Microsecond))}
				perLink := stage.Share * h.perServer[slices.Index(h.classes, stage.Class)]
				for k := range stage.Devices {
					if k%perLink == 0 {
						link++
					}
					to.Devices = append(to.Devices, len(l.kinds))
					l.kinds, l.links = append(l.kinds, kindOf{stage.Class, stage.Share}), append(l.links, link)
				}
				served.On = append(served.On, to.Devices...)
				way.Stages = append(way.Stages, to)
			}
			served.MaxBatch = max(served.MaxBatch, way.Batch)
			served.Pipelines = append(served.Pipelines, way)
		}
		l.list = append(l.list, served)
	}
	return l
}

// blockDevice returns a device on which a batch takes the sum of the times of its blocks.
func blockDevice(services []planning.Service, k kindOf) (*device.Model, error) {
	p := &device.Profile{Format: device.Format, Device: fmt.Sprintf("1/%d of %s", k.share, k.class), Rows: len(services)}
	// The device runs one span at a time, so it needs no network.
	p.Network.Spans = 1
	for _, s := range services {
		batches := s.Blocks.Times[k.class][k.share-1]
		m := predictor.FeatureModel{Name: s.Name, Operators: len(s.Blocks.Ends), MaxSize: len(batches)}
		for b, micros := range batches {
			// The cost of an operator stands for that of a block.
			m.Costs = append(m.Costs, predictor.CostCell{Size: b + 1, Micros: micros, Work: micros})
		}
		p.Network.Models = append(p.Network.Models, m)
	}
	return device.NewModel(p)
}

// hybridRun is the result of serving queries at a load factor.
type hybridRun struct {
	*sim.Result

	// factor is the fraction of the full load.
	factor float64

	// use is the busy fraction of each class of the cluster. A part of a device counts as that
	// part.
	use []float64
}

// attained returns the fraction of the queries in time, as a mean over services.
func (r *hybridRun) attained() (sum float64) {
	for _, s := range r.Services {
		sum += (1 - s.Violations) / float64(len(r.Services))
	}
	return sum
}

// serve serves the given queries.
func (l *laid) serve(given []sim.Query, seed uint64) (run hybridRun, err error) {
	if len(given) == 0 {
		return hybridRun{Result: &sim.Result{}}, nil
	}
	sc := sim.Scenario{Services: l.list, Given: given, Seed: seed, Policy: l.policy, Devices: len(l.kinds), Dispatch: sim.Pool, Links: l.links}
	// Devices of the same kind share a model.
	made, kinds := map[kindOf]sim.Device{}, []kindOf(nil)
	for _, k := range l.kinds {
		if made[k] == nil {
			if made[k], err = blockDevice(l.services, k); err != nil {
				return run, err
			}
			kinds = append(kinds, k)
		}
		sc.Kinds = append(sc.Kinds, made[k])
	}
	// The device with the smallest share number was measured with the largest batches.
	sc.Device = made[slices.MinFunc(kinds, func(a, b kindOf) int { return a.share - b.share })]
	if run.Result, err = sim.Run(sc); err != nil {
		return run, err
	}
	run.use = make([]float64, len(l.classes))
	for i, k := range run.Kinds {
		c := slices.Index(l.classes, kinds[i].class)
		// Parts of a device count as fractions of it.
		run.use[c] += k.Busy * float64(k.Devices) / float64(kinds[i].share*l.devices[c])
	}
	return run, nil
}

// arrivals returns queries for services at the given rates: a Poisson process or, with a trace, the
// folded trace.
func (o *Options) arrivals(rates []float64, bursty []float64, seed uint64) (list []sim.Query) {
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	// The queries of all services together are limited.
	seconds := min(hybridSeconds, float64(o.Queries)/sum)
	for i, rate := range rates {
		add := func(at float64) {
			list = append(list, sim.Query{At: time.Duration(at * float64(time.Second)), Service: models.ServiceID(i), Size: 1})
		}
		if bursty != nil {
			folded(bursty, rate, seconds, add)
			continue
		}
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		for at := random.ExpFloat64() / rate; at < seconds; at += random.ExpFloat64() / rate {
			add(at)
		}
	}
	slices.SortStableFunc(list, func(a, b sim.Query) int { return cmp.Compare(a.At, b.At) })
	return list
}

// folded brings a trace to a rate as the authors' program does. It cuts the trace into pieces of
// the length that this rate requires, overlays them, and repeats the result.
func folded(trace []float64, rate, seconds float64, add func(at float64)) {
	// length is the time in which the rate brings as many queries as the trace has.
	last := trace[len(trace)-1]
	length := float64(len(trace)-1) / rate
	var parts []float64
	for _, at := range trace {
		parts = append(parts, math.Mod(at, min(length, last)))
	}
	slices.Sort(parts)
	for begin := 0.0; begin < seconds; begin += length {
		for _, at := range parts {
			if begin+at < seconds {
				add(begin + at)
			}
		}
	}
}

// search returns the run at the highest load factor, of those that the paper tries, at which at
// most 1 % of the queries are not in time. Factor 1 stands for the given rate. The search starts at
// the factor that the plan promises.
func (l *laid) search(ctx context.Context, o *Options, rate float64, bursty []float64, seed uint64) (best hybridRun, err error) {
	best.Result, best.use = &sim.Result{}, make([]float64, len(l.classes))
	try := func(step int) (bool, error) {
		factor := float64(step) / hybridSteps
		run, err := l.serve(o.arrivals([]float64{factor * rate}, bursty, seed), seed)
		if err = cmp.Or(err, ctx.Err()); err != nil || run.Violations > hybridBad {
			return false, err
		}
		run.factor = factor
		best = run
		return true, nil
	}
	// Try the factor that the plan promises, then higher ones while they hold, or else lower ones
	// until one holds.
	first := max(min(int(planned(&l.services[0])/rate*hybridSteps), hybridSteps), 1)
	kept, err := try(first)
	for step := first + 1; kept && err == nil && step <= hybridSteps; step++ {
		kept, err = try(step)
	}
	for step := first - 1; best.factor == 0 && err == nil && step > 0; step-- {
		_, err = try(step)
	}
	return best, err
}

// The names of folders and files below the folder with data.
const (
	blocksFolder  = "ppipe"
	timingsFolder = "block-timing-tf32"
	casesFolder   = "plans-ablation"
	burstyFile    = "traces/azure-llm-2023/AzureLLMInferenceTrace_code.csv"
)

// blockData holds the authors' measurements, and the arrivals of a trace.
type blockData struct {
	// models are the services, with moves over a link of gbps gigabits a second.
	models []planning.Service
	gbps   float64

	// bursty holds the arrivals of the trace in seconds, or is nil.
	bursty []float64

	// sha256 identifies the files that were read.
	sha256 string

	// hosted holds the groups on clusters, with the key true for bursty arrivals.
	hosted map[bool][]*hosted
}

// names returns the names of all models.
func (d *blockData) names() (list []string) {
	for _, s := range d.models {
		list = append(list, s.Name)
	}
	return list
}

// readBlocks reads the authors' measurements, and the inputs of their plans for single models.
// Those plans leave a tenth of the target free.
func readBlocks(dir string) (*blockData, error) {
	trace, err := readBursty(filepath.Join(dir, burstyFile))
	if err != nil {
		return nil, err
	}
	if inside := filepath.Join(dir, blocksFolder); exists(inside) {
		dir = inside
	}
	d, timings := &blockData{bursty: trace, gbps: 10, hosted: map[bool][]*hosted{}}, filepath.Join(dir, timingsFolder)
	paths, err := filepath.Glob(filepath.Join(dir, casesFolder, "*_v4.json"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s: %w: it has no plans of the authors for single models; give the folder of their artifact", filepath.Join(dir, casesFolder), errData)
	}
	for _, path := range paths {
		c, _, err := planning.ReadPPipe(timings, path, nil)
		if err != nil {
			return nil, err
		}
		// The authors' plans have the target less the margin, so the margin is added again.
		s := c.Services[0]
		s.Target /= 1 - ablationMargin
		s.Blocks.Fill = 0
		if s.Pipelines, err = readReference(path, s.Blocks.Moves); err != nil {
			return nil, err
		}
		for _, h := range hybrids {
			for _, class := range h.classes {
				if s.Blocks.Times[class], err = planning.ReadBlocks(timings, s.Name, class); err != nil {
					return nil, err
				}
			}
		}
		d.models = append(d.models, s)
	}
	for _, name := range slices.Concat(hybridGroups...) {
		if !slices.ContainsFunc(d.models, func(s planning.Service) bool { return strings.HasPrefix(s.Name, name) }) {
			return nil, fmt.Errorf("%s: %w: it has no plan for the model %s; give the folder of the authors' artifact", filepath.Join(dir, casesFolder), errData, name)
		}
	}
	tables, err := filepath.Glob(filepath.Join(timings, "*.csv"))
	if err == nil {
		d.sha256, err = hashOf(dir, append(tables, paths...)...)
	}
	return d, err
}

// readReference reads the pipelines of an authors' plan for a single model.
func readReference(path string, moves []float64) (list []planning.Pipeline, err error) {
	var plans []struct {
		Pipelines []struct {
			Rate   float64 `json:"xput"`
			Stages []struct {
				Blocks [2]int `json:"layers"`
				Class  string `json:"gpu"`

				// Share is the number of parts of the device, less 1.
				Share int     `json:"mps"`
				Batch int     `json:"bs"`
				GPUs  float64 `json:"num_gpu"`
			} `json:"partitions"`
		} `json:"pipelines"`
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &plans)
	}
	if err != nil || len(plans) == 0 {
		return nil, cmp.Or(err, fmt.Errorf("%s: %w: it has no plan; give one of the authors' files", path, errData))
	}
	for _, p := range plans[0].Pipelines {
		way := planning.Pipeline{Rate: p.Rate}
		for i, s := range p.Stages {
			way.Batch = s.Batch
			to := planning.Stage{Start: s.Blocks[0], End: s.Blocks[1], Class: s.Class, Share: s.Share + 1}
			// Only the number of devices matters here. They are numbered when services are laid
			// out.
			to.Devices = make([]string, int(math.Round(s.GPUs*float64(to.Share))))
			if i < len(p.Stages)-1 {
				to.Move = moves[s.Blocks[1]-1]
			} else {
				to.End = len(moves) + 1
			}
			way.Stages = append(way.Stages, to)
		}
		list = append(list, way)
	}
	return list, nil
}

// readBursty reads the arrivals of a trace. It returns nil if the file does not exist.
func readBursty(path string) (seconds []float64, err error) {
	if !exists(path) {
		return nil, nil
	}
	var sc sim.Scenario
	if _, err := sim.GiveRecorded(&sc, path); err != nil {
		return nil, err
	}
	for _, at := range sc.Arrivals.Times {
		seconds = append(seconds, at.Seconds())
	}
	return seconds, nil
}

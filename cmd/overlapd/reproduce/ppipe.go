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

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/sim"
)

// PPipe reproduces the figures of the PPipe paper, as Run those of Abacus.
func PPipe(ctx context.Context, o Options) (*Result, error) {
	if _, err := o.check(ppipeFigures); err != nil {
		return nil, err
	}
	d, err := readBlocks(o.Data)
	if err != nil {
		return nil, err
	}
	r := o.result("Emulated: no GPU was used. Blocks take what the authors measured and moves what their size and the bandwidth say, in virtual time, and nothing else takes any; the scheduler is that of the daemon.", d.sha256, "clusters as in table 1")
	r.title = "PPipe, reproduced"
	r.about = "Beside ours stands what the paper says in words of its simulator, figure 13 of 16 real GPUs."
	r.Queries = 0 // runs last 30 s
	for _, s := range append(slices.Clone(systems), reactive, overlapped) {
		r.Policies = append(r.Policies, policy{s.name, s.summary})
	}
	for _, w := range sharing {
		r.Policies = append(r.Policies, policy{w.name, w.summary})
	}
	of := &reproduction{options: &o, blocks: d, result: r, stocks: map[stockKey]*stock{}}
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

// PPipeFigures lists what Options.Figures may name for PPipe.
func PPipeFigures() []string { return namesOf(ppipeFigures) }

// PPipeSeeds is how many runs there are of each load unless options say otherwise. The
// 432 searches of figure 6 take away what a single one has of chance.
const PPipeSeeds = 1

// PPipeQueries is how many queries a run has at most. It lasts as long as the paper's unless
// these are fewer.
const (
	PPipeQueries   = 60_000
	hybridSeconds  = 30.0
	hybridBad      = 0.01
	hybridSteps    = 20 // of the load factor from 0 to 1
	hybridPlanTime = time.Minute
)

// hybrid is a cluster of two classes of GPU, the better one first. A server has so many
// of a class, and sends and receives at a fifth of its bandwidth each (section 7.1), which
// are gbps; the numbers are those that the authors plan with.
type hybrid struct {
	name      string
	classes   []string
	devices   []int
	perServer []int
	gbps      float64
}

var hybrids = []hybrid{
	{"HC1", []string{"L4", "P4"}, []int{25, 75}, []int{1, 1}, 6},
	{"HC2", []string{"L4", "T4"}, []int{25, 75}, []int{4, 2}, 10},
	{"HC3", []string{"V100", "P4"}, []int{25, 75}, []int{2, 1}, 6},
	{"HC4", []string{"V100", "T4"}, []int{25, 75}, []int{4, 2}, 10},
}

// pool returns the cluster as planning sees it.
func (h *hybrid) pool() (list []planning.Device) {
	link := 0
	for c, class := range h.classes {
		for i := range h.devices[c] {
			if i%h.perServer[c] == 0 {
				link++
			}
			list = append(list, planning.Device{Name: fmt.Sprintf("%s-%d", class, i), Memory: 1, Speed: 1, Class: class, Link: link})
		}
	}
	return list
}

// system is a way to serve a group of models on a cluster: a policy, and a plan of pipelines
// with so many stages at most.
type system struct {
	name, summary string
	policy        string
	stages        int
	plan          func(context.Context, []planning.Service, []planning.Device, int, planning.Search) (*planning.Placement, error)
}

// The contenders of the paper, and ours.
var (
	ppipe      = system{"PPipe", "pools of devices of two classes, one after the other, by reservation; a device runs one batch at a time", "edf", 2, planning.Pipe}
	dart       = system{"DART-r", "chains of one device of each class, by reservation; devices that are over run whole models", "edf", 2, planning.Chains}
	unparted   = system{"NP", "no partitions: each device runs whole models", "edf", 1, planning.Pipe}
	reactive   = system{"reactive", "PPipe's plan; each pool by itself takes the largest batch that its part of the target allows", "reactive", 3, planning.Pipe}
	overlapped = system{"overlap", "ours: PPipe's plan, by reservation; what else fits by the predictor runs beside a batch", "overlap", 3, planning.Pipe}

	systems = []system{ppipe, dart, unparted}
)

// make returns services with the pipelines that they have on a cluster.
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

// planned is how many queries a second a plan is for.
func planned(s *planning.Service) (rate float64) {
	for _, w := range s.Pipelines {
		rate += w.Rate
	}
	return rate
}

// groups are G1 to G6 of section 7.2: the names of the plans that the authors publish say
// which models each has, and their program the order. Names are shortened where nothing is
// lost.
var hybridGroups = [][]string{
	{"efficientnet-b8", "encnet", "rtmdet"},
	{"colorization", "googlenet", "repvgg"},
	{"apcnet", "atss", "gcnet"},
	{"fcn", "gfl", "wide_resnet101"},
	{"centernet", "convnext", "dnl"},
	{"fsaf", "nonlocal", "tf_efficientdet_d1"},
}

// The parts of the load that the models of a group get (milp_solver in the authors' program).
var (
	poissonShares = []float64{0.30, 0.33, 0.37}
	burstyShares  = []float64{0.39, 0.26, 0.35}
)

// services returns models whose names begin so, as a cluster serves them: with shares of the
// load, targets so many times as long as the paper's, and a margin of them for plans.
func (d *blockData) services(h *hybrid, names []string, shares []float64, scale, margin float64) (list []planning.Service) {
	for i, name := range names {
		at := slices.IndexFunc(d.models, func(s planning.Service) bool { return strings.HasPrefix(s.Name, name) })
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

// laid is services with their pipelines, as one scheduler has them. Each part of a device
// that a stage has is a device of its own; those of a stage are on servers of their own.
type laid struct {
	*hybrid
	services []planning.Service
	policy   string

	list  []sim.Service
	links []int
	kinds []kindOf // of each device
}

// kindOf is a share of a device of a class.
type kindOf struct {
	class string
	share int
}

func lay(h *hybrid, policy string, services ...planning.Service) *laid {
	l := &laid{hybrid: h, services: services, policy: policy}
	link := 0
	for _, s := range services {
		served := sim.Service{Name: s.Name, Target: time.Duration(s.Target * float64(time.Millisecond)), QueueLimit: queueRoom}
		for _, w := range s.Pipelines {
			way := models.Pipeline{Batch: w.Batch}
			for _, stage := range w.Stages {
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

// blockDevice returns the device on which the batches of services take the sum of what
// their blocks do.
func blockDevice(services []planning.Service, k kindOf) (*device.Model, error) {
	p := &device.Profile{Format: device.Format, Device: fmt.Sprintf("1/%d of %s", k.share, k.class), Rows: len(services)}
	p.Network.Spans = 1
	for _, s := range services {
		batches := s.Blocks.Times[k.class][k.share-1]
		m := predictor.FeatureModel{Name: s.Name, Operators: len(s.Blocks.Ends), MaxSize: len(batches)}
		for b, micros := range batches {
			m.Costs = append(m.Costs, predictor.CostCell{Size: b + 1, Micros: micros, Work: micros})
		}
		p.Network.Models = append(p.Network.Models, m)
	}
	return device.NewModel(p)
}

// hybridRun is what became of queries at a load factor.
type hybridRun struct {
	*sim.Result
	factor float64
	use    []float64 // of the devices of each class that the cluster has: of part of them, their part
}

// attained is the part of the queries of services that are in time, in their mean.
func (r *hybridRun) attained() (sum float64) {
	for _, s := range r.Services {
		sum += (1 - s.Violations) / float64(len(r.Services))
	}
	return sum
}

// serve runs queries that come for services.
func (l *laid) serve(given []sim.Query, seed uint64) (run hybridRun, err error) {
	if len(given) == 0 {
		return hybridRun{Result: &sim.Result{}}, nil
	}
	sc := sim.Scenario{Services: l.list, Given: given, Seed: seed, Policy: l.policy, Devices: len(l.kinds), Dispatch: sim.Pool, Links: l.links}
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
	sc.Device = made[slices.MinFunc(kinds, func(a, b kindOf) int { return a.share - b.share })] // measured with the largest batches
	if run.Result, err = sim.Run(sc); err != nil {
		return run, err
	}
	run.use = make([]float64, len(l.classes))
	for i, k := range run.Kinds {
		c := slices.Index(l.classes, kinds[i].class)
		run.use[c] += k.Busy * float64(k.Devices) / float64(kinds[i].share*l.devices[c])
	}
	return run, nil
}

// arrivals returns the queries that come for services at rates.
func (o *Options) arrivals(rates []float64, bursty []float64, seed uint64) (list []sim.Query) {
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
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

// folded brings a trace to a rate as the authors' program does: it is cut into parts that
// are as long as that needs, which all come at the same time, and again when they are over.
func folded(trace []float64, rate, seconds float64, add func(at float64)) {
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

// search finds the highest load factor, of those that the paper tries, at which at most 1 %
// of the queries are not in time. Factor 1 is a rate. It begins where the plan says that it
// would be.
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

const (
	blocksFolder  = "ppipe"
	timingsFolder = "block-timing-tf32"
	casesFolder   = "plans-ablation"
	burstyFile    = "traces/azure-llm-2023/AzureLLMInferenceTrace_code.csv"
)

// blockData is what the authors measured, and the arrivals of a trace.
type blockData struct {
	models []planning.Service // with moves at so many gigabits a second
	gbps   float64
	bursty []float64 // seconds
	sha256 string

	hosted map[bool][]*hosted // by whether arrivals are bursty
}

func (d *blockData) names() (list []string) {
	for _, s := range d.models {
		list = append(list, s.Name)
	}
	return list
}

// readBlocks reads what the authors measured, and of their plans for one model each what
// these are for, which leave a tenth of the target free.
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
		return nil, fmt.Errorf("%s: %w: it has no plans of the authors for one model each", filepath.Join(dir, casesFolder), errData)
	}
	for _, path := range paths {
		c, _, err := planning.ReadPPipe(timings, path, nil)
		if err != nil {
			return nil, err
		}
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
			return nil, fmt.Errorf("%s: %w: it has no plan for a model %s", filepath.Join(dir, casesFolder), errData, name)
		}
	}
	tables, err := filepath.Glob(filepath.Join(timings, "*.csv"))
	if err == nil {
		d.sha256, err = hashOf(dir, append(tables, paths...)...)
	}
	return d, err
}

// readReference reads the pipelines of a plan of the authors for one model.
func readReference(path string, moves []float64) (list []planning.Pipeline, err error) {
	var plans []struct {
		Pipelines []struct {
			Rate   float64 `json:"xput"`
			Stages []struct {
				Blocks [2]int  `json:"layers"`
				Class  string  `json:"gpu"`
				Share  int     `json:"mps"` // less 1
				Batch  int     `json:"bs"`
				GPUs   float64 `json:"num_gpu"`
			} `json:"partitions"`
		} `json:"pipelines"`
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &plans)
	}
	if err != nil || len(plans) == 0 {
		return nil, cmp.Or(err, fmt.Errorf("%s: %w: it has no plan", path, errData))
	}
	for _, p := range plans[0].Pipelines {
		way := planning.Pipeline{Rate: p.Rate}
		for i, s := range p.Stages {
			way.Batch = s.Batch
			to := planning.Stage{Start: s.Blocks[0], End: s.Blocks[1], Class: s.Class, Share: s.Share + 1}
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

// readBursty reads when the queries of a trace come, none if there is no such file.
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

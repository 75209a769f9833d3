package sim

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/synthetic"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

var contests = flag.Int("losses", 20, "contests that TestLosses makes up")

const (
	fittedVariable = "OVERLAPD_FITTED" // names the folder "fitted" of a run of overlapd-lab reproduce
	contestQueries = 400               // of one run
	firstRuns      = 4
	moreRuns       = 20  // of a contest that overlap may lose
	lossChunks     = 8   // that run at the same time
	fewPoints      = 1.0 // by which a contest is lost
)

// What overlap may lose: part of the contests, and points in one. One service alone has nothing to
// overlap with, and only its batches and what is shed decide.
var (
	mayLose      = lossLimit{0.02, 7}
	mayLoseAlone = lossLimit{0.03, 3}
)

type lossLimit struct{ part, points float64 }

// rivals are overlap and the policies that it is held against. All merge where a service
// allows it, abacus too, which as published does not.
var rivals = []string{"overlap", "edf", "edf-shedding", "clockwork", "abacus", "pair", "nexus", "deferred", "flex"}

// TestLosses searches for scenarios in which overlap violates more deadlines than the
// best of its rivals, on the same arrivals. Each is made up from a seed. One whose first
// runs speak against overlap is run again, more often and on other arrivals, and these
// runs alone decide: it is a loss where the mean difference is above its standard error, and
// more than a point.
// These commands print everything that was found:
//
//	go test ./lab/sim -run TestLosses -v -losses 3000
//	go test ./lab/sim -run TestLosses -v -seed N
func TestLosses(t *testing.T) {
	if *oneSeed != 0 {
		t.Log(newArena(t).compete(t, *oneSeed))
		return
	}
	found := make([]contest, *contests)
	t.Run("search", func(t *testing.T) {
		for chunk := range lossChunks {
			t.Run(fmt.Sprint(chunk), func(t *testing.T) {
				t.Parallel()
				a := newArena(t)
				for i := chunk; i < len(found); i += lossChunks {
					found[i] = a.compete(t, uint64(i+1))
				}
			})
		}
	})
	lost := slices.DeleteFunc(slices.Clone(found), func(c contest) bool { return !c.lost() })
	slices.SortFunc(lost, func(a, b contest) int { return cmp.Compare(b.behind, a.behind) })
	report(t, found, lost)
	alone := func(c contest) bool { return c.says == oneService }
	some := func(c contest) bool { return !alone(c) }
	mayLose.hold(t, slices.DeleteFunc(slices.Clone(found), alone), slices.DeleteFunc(slices.Clone(lost), alone))
	mayLoseAlone.hold(t, slices.DeleteFunc(found, some), slices.DeleteFunc(lost, some))
}

// hold compares the contests that overlap loses, the worst first, with the limit.
func (l *lossLimit) hold(t *testing.T, found, lost []contest) {
	t.Helper()
	if limit := math.Ceil(l.part * float64(len(found))); float64(len(lost)) > limit {
		t.Errorf("overlap loses %d of %d contests, want at most %.0f", len(lost), len(found), limit)
	}
	if len(lost) > 0 && lost[0].behind > l.points {
		t.Errorf("overlap loses by up to %.2f points, want at most %v: %v", lost[0].behind, l.points, lost[0])
	}
}

// contest is one scenario and how the policies did in it, in percent.
type contest struct {
	seed       uint64
	classes    []string
	says       string
	violations []float64 // of each of the rivals, over all queries that have a promise
	worst      []float64 // those of the service that fared worst
	first      []float64 // those of the services of the highest priority, where there are priorities
	best       string    // of the rivals
	behind     float64   // by which overlap violates more than the best of them
	spread     float64   // standard error of that
}

func (c *contest) lost() bool { return c.behind > max(c.spread, fewPoints) }

func (c contest) String() string {
	return fmt.Sprintf("seed %d behind %s by %.2f±%.2f: violations %.2f, worst service %.1f, first priority %.1f of %v, all of which merge; %s", c.seed, c.best, c.behind, c.spread, c.violations, c.worst, c.first, rivals, c.says)
}

// report prints what was found: by class, the worst losses, and who starves.
func report(t *testing.T, found, lost []contest) {
	t.Helper()
	classes := map[string][2]int{}
	starved, sum := 0, 0.0
	for _, c := range found {
		for _, class := range append(c.classes, "all") {
			n := classes[class]
			n[0]++
			if c.lost() {
				n[1]++
			}
			classes[class] = n
		}
		if c.worst[0] > c.worst[1]+5 {
			starved++
		}
		sum += slices.Min(c.violations[1:]) - c.violations[0]
	}
	t.Log("| loads | of these | lost by more than a point | percent |")
	t.Log("|---|--:|--:|--:|")
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		n := classes[class]
		t.Logf("| %s | %d | %d | %.2f |", class, n[0], n[1], 100*float64(n[1])/float64(n[0]))
	}
	t.Logf("overlap violates %.2f points less in the mean; its worst service fares worse by 5 points than edf's in %d", sum/float64(len(found)), starved)
	for _, c := range lost {
		t.Log(c)
	}
}

// family is a device of the search with what predicts it.
type family struct {
	name      string
	device    Device
	predictor *predictor.File
}

// arena holds the devices for one test at a time, since a device owns the memory that it
// works in.
type arena struct{ families []family }

func newArena(t testing.TB) *arena {
	t.Helper()
	d := modelOf(t, synthetic.Device())
	a := &arena{[]family{{"synthetic", d, synthetic.Predictor()}}}
	folder := os.Getenv(fittedVariable)
	if folder == "" {
		t.Logf("%s names no folder with fitted devices: without them", fittedVariable)
		return a
	}
	for _, path := range files(t, folder, "device-*.device.json") {
		p, err := device.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(filepath.Base(path), "device-")
		name = name[:strings.LastIndex(name, "-")] // a hash follows
		f, err := predictor.ReadFile(files(t, folder, "predictor-"+name+"-overlapd-*.predictor.json")[0])
		if err != nil {
			t.Fatal(err)
		}
		if d, err = device.NewModel(p); err != nil {
			t.Fatal(err)
		}
		a.families = append(a.families, family{name, d, f})
	}
	return a
}

// files returns those of a pattern, of which there must be one.
func files(t testing.TB, folder, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(list) == 0 {
		t.Fatalf("%s has no %s: %v", folder, pattern, err)
	}
	return list
}

// crowd is a device of many models that share it as predictors take for granted.
type crowd struct{ *formula }

func (d crowd) Latency(g models.Group) time.Duration {
	var alone []float64
	work := 0.0
	for i := range g.Spans {
		one := float64(d.formula.Latency(models.Group{Spans: g.Spans[i : i+1]}))
		alone, work = append(alone, one), work+d.part*one
	}
	return time.Duration(predictor.Together(alone, work))
}

func (d crowd) Sample(g models.Group, r *rand.Rand) time.Duration {
	return time.Duration(float64(d.Latency(g)) * (1 + d.spread*min(max(r.NormFloat64(), -3), 3)))
}

// family returns one of those of the arena, or one that is made up.
func (a *arena) family(t testing.TB, seed uint64, r *rand.Rand) family {
	i := r.IntN(len(a.families) + 1)
	if i < len(a.families) {
		return a.families[i]
	}
	var op []time.Duration
	for range 8 {
		op = append(op, time.Duration(20+r.IntN(400))*time.Microsecond)
	}
	f := newFormula(0.3+0.65*r.Float64(), 0.05*r.Float64(), op...)
	for i := range f.models {
		f.models[i].Operators = 4 + r.IntN(40)
	}
	return family{"crowd", crowd{f}, formulaPredictor(t, f, seed)}
}

// logUniform draws from a range in which each factor is as likely.
func logUniform(r *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, r.Float64())
}

// scenario generates a scenario and its description.
func (a *arena) scenario(t testing.TB, seed uint64) (sc Scenario, c contest) {
	r := rand.New(rand.NewPCG(seed, 54321))
	f := a.family(t, seed, r)
	known := f.device.Models()
	n := 2 + r.IntN(min(7, 2*len(known)-1))
	equal, least, load := r.IntN(2) == 0, logUniform(r, 1.5, 10), logUniform(r, 0.2, 5)
	merges, ranks, fillers := r.IntN(4) > 0, r.IntN(5) == 0, r.IntN(6) == 0
	first := r.Perm(len(known))
	work, longest := 0.0, time.Duration(0) // seconds of a query in the mean, and the longest query
	for i := range n {
		m := first[i%len(first)]
		s := Service{Name: fmt.Sprintf("%s-%d", known[m].Name, i), Model: known[m].Name, Share: logUniform(r, 1, 4)}
		s.Sizes = [][]int{nil, known[m].Sizes, known[m].Sizes[:2]}[r.IntN(3)]
		if s.Sizes == nil {
			s.Sizes = known[m].Sizes[:1]
		}
		if known[m].SeqLens[0] > 0 {
			s.SeqLens = known[m].SeqLens[r.IntN(len(known[m].SeqLens)):]
		}
		if s.MaxBatch = 1; merges {
			s.MaxBatch = int(logUniform(r, 2, float64(slices.Max(known[m].Sizes))+1))
		}
		if ranks {
			s.Priority = r.IntN(3)
		}
		s.BestEffort = fillers && i > 0 && r.IntN(3) == 0
		mean, largest := soloOf(f.device, m, &s)
		work += s.Share * mean
		longest = max(longest, largest)
		s.Target = time.Duration(float64(largest) * logUniform(r, 1.5, 10))
		sc.Services = append(sc.Services, s)
	}
	total := 0.0
	for i := range sc.Services {
		if total += sc.Services[i].Share; equal {
			sc.Services[i].Target = time.Duration(least * float64(longest))
		}
	}
	qps := load * total / work
	sc.Arrivals = [...]Arrivals{
		{Process: Poisson, QPS: qps}, {Process: Gamma, QPS: qps, Shape: logUniform(r, 0.1, 1)},
		{Process: MMPP, States: []State{{0.4 * qps, 30 / qps}, {2.5 * qps, 15 / qps}}},
	}[r.IntN(3)]
	sc.Queries, sc.Plan, sc.Device, sc.Predictor, sc.Scheduler = contestQueries, true, f.device, f.predictor, Others.New
	c = contest{seed: seed, classes: []string{f.name}}
	if special := c.change(&sc, r); special != "" {
		c.classes, c.says = append(c.classes, special), special
		return sc, c
	}
	for class, is := range map[string]bool{
		"tight": equal && least < 3, "overload": load > 1, "bursts": sc.Arrivals.Process != Poisson,
		"unmerged": !merges, "priorities": ranks, "best effort": fillers, "equal": equal, "many": n > 4,
	} {
		if is {
			c.classes = append(c.classes, class)
		}
	}
	slices.Sort(c.classes)
	targets := "own targets"
	if equal {
		targets = fmt.Sprintf("all targets %.2f × longest solo", least)
	}
	c.says = fmt.Sprintf("%s; %d services, load %.2f, %s", strings.Join(c.classes, ", "), n, load, targets)
	return sc, c
}

const oneService = "one service"

// change makes every second scenario a special one, and returns of what kind, "" for none.
func (c *contest) change(sc *Scenario, r *rand.Rand) (kind string) {
	known, s := sc.Device.Models(), &sc.Services[0]
	switch r.IntN(14) {
	case 0, 1: // one service, from a target that leaves time for little more than one batch
		m, _ := sc.model(s)
		sc.Services = sc.Services[:1]
		s.Sizes, s.SeqLens, s.MaxBatch, s.Priority, s.BestEffort = []int{1}, known[m].SeqLens[:1], 1<<r.IntN(6), 0, false
		if s.SeqLens[0] == 0 {
			s.SeqLens = nil
		}
		batch := Service{Sizes: []int{s.MaxBatch}, SeqLens: s.SeqLens}
		mean, longest := soloOf(sc.Device, m, &batch)
		s.Target = time.Duration(float64(longest) * logUniform(r, 1.2, 5))
		sc.Arrivals = Arrivals{Process: Poisson, QPS: logUniform(r, 0.5, 2) * float64(s.MaxBatch) / mean}
		return oneService
	case 2:
		sc.Arrivals = Arrivals{Process: Poisson, QPS: sc.Arrivals.rate() * logUniform(r, 0.8, 4)} // up to 20 times the capacity
		return "more overload"
	case 3:
		for i := range sc.Services {
			s := &sc.Services[i]
			m, _ := sc.model(s)
			_, longest := soloOf(sc.Device, m, s)
			s.Target, s.BestEffort = 10*longest, false
			if i == 0 {
				s.Target = time.Duration(float64(longest) * logUniform(r, 1.2, 2))
			}
		}
		return "one tight"
	case 4:
		sc.RoundTime = []time.Duration{50 * time.Microsecond, 500 * time.Microsecond}[r.IntN(2)]
		return "rounds that cost"
	case 5:
		sc.Devices, sc.Dispatch = 2+r.IntN(3), Pool
		sc.Arrivals = Arrivals{Process: Poisson, QPS: float64(sc.Devices) * sc.Arrivals.rate()}
		return "pools"
	case 6: // its share is of no query
		idle := *s
		idle.Name, idle.Share, idle.Target, idle.BestEffort = "idle", 1e-9, s.Target/4, false
		sc.Services = append(sc.Services, idle)
		return "an idle one"
	}
	return ""
}

// rate returns the mean queries a second.
func (a *Arrivals) rate() float64 {
	if a.Process != MMPP {
		return a.QPS
	}
	queries, seconds := 0.0, 0.0
	for _, s := range a.States {
		queries, seconds = queries+s.QPS*s.Seconds, seconds+s.Seconds
	}
	return queries / seconds
}

// soloOf returns what queries of a service take alone: in the mean, in seconds, and at most.
func soloOf(d Device, model int, s *Service) (mean float64, largest time.Duration) {
	seqLens := s.SeqLens
	if seqLens == nil {
		seqLens = []int{0}
	}
	for _, size := range s.Sizes {
		for _, seqLen := range seqLens {
			took := d.Latency(models.Group{Spans: []models.Span{{Service: models.ServiceID(model), End: d.Models()[model].Operators, Size: size, SeqLen: seqLen}}})
			mean += took.Seconds() / float64(len(s.Sizes)*len(seqLens))
			largest = max(largest, took)
		}
	}
	return mean, largest
}

// compete runs all policies on the arrivals of some seeds, and of more where overlap
// may be behind.
func (a *arena) compete(t testing.TB, seed uint64) contest {
	sc, c := a.scenario(t, seed)
	c.run(t, sc, firstRuns, 0)
	if c.behind > 0 {
		c.run(t, sc, moreRuns, firstRuns)
	}
	return c
}

func (c *contest) run(t testing.TB, sc Scenario, runs, from int) {
	percent := make([][]float64, len(rivals))
	c.violations, c.worst, c.first = make([]float64, len(rivals)), make([]float64, len(rivals)), make([]float64, len(rivals))
	for p, policy := range rivals {
		c.worst[p] = 0
		byService := make([]mean, len(sc.Services))
		for i := range runs {
			sc.Policy, sc.Seed = policy, c.seed<<8|uint64(from+i)
			r, err := Run(sc)
			if err != nil {
				t.Fatalf("seed %d, %s: %v", c.seed, policy, err)
			}
			percent[p] = append(percent[p], 100*promised(&sc, r, byService))
		}
		c.violations[p] = stats.Mean(percent[p])
		var first mean
		for i := range byService {
			c.worst[p] = max(c.worst[p], 100*byService[i].value())
			if sc.Services[i].Priority == 1 {
				first.add(100 * byService[i].value())
			}
		}
		c.first[p] = first.value()
	}
	best := 1
	for p := range rivals {
		if p > 0 && c.violations[p] < c.violations[best] {
			best = p
		}
	}
	c.best, c.behind = rivals[best], c.violations[0]-c.violations[best]
	square := 0.0
	for i := range runs {
		off := percent[0][i] - percent[best][i] - c.behind
		square += off * off
	}
	c.spread = math.Sqrt(square / float64(runs*(runs-1)))
}

// promised returns the violations of all queries but those of best effort, and adds
// those of each service.
func promised(sc *Scenario, r *Result, byService []mean) float64 {
	var all mean
	for i := range r.Services {
		if s := &r.Services[i]; !sc.Services[i].BestEffort && s.Queries > 0 {
			all.sum, all.n = all.sum+s.Violations*float64(s.Queries), all.n+s.Queries
			byService[i].add(s.Violations)
		}
	}
	return all.value()
}

// TestGoodputHoldsUnderOverload: with up to five times the load that the device can bear one
// query after another, about as many queries are answered in time as at the best load, and
// with twenty times most of them.
func TestGoodputHoldsUnderOverload(t *testing.T) {
	a := newArena(t)
	for seed := range uint64(4) {
		sc, c := a.scenario(t, seed+1)
		sc.Policy, sc.Seed = "overlap", seed
		work, shares := 0.0, 0.0
		for i := range sc.Services {
			s := &sc.Services[i]
			m, _ := sc.model(s)
			alone, _ := soloOf(sc.Device, m, s)
			work, shares, s.BestEffort = work+s.Share*alone, shares+s.Share, false
		}
		best := 0.0
		for _, at := range [][2]float64{{0.5, 0}, {1, 0.95}, {2, 0.95}, {5, 0.95}, {20, 0.8}} {
			load, share := at[0], at[1]
			sc.Arrivals, sc.Queries = Arrivals{Process: Poisson, QPS: load * shares / work}, int(200*load)
			goodput := run(t, sc).GoodputQPS
			if best = max(best, goodput); goodput < share*best {
				t.Errorf("%s: at %v times the load of one query after another %.1f queries a second are in time, %.1f at less", c.says, load, goodput, best)
			}
		}
	}
}

// TestOverloadRunsSideBySide: with three times the load that a device can bear one query
// after another, and queries that cannot be merged, most still run beside another, which
// takes two thirds of the time here.
func TestOverloadRunsSideBySide(t *testing.T) {
	f := newFormula(0.3, 0.04, 3*time.Millisecond, 4*time.Millisecond)
	sc := Scenario{
		Device: f, Policy: "overlap", Plan: true, Queries: 2000, Seed: 1,
		Arrivals: Arrivals{Process: Poisson, QPS: 3 * 2 / 0.07}, Predictor: formulaPredictor(t, f, 1),
	}
	for _, m := range []string{"a", "b"} {
		sc.Services = append(sc.Services, Service{Name: m, Model: m, Target: 150 * time.Millisecond, MaxBatch: 1, Sizes: []int{1}})
	}
	if r := run(t, sc); r.Groups[0] > r.Groups[1] {
		t.Errorf("%d rounds run one query, %d run two, %.1f queries a second are in time", r.Groups[0], r.Groups[1], r.GoodputQPS)
	}
}

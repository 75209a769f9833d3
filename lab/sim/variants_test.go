package sim

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning/selection"
)

var variantQueries = flag.Int("variants", 20_000, "queries of each run of TestVariantsOnA100")

// loads are those of a table, as parts of the peak load of the fastest variant: the highest with
// at most mostMissed percent of violations.
var loads = []float64{0.25, 0.5, 0.75, 1}

const mostMissed = 1.0

// contender is a way to answer for a service with variants, beside another service.
type contender struct {
	name   string
	policy string
	only   string        // the variant that answers all, "" for the one selected
	fixed  time.Duration // the slack that the policy receives, for this service only; 0 for the real one
}

// duel is a service with variants, the fastest first, and another service.
type duel struct {
	Scenario // the last of the services is the other
	set      *selection.Set
	devices  chan Device // each for one run at a time
}

// selected selects the variant as the daemon does.
type selected struct {
	contender
	live selection.Live
}

func (s *selected) Select(_ string, waiting int, slack time.Duration) string {
	if s.fixed > 0 {
		slack = s.fixed
	}
	return s.live.Choose(waiting, slack)
}

// solve makes the policies of the service for the bounds of what its variants take alone.
func (d *duel) solve(t *testing.T, queue, levels int) {
	sc := d.Scenario
	sc.Device, sc.Arrivals, sc.Queries = <-d.devices, Arrivals{Process: Poisson, QPS: 1}, 1
	defer func() { d.devices <- sc.Device }()
	one := begun(t, sc).controls[0]
	w := selection.Worker{CV: 1, Drop: true, Queue: queue, Levels: levels, Workers: 1, Target: millis(sc.Services[0].Target)}
	for i, s := range sc.Services[:len(sc.Services)-1] {
		measured := map[int]float64{}
		for n := 1; n*s.Sizes[0] <= s.MaxBatch; n *= 2 {
			var e [1]models.Estimate
			span := models.Span{Service: models.ServiceID(i), End: sc.Device.Models()[one.world.bound[i]].Operators, Size: n * s.Sizes[0]}
			one.nodes[0].predictor.Predict([]models.Group{{Spans: []models.Span{span}}}, e[:])
			measured[n] = millis(e[0].Bound)
		}
		v := selection.Variant{Name: s.Name, Accuracy: s.Accuracy, Latency: selection.Interpolate(measured, s.MaxBatch/s.Sizes[0], w.Queue)}
		w.Variants, w.Rate = append(w.Variants, v), max(w.Rate, 1000*float64(w.Queue)/v.Latency[w.Queue-1])
	}
	var err error
	if d.set, err = w.SolveSet(t.Context(), w.Rate/64, w.Rate, nil); err != nil {
		t.Fatal(err)
	}
}

// played is how a contender did: the mean accuracy of the queries in time, and the violations
// of the service and of the other, in percent.
type played struct{ accuracy, violations, other float64 }

// play runs a contender at a load of the service and one of the other.
func (d *duel) play(t *testing.T, c contender, load, other float64, seed uint64) (p played) {
	sc := d.Scenario
	sc.Device, sc.Policy, sc.Seed, sc.Services = <-d.devices, c.policy, seed, slices.Clone(sc.Services)
	defer func() { d.devices <- sc.Device }()
	sc.Arrivals = Arrivals{Process: Poisson, QPS: load + other}
	last := len(sc.Services) - 1
	if c.only != "" {
		sc.Services = slices.DeleteFunc(sc.Services, func(s Service) bool { return s.Of != "" && s.Name != c.only })
		last = 1
	}
	sc.Services[0].Share, sc.Services[last].Share = load, other
	by := &selected{contender: c}
	by.live.Use(d.set)
	sc.Selector = by
	var accuracy mean
	sc.Observer.Answer = func(a *Answer) {
		if a.InTime && int(a.Query.Service) != last {
			accuracy.add(sc.Services[a.Ended.Service].Accuracy)
		}
	}
	if c.fixed == 0 {
		sc.Observer.Round = by.share(&sc, last)
	}
	sc.Observer.Arrive = func(q *Query) {
		if int(q.Service) != last {
			by.live.Arrived(q.At)
		}
	}
	r, err := Run(sc)
	if err != nil {
		t.Fatal(err)
	}
	return played{accuracy.value(), 100 * r.Services[0].Violations, 100 * r.Services[last].Violations}
}

// share returns what tells every second of the share of the device that another service takes,
// as the daemon does: the time of a round is divided among its spans, as is what it saves.
func (s *selected) share(sc *Scenario, other int) func(*Round) {
	type lost struct{ at, took time.Duration }
	var all []lost // in the last minute
	var sum, told time.Duration
	return func(r *Round) {
		n, others, solo := time.Duration(len(r.Spans)), time.Duration(0), time.Duration(0)
		for _, span := range r.Spans {
			if int(span.Service) == other {
				others++
			}
			m, _ := sc.model(&sc.Services[span.Service])
			span.Service = models.ServiceID(m)
			solo += sc.Device.Latency(models.Group{Spans: []models.Span{span}})
		}
		took := r.Took * others / n
		if n > 1 {
			took -= (solo - r.Took) * (n - others) / n
		}
		all, sum = append(all, lost{r.End, took}), sum+took
		if r.End < told+time.Second {
			return
		}
		for told = r.End; all[0].at < told-time.Minute; all = all[1:] {
			sum -= all[0].took
		}
		s.live.Share(sum.Seconds() / min(told, time.Minute).Seconds())
	}
}

// peak returns the highest load with few violations, in percent.
func peak(missed func(load float64) float64) float64 {
	low, high := 10.0, 2000.0
	for high > 1.02*low {
		if middle := math.Sqrt(low * high); missed(middle) <= mostMissed {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// all is the violations of both services together.
func (p played) all(load, other float64) float64 {
	return (p.violations*load + p.other*other) / (load + other)
}

// TestVariantsOnA100 holds the selection of a variant by what time is left against that by a
// fixed time, and against each variant alone, beside bert on the emulated A100. It prints the
// tables of docs/benchmarks/variants.md, which has the command.
func TestVariantsOnA100(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	a := newArena(t)
	at := slices.IndexFunc(a.families, func(f family) bool { return f.name == "pairs-serving-clock" })
	if at < 0 {
		t.Skip("there is no emulated A100")
	}
	d := duel{
		Scenario: Scenario{Policy: "overlap", Plan: true, Predictor: a.families[at].predictor, Queries: *variantQueries, Services: []Service{
			{Name: "resnet50", Accuracy: 80.282}, {Name: "resnet101", Accuracy: 81.886}, {Name: "resnet152", Accuracy: 82.284},
			{Name: "bert", Sizes: []int{4, 8, 16, 32}, SeqLens: []int{8, 16, 32, 64}},
		}},
		devices: make(chan Device, runtime.GOMAXPROCS(0)),
	}
	for range cap(d.devices) {
		d.devices <- newArena(t).families[at].device
	}
	for i := range d.Services {
		s := &d.Services[i]
		if s.Target, s.MaxBatch = 100*ms, 32; s.Accuracy > 0 {
			s.Of, s.Sizes = "classes", []int{4}
		}
	}
	d.solve(t, 32, 50) // as the daemon
	t.Logf("%d policies to %.0f queries a second", len(d.set.Policies), d.set.Rate)
	fastest := contender{"resnet50", "overlap", "resnet50", 0}
	contenders := []contender{
		{"headroom", "overlap", "", 0},
		{"fixed 100 ms", "overlap", "", 100 * ms},
		fastest,
		{"resnet101", "overlap", "resnet101", 0},
		{"resnet152", "overlap", "resnet152", 0},
		{"headroom, edf", "edf", "", 0},
	}
	alone := peak(func(load float64) float64 { return d.play(t, fastest, load/1e6, load, 1).other })
	for _, part := range []float64{0.25, 0.5} {
		bert := part * alone
		highest := peak(func(load float64) float64 { return d.play(t, fastest, load, bert, 1).all(load, bert) })
		t.Logf("## bert at %g %% of its peak", 100*part)
		d.table(t, contenders, highest, bert)
	}
}

// table prints how contenders do at parts of a peak load: accuracy, violations of the service and
// of the other, the medians of five seeds.
func (d *duel) table(t *testing.T, contenders []contender, peak, other float64) {
	cells := make([][4]string, len(contenders))
	var group sync.WaitGroup
	for i, c := range contenders {
		for k, part := range loads {
			group.Go(func() {
				var p [3][]float64
				for seed := range uint64(5) {
					one := d.play(t, c, part*peak, other, 100+seed)
					p[0], p[1], p[2] = append(p[0], one.accuracy), append(p[1], one.violations), append(p[2], one.other)
				}
				for i := range p {
					slices.Sort(p[i])
				}
				cells[i][k] = fmt.Sprintf("%.2f, %.2f, %.2f", p[0][2], p[1][2], p[2][2])
			})
		}
	}
	group.Wait()
	rows := fmt.Sprintf("| percent, beside %.0f/s of bert | %.0f/s | %.0f/s | %.0f/s | %.0f/s |\n|---|--:|--:|--:|--:|", other, loads[0]*peak, loads[1]*peak, loads[2]*peak, loads[3]*peak)
	for i, c := range contenders {
		rows += fmt.Sprintf("\n| %s | %s |", c.name, strings.Join(cells[i][:], " | "))
	}
	t.Log(rows)
}

// TestVariantsByLoad: with variants, overlap and a policy, accuracy falls as the load rises, is
// at least that of the fastest variant, and violations are those of the fastest within 1.5 points.
func TestVariantsByLoad(t *testing.T) {
	t.Parallel()
	f := newFormula(0.6, 0.02, 600*time.Microsecond, 1200*time.Microsecond, 2*ms, ms)
	d := duel{
		Scenario: Scenario{Policy: "overlap", Plan: true, Device: f, Predictor: formulaPredictor(t, f, 1), Queries: 8000, Services: []Service{
			{Name: "a", Of: "f", Accuracy: 80}, {Name: "b", Of: "f", Accuracy: 82}, {Name: "c", Of: "f", Accuracy: 83}, {Name: "d"},
		}},
		devices: make(chan Device, 1),
	}
	for i := range d.Services {
		s := &d.Services[i]
		s.Target, s.MaxBatch, s.Sizes = 120*ms, 8, []int{1}
	}
	d.devices <- f
	d.solve(t, 16, 20)
	const other = 20.0
	ours, fastest := contender{policy: "overlap"}, contender{policy: "overlap", only: "a"}
	highest := peak(func(load float64) float64 { return d.play(t, fastest, load, other, 1).all(load, other) })
	before := 83.0
	for _, part := range loads {
		load := part * highest
		p, q := d.play(t, ours, load, other, 2), d.play(t, fastest, load, other, 2)
		if p.accuracy > before || p.accuracy < 80 || part < 0.5 && p.accuracy < 82 || p.violations > q.violations+1.5 || p.other > q.other+1.5 {
			t.Errorf("at %.0f queries a second: %+v, after an accuracy of %.2f; the fastest alone %+v", load, p, before, q)
		}
		before = p.accuracy
	}
}

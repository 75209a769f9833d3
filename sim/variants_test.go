package sim

import (
	"context"
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
	"github.com/overlapd/overlapd/selection"
	"github.com/overlapd/overlapd/stats"
)

var variantQueries = flag.Int("variants", 20_000, "queries of each run of TestVariantsOnA100")

const (
	classes     = "classes" // the service with variants
	mostMissed  = 0.01      // violations at a peak load
	shareWindow = time.Minute
)

// contender is a way to answer for a service with variants, beside another service.
type contender struct {
	name   string
	policy string
	only   string        // the variant that answers all, "" for the one selected
	fixed  time.Duration // that the policy is told in place of the time left, knowing of no other service; 0 for the time left
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
func (d *duel) solve(t *testing.T) {
	sc := d.Scenario
	sc.Device, sc.Arrivals, sc.Queries = <-d.devices, Arrivals{Process: Poisson, QPS: 1}, 1
	defer func() { d.devices <- sc.Device }()
	one := begun(t, sc).controls[0]
	w := selection.Worker{CV: 1, Drop: true, Queue: 32, Levels: 50, Workers: 1, Target: millis(sc.Services[0].Target)}
	for i, s := range sc.Services[:len(sc.Services)-1] {
		measured := map[int]float64{}
		for n := 1; n*s.Sizes[0] <= s.MaxBatch; n *= 2 {
			var e [1]models.Estimate
			span := models.Span{Service: models.ServiceID(i), End: sc.Device.Models()[one.bound[i]].Operators, Size: n * s.Sizes[0]}
			one.predictor.Predict([]models.Group{{Spans: []models.Span{span}}}, e[:])
			measured[n] = millis(e[0].Bound)
		}
		v := selection.Variant{Name: s.Name, Accuracy: s.Accuracy, Latency: selection.Interpolate(measured, s.MaxBatch/s.Sizes[0], w.Queue)}
		w.Variants, w.Rate = append(w.Variants, v), max(w.Rate, 1000*float64(w.Queue)/v.Latency[w.Queue-1])
	}
	var err error
	if d.set, err = w.SolveSet(context.Background(), w.Rate/64, w.Rate, nil); err != nil {
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
		sc.Observer.Round = by.share(last)
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

// share returns what tells of the share of the other service every second, as it was in the
// last minute.
func (s *selected) share(other int) func(*Round) {
	var took, told time.Duration
	type part struct{ at, took time.Duration }
	var parts []part
	return func(r *Round) {
		for _, span := range r.Spans {
			if int(span.Service) == other {
				parts = append(parts, part{r.End, r.Took / time.Duration(len(r.Spans))})
				took += parts[len(parts)-1].took
			}
		}
		if r.End < told+time.Second {
			return
		}
		for told = r.End; len(parts) > 0 && parts[0].at < told-shareWindow; parts = parts[1:] {
			took -= parts[0].took
		}
		s.live.Share(took.Seconds() / min(told, shareWindow).Seconds())
	}
}

// peak returns the highest load with few violations of a contender beside another service,
// or with load 0 of the other alone.
func (d *duel) peak(t *testing.T, missed func(load float64) float64, low, high float64) float64 {
	for high > 1.02*low {
		if middle := math.Sqrt(low * high); missed(middle) <= 100*mostMissed {
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
// fixed time, and against each variant alone, beside bert on the emulated A100:
//
//	OVERLAPD_FITTED=OUT/fitted go test ./sim -run TestVariantsOnA100 -v
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
		Scenario: Scenario{Policy: "overlap", Plan: true, Predictor: a.families[at].predictor, Queries: *variantQueries},
		devices:  make(chan Device, runtime.GOMAXPROCS(0)),
	}
	for range cap(d.devices) {
		d.devices <- newArena(t).families[at].device
	}
	for _, v := range []struct {
		name     string
		accuracy float64
	}{{"resnet50", 80.282}, {"resnet101", 81.886}, {"resnet152", 82.284}} {
		d.Services = append(d.Services, Service{Name: v.name, Of: classes, Accuracy: v.accuracy, Sizes: []int{4}})
	}
	d.Services = append(d.Services, Service{Name: "bert", Sizes: []int{4, 8, 16, 32}, SeqLens: []int{8, 16, 32, 64}})
	for i := range d.Services {
		d.Services[i].Target, d.Services[i].MaxBatch = 100*ms, 32
	}
	began := time.Now()
	d.solve(t)
	t.Logf("%d policies to %.0f queries a second in %v", len(d.set.Policies), d.set.Rate, time.Since(began).Round(ms))
	fastest := contender{"resnet50", "overlap", "resnet50", 0}
	contenders := []contender{
		{"headroom, overlap", "overlap", "", 0},
		{"fixed 100 ms", "overlap", "", 100 * ms},
		{"fixed 50 ms", "overlap", "", 50 * ms},
		fastest,
		{"resnet101", "overlap", "resnet101", 0},
		{"resnet152", "overlap", "resnet152", 0},
		{"headroom, edf", "edf", "", 0},
	}
	alone := d.peak(t, func(load float64) float64 { return d.play(t, fastest, load/1e6, load, 1).other }, 10, 2000)
	for _, part := range []float64{0.25, 0.5} {
		bert := part * alone
		peak := d.peak(t, func(load float64) float64 { return d.play(t, fastest, load, bert, 1).all(load, bert) }, 10, 2000)
		t.Logf("bert at %.0f of %.0f queries a second; peak of resnet50 beside it %.0f", bert, alone, peak)
		d.table(t, contenders, peak, bert)
	}
}

// table prints how contenders do at parts of a peak load: the medians of five seeds.
func (d *duel) table(t *testing.T, contenders []contender, peak, other float64) {
	parts := []float64{0.25, 0.5, 0.75, 1}
	rows := make([]string, len(contenders))
	cells := make([][4]string, len(contenders))
	var group sync.WaitGroup
	for i, c := range contenders {
		for k, part := range parts {
			group.Go(func() {
				var accuracy, violations, others []float64
				for seed := range uint64(5) {
					p := d.play(t, c, part*peak, other, 100+seed)
					accuracy, violations, others = append(accuracy, p.accuracy), append(violations, p.violations), append(others, p.other)
				}
				cells[i][k] = fmt.Sprintf("%.2f | %.2f | %.2f", median(accuracy), median(violations), median(others))
			})
		}
	}
	group.Wait()
	for i, c := range contenders {
		rows[i] = fmt.Sprintf("| %s | %s |", c.name, strings.Join(cells[i][:], " | "))
	}
	t.Logf("accuracy, violations and those of the other in %%, at %.0f, %.0f, %.0f and %.0f queries a second:\n%s",
		parts[0]*peak, parts[1]*peak, parts[2]*peak, parts[3]*peak, strings.Join(rows, "\n"))
}

func median(list []float64) float64 {
	slices.Sort(list)
	return stats.Quantile(list, 0.5)
}

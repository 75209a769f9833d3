package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/synthetic"
	"github.com/overlapd/overlapd/models"
)

// oneCore returns a device of linear models: per query and per batch, in milliseconds on one core.
func oneCore(t testing.TB, rows string) Device {
	t.Helper()
	p, err := device.Linear("core", rows)
	if err != nil {
		t.Fatal(err)
	}
	m, err := device.NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// crowded is 20 services with Zipf rates on a CPU.
func crowded(t testing.TB, cores int) (services []Service, d Device) {
	rows := ""
	for i := range 20 {
		each := []int{12, 60, 30, 110, 20}[i%5]
		name := fmt.Sprintf("m%d", i)
		rows += fmt.Sprintf("%s,%d,%d\n", name, each, each/8+1)
		services = append(services, Service{Name: name, Target: time.Duration(5*each) * ms, MaxBatch: 4, Share: 1 / math.Pow(float64(i+1), 1)})
	}
	return services, oneCore(t, rows)
}

// highest returns the highest rate at which at most a hundredth of the queries are late.
func highest(t testing.TB, sc func(qps float64) Scenario) float64 {
	low, high := 1.0, 1e5
	for high/low > 1.01 {
		at := math.Sqrt(low * high)
		s := sc(at)
		r, err := Run(s)
		if err != nil {
			high = at
			continue
		}
		if r.Violations <= 0.01 {
			low = at
		} else {
			high = at
		}
	}
	return low
}

// TestSharesOfManyCores: shares that follow the load sustain 1.3 times that of the best fixed number of
// cores for each service.
func TestSharesOfManyCores(t *testing.T) {
	const cores, serial = 32, 0.05
	services, one := crowded(t, cores)
	queries := 5000
	if testing.Short() {
		queries = 2000
	}
	base := Scenario{Arrivals: Arrivals{Process: Poisson}, Queries: queries, Seed: 1, Policy: "overlap", RoundTime: 50 * time.Microsecond}
	shared := highest(t, func(qps float64) Scenario {
		sc := base
		sc.Arrivals.QPS, sc.Services, sc.Device = qps, services, &Cores{Device: one, Units: cores, Serial: serial}
		return sc
	})
	fixed, of := 0.0, 0
	for least := 1; least <= 2; least++ { // cores are assigned in proportion to the load, least to each
		if least*len(services) > cores {
			break
		}
		of = least
		fixed = max(fixed, highest(t, func(qps float64) Scenario {
			sc := base
			sc.Arrivals.QPS, sc.Device, sc.Dispatch, sc.Devices = qps, &Cores{Device: one, Units: 1, Serial: serial}, Pool, len(services)
			for i, units := range apportion(services, one, cores, least) {
				s := services[i]
				s.On = []int{i}
				sc.Services, sc.Kinds = append(sc.Services, s), append(sc.Kinds, &Cores{Device: one, Units: units, Serial: serial})
			}
			return sc
		}))
	}
	t.Logf("highest load, queries a second: shares %.0f, fixed cores %.0f (at least %d each): %.2f times", shared, fixed, of, shared/fixed)
	if shared < 1.3*fixed {
		t.Errorf("shares sustain %.0f queries a second, fixed cores %.0f", shared, fixed)
	}
}

// apportion gives services cores in proportion to their load, some at least to each: whoever lacks most
// is next.
func apportion(services []Service, d Device, cores, least int) []int {
	load, given := make([]float64, len(services)), make([]int, len(services))
	for i, s := range services {
		for _, n := range d.OperatorTimes(models.Span{Service: models.ServiceID(i), End: d.Models()[i].Operators, Size: 1}) {
			load[i] += float64(n) * s.Share
		}
		given[i], cores = least, cores-least
	}
	for ; cores > 0; cores-- {
		next := 0
		for i := range services {
			if load[i]/float64(given[i]) > load[next]/float64(given[next]) {
				next = i
			}
		}
		given[next]++
	}
	return given
}

// TestSharesOfAGPU: on a device where spans overlap as well, some batches run in groups and some on
// shares. Near its highest load that may cost some queries, whose batches are smaller, but not many.
func TestSharesOfAGPU(t *testing.T) {
	const most = 0.005 // violations beyond those without shares
	for _, qps := range []float64{300, 400} {
		whole := 0.0
		for _, units := range []int{1, 3} {
			p := *synthetic.Device()
			p.Units = units
			d, err := device.NewModel(&p)
			if err != nil {
				t.Fatal(err)
			}
			groups, shares := 0, 0
			sc := Scenario{
				Device: d, Predictor: synthetic.Predictor(), Policy: "overlap", Plan: true, Check: true, Seed: 1, Queries: 4000,
				Arrivals: Arrivals{Process: Poisson, QPS: qps},
			}
			sc.Observer.Round = func(r *Round) {
				switch {
				case len(r.Spans) > 1:
					groups++
				case r.Spans[0].Share > 0:
					shares++
				}
			}
			for _, name := range []string{"vgg19", "bert"} {
				sc.Services = append(sc.Services, Service{Name: name, Target: 75 * ms, MaxBatch: 32, Sizes: []int{2, 4, 8, 16}})
			}
			r, err := Run(sc)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.0f queries a second, %d units: %d groups, %d rounds on shares, %.2f %% violations", qps, units, groups, shares, 100*r.Violations)
			if groups == 0 || shares > 0 != (units > 1) {
				t.Errorf("%d units: %d groups, %d rounds on shares", units, groups, shares)
			}
			if units == 1 {
				whole = r.Violations
			} else if r.Violations > whole+most {
				t.Errorf("on shares %v of the queries violate their targets, without %v", r.Violations, whole)
			}
		}
	}
}

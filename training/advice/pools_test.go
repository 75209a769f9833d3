package advice

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/predictor"
)

// randomPooler has services with loads, targets and memory, and what batches of theirs take.
// Each fits a device alone.
func randomPooler(seed uint64, n int) *pooler {
	r := rand.New(rand.NewPCG(seed, 11))
	p := &pooler{panel: &panel{Advice: &Advice{Pairs: make([][]pairGain, n)}, options: Options{Memory: 100}}}
	for i := range n {
		micros := 500 + 3000*r.Float64()
		sizes := []batchTimes{{queries: 1, micros: micros, work: micros * float64(1+i%4) / 4}}
		for size := 2.0; size < 20; size *= 2 {
			took := max(micros*(1+0.3*(size-1)*r.Float64()), sizes[len(sizes)-1].micros)
			sizes = append(sizes, batchTimes{queries: size, micros: took, work: took * float64(1+i%4) / 4})
		}
		p.sizes = append(p.sizes, sizes)
		p.services = append(p.services, Service{Name: fmt.Sprintf("s%02d", i), Model: "m", QPS: 10 + 400*r.Float64(),
			Target: time.Duration((2 + 10*r.Float64()) * micros * 1000), Memory: 10 + 30*r.Float64()})
		p.model, p.Pairs[i] = append(p.model, -1), make([]pairGain, n)
	}
	return p
}

// tryAll returns the most that any choice of batches of the services from i on bears.
func (p *pooler) tryAll(i int, chosen []batchTimes, overlapped bool) (most float64) {
	if i < len(p.sizes) {
		for _, b := range p.sizes[i] {
			most = max(most, p.tryAll(i+1, append(slices.Clone(chosen), b), overlapped))
		}
		return most
	}
	var micros []float64
	cycle, work, most := 0.0, 0.0, math.Inf(1)
	for _, b := range chosen {
		micros, cycle, work = append(micros, b.micros), cycle+b.micros, work+b.work
	}
	if overlapped {
		cycle = min(cycle, predictor.Together(micros, work))
	}
	for k, s := range p.services {
		ends := micros[k]
		if overlapped {
			ends = cycle
		}
		if cycle+ends > s.Target.Seconds()*1e6 {
			return 0
		}
		most = min(most, chosen[k].queries/cycle*1e6/s.QPS)
	}
	return most
}

func TestBatchesOfTogetherAreBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "services")
		p := randomPooler(rapid.Uint64().Draw(t, "seed"), n)
		for _, overlapped := range []bool{false, true} {
			if got, want := p.together([]int{0, 1, 2, 3}[:n], p.sizes, overlapped), p.tryAll(0, nil, overlapped); !near(got, want, 1e-9) {
				t.Fatalf("overlapped %v: %v, of all choices of batches %v", overlapped, got, want)
			}
		}
	})
}

// Of few services no division is better, of all that there are.
func TestPoolsAreBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "services")
		pools := rapid.IntRange(1, n).Draw(t, "pools")
		p := randomPooler(rapid.Uint64().Draw(t, "seed"), n)
		v := p.divider(pools, nil)
		var best score
		found := false
		v.brute(0, make([][]int, pools), &best, &found)
		plan, devices, err := p.divide(pools)
		if (err == nil) != (best.bad == 0) {
			t.Fatalf("%v, and the best division is %+v", err, best)
		}
		if err != nil {
			return
		}
		if err := v.checkDivision(devices); err != nil || len(devices) != pools {
			t.Fatalf("%v in %d pools: %v", devices, pools, err)
		}
		if got := v.total(devices); !plan.Exact || best.less(got) || got.less(best) || plan.Devices != int(got.over) {
			t.Fatalf("%+v costs %+v, the best is %+v", plan, got, best)
		}
		for i, to := range plan.Pools {
			if float64(to.Devices)*fullDevice < to.Demanded-1e-9 || to.Memory > 100 || len(to.Services) != len(devices[i]) {
				t.Fatalf("%+v", to)
			}
		}
	})
}

// The search for many services finds the best pools of few nearly always, the same each
// time, and never worse ones than those of equal loads.
func TestPoolSearchIsNearBest(t *testing.T) {
	cases, best := 0, 0
	for seed := range uint64(60) {
		p, n := randomPooler(seed, 9+int(seed%4)), 3+int(seed)%3
		var alone []float64
		for i := range p.services {
			alone = append(alone, p.rate([]int{i}).cost)
		}
		equal := balance(alone, n)
		v := p.divider(n, equal)
		v.prepare()
		exact, devices := v.total(v.enumerate()), v.search()
		found := v.total(devices)
		if found.less(exact) || v.total(equal).less(found) || fmt.Sprint(p.divider(n, equal).search()) != fmt.Sprint(devices) {
			t.Fatalf("search found %+v, enumeration %+v, equal loads have %+v", found, exact, v.total(equal))
		}
		if exact.bad == 0 {
			if cases++; !exact.less(found) {
				best++
			}
		}
	}
	t.Logf("of %d divisions the search found %d", cases, best)
	if cases < 30 || best < cases*9/10 {
		t.Errorf("of %d divisions the search found %d", cases, best)
	}
}

func TestPoolsRefused(t *testing.T) {
	for want, change := range map[string]func(*pooler){
		"9 pools of 3 services":       func(p *pooler) { p.options.Pools = 9 },
		"give both (--load s01=QPS":   func(p *pooler) { p.services[1].QPS = 0 },
		"--targets s01=DURATION)":     func(p *pooler) { p.services[1].Target = 0 },
		"s01 needs 101 MiB":           func(p *pooler) { p.services[1].Memory = 101 },
		"give it a larger target":     func(p *pooler) { p.services[1].Target = time.Microsecond },
		"latency of service":          func(p *pooler) { p.sizes[1] = nil },
		"no division into 1 pool was": func(p *pooler) { p.options.Pools, p.services[1].Memory, p.services[2].Memory = 1, 90, 90 },
	} {
		p := randomPooler(2, 3)
		p.options.Pools = 2
		change(p)
		err := p.checkPools()
		if err == nil {
			_, _, err = p.divide(p.options.Pools)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

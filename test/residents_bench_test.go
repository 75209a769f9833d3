package test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// The load of BenchmarkResidents: so many models, of which about places fit, with popularity by Zipf's
// law. Every second model has a target that is shorter than a load.
const (
	residentModels = 200
	residentPlaces = 20
	residentRate   = 30.0 // queries a second
	residentZipf   = 0.9
	residentShort  = 60 * time.Millisecond
	residentLong   = time.Second
	residentWindow = 40 * time.Second
	residentWarm   = 10 * time.Second
)

// shelf decides which models of a daemon are in memory, by the calls to load and unload.
type shelf interface {
	// begin is called before the load, and admit before each query: it returns once the query may be sent.
	begin(p *process)
	admit(p *process, model int)
}

// byDaemon leaves the decision to the daemon.
type byDaemon struct{}

func (byDaemon) begin(*process)      {}
func (byDaemon) admit(*process, int) {}

// fixedShelf keeps the most popular models.
type fixedShelf struct{ byDaemon }

func (fixedShelf) begin(p *process) {
	for i := range residentPlaces {
		p.control(fmt.Sprint("m", i), "load")
	}
}

// lru loads a model at each miss, and unloads the one that was used least recently, as a cache in front
// of a server does. Queries of one model wait for one load.
type lru struct {
	mu      sync.Mutex
	used    map[int]time.Time
	loading map[int]chan struct{}
}

func (l *lru) begin(*process) { l.used, l.loading = map[int]time.Time{}, map[int]chan struct{}{} }

func (l *lru) admit(p *process, model int) {
	l.mu.Lock()
	if _, ok := l.used[model]; ok {
		l.used[model] = time.Now()
		l.mu.Unlock()
		return
	}
	if wait := l.loading[model]; wait != nil {
		l.mu.Unlock()
		<-wait
		return
	}
	done := make(chan struct{})
	l.loading[model] = done
	victim := -1
	if len(l.used)+len(l.loading) > residentPlaces {
		for i, at := range l.used {
			if victim < 0 || at.Before(l.used[victim]) {
				victim = i
			}
		}
		delete(l.used, victim)
	}
	l.mu.Unlock()
	if victim >= 0 {
		p.control(fmt.Sprint("m", victim), "unload")
	}
	p.control(fmt.Sprint("m", model), "load")
	l.mu.Lock()
	delete(l.loading, model)
	l.used[model] = time.Now()
	l.mu.Unlock()
	close(done)
}

// BenchmarkResidents compares what is in memory with LRU and with a fixed set, at the same memory and
// with the same arrivals, on a daemon each: the part of the queries that violate their target, loads, and
// the p99 of the most popular models, which are nearly always warm. RESIDENT_MEMORY is what fits.
func BenchmarkResidents(b *testing.B) {
	memory := cmp.Or(os.Getenv("RESIDENT_MEMORY"), "440MiB")
	fmt.Printf("\n| turn | rule | violations | loads | p99 of the five most popular |\n|--:|---|--:|--:|--:|\n")
	for turn := 1; b.Loop(); turn++ {
		for _, of := range []struct {
			name, load string
			by         shelf
		}{{"overlapd", "demand", byDaemon{}}, {"lru", "request", &lru{}}, {"fixed", "request", fixedShelf{}}} {
			c := config{top: fmt.Sprintf("device = \"cpu\"\nload = %q\nmemory = %q\nlog_level = \"info\"", of.load, memory)}
			for i := range residentModels {
				target := residentLong
				if i%2 == 1 {
					target = residentShort
				}
				c.services = append(c.services, service{fmt.Sprint("m", i), []string{"zoo:tiny_cnn", "zoo:tiny_mlp"}[i/2%2], fmt.Sprintf("target = %q", target)})
			}
			p := serve(b, c)
			of.by.begin(p)
			violations, p99 := p.residents(of.by, uint64(turn))
			fmt.Printf("| %d | %s | %.1f %% | %d | %.0f ms |\n", turn, of.name, 100*violations, p.residence().Overview.Memory.Loads, p99)
			p.stop()
		}
	}
	b.ReportMetric(0, "ns/op")
}

// residents puts the load of BenchmarkResidents on a daemon.
func (p *process) residents(by shelf, seed uint64) (violations, p99 float64) {
	random := rand.New(rand.NewPCG(seed, 1))
	var sum float64
	cumulated := make([]float64, residentModels)
	for i := range cumulated {
		sum += math.Pow(float64(i+1), -residentZipf)
		cumulated[i] = sum
	}
	zeros := func(shape ...int64) query {
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		return query{Inputs: []tensor{{Name: "input", Datatype: "FP32", Shape: shape, Data: make([]float64, n)}}}
	}
	queries := map[string]query{"zoo:tiny_cnn": zeros(1, 3, 32, 32), "zoo:tiny_mlp": zeros(1, 16)}
	var mu sync.Mutex
	var all sync.WaitGroup
	late, asked, popular := 0, 0, []float64{}
	begin := time.Now()
	for at := time.Duration(0); at < residentWindow; at += time.Duration(random.ExpFloat64() / residentRate * float64(time.Second)) {
		model, _ := slices.BinarySearch(cumulated, random.Float64()*sum)
		time.Sleep(time.Until(begin.Add(at)))
		all.Go(func() {
			began := time.Now()
			by.admit(p, model)
			s := p.config.services[model]
			a := p.infer(s.name, queries[s.model])
			took := time.Since(began)
			target := residentLong
			if model%2 == 1 {
				target = residentShort
			}
			mu.Lock()
			defer mu.Unlock()
			if at < residentWarm {
				return
			}
			if asked++; a.Status != 200 || took > target {
				late++
			}
			if model < 5 && a.Status == 200 {
				popular = append(popular, took.Seconds()*1e3)
			}
		})
	}
	all.Wait()
	slices.Sort(popular)
	return float64(late) / float64(max(asked, 1)), popular[len(popular)*99/100]
}

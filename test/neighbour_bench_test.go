package test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// How often the neighbour is asked, as a Poisson process, and for how long. Its first
// second under attack is reported apart.
const (
	neighbourRate = 40 // queries per second
	neighbourTime = 20 * time.Second
)

// BenchmarkNeighbour measures what is left of one service while another is attacked:
// by images far larger than any before, in a closed loop, by loops without end, or by
// stopping its worker every four seconds. It reports the share of queries that were
// answered, and the p99 of those, after the first second and in it.
func BenchmarkNeighbour(b *testing.B) {
	for _, attack := range []struct {
		name, model string
		run         func(p *process, over *atomic.Bool)
	}{
		{"none", "images", func(*process, *atomic.Bool) {}},
		{"images", "images", func(p *process, over *atomic.Bool) {
			for !over.Load() {
				p.inferBinary("attacked", image(1024))
			}
		}},
		{"loops", "loop", func(p *process, over *atomic.Bool) {
			for !over.Load() {
				p.infer("attacked", one(endless))
				time.Sleep(20 * time.Millisecond)
			}
		}},
		{"stops", "images", stopAgain},
	} {
		b.Run(attack.name, func(b *testing.B) {
			attacked := map[string]message{"images": convolutions(), "loop": loops()}[attack.model]
			p := serve(b, config{services: []service{
				{"neighbour", write(b, "n.onnx", slow(1)), "target = \"100ms\""},
				{"attacked", write(b, "a.onnx", attacked), "target = \"100ms\"\nbest_effort = true"},
			}, tables: "[profile]\non_start = false\n"})
			for b.Loop() {
				var over atomic.Bool
				var attackers sync.WaitGroup
				attackers.Go(func() { attack.run(p, &over) })
				asked, took := p.askNeighbour()
				over.Store(true)
				attackers.Wait()
				for i, when := range []string{"first-s", "later"} {
					slices.Sort(took[i])
					b.ReportMetric(100*float64(len(took[i]))/float64(max(asked[i], 1)), "%answered-"+when)
					b.ReportMetric(share(took[i], 0.99).Seconds()*1e3, "p99-ms-"+when)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// askNeighbour asks the neighbour at random times, and returns how many queries there
// were and how long those took that were answered: in the first second, and later.
func (p *process) askNeighbour() (asked [2]int, took [2][]time.Duration) {
	random := rand.New(rand.NewPCG(14, 2))
	var mu sync.Mutex
	var all sync.WaitGroup
	begin := time.Now()
	for at := time.Duration(0); at < neighbourTime; at += time.Duration(random.ExpFloat64() * float64(time.Second) / neighbourRate) {
		time.Sleep(time.Until(begin.Add(at)))
		when := min(int(at/time.Second), 1)
		asked[when]++
		all.Go(func() {
			a := p.infer("neighbour", one(1))
			mu.Lock()
			defer mu.Unlock()
			if a.Status == 200 { // from when it was due, however late it was sent
				took[when] = append(took[when], time.Since(begin.Add(at)))
			}
		})
	}
	all.Wait()
	return asked, took
}

// stopAgain stops the worker that is attacked every four seconds, while it is asked.
func stopAgain(p *process, over *atomic.Bool) {
	var asks sync.WaitGroup
	asks.Go(func() {
		for !over.Load() {
			p.inferBinary("attacked", image(64))
			time.Sleep(10 * time.Millisecond)
		}
	})
	for !over.Load() {
		if pid := p.worker("attacked"); pid != 0 {
			_ = sendSignal(pid, syscall.SIGSTOP)
		}
		for begin := time.Now(); time.Since(begin) < 4*time.Second && !over.Load(); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	asks.Wait()
}

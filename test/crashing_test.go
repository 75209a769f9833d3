package test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// How clients ask in TestCrashingClient.
const (
	attackTime   = 12 * time.Second
	attackEvery  = 500 * time.Millisecond
	innocentWait = 58 * time.Millisecond // about 17 queries a second
)

// stream sends queries to a service at a pace, each on a connection of its own from an
// address, and does not wait for answers. It returns how many it sent and how many were answered.
func (p *process) stream(service, from string, every time.Duration, make func(i int) query) (sent, answered int) {
	var all sync.WaitGroup
	var ok atomic.Int64
	begin := time.Now()
	for ; time.Since(begin) < attackTime; sent++ {
		q := make(sent)
		all.Go(func() {
			c := httpCaller{address: p.address, from: from}
			if a := c.ask(service, q); a.Err == nil && a.Status == 200 {
				ok.Add(1)
			}
			c.close()
		})
		time.Sleep(time.Until(begin.Add(time.Duration(sent+1) * every)))
	}
	all.Wait()
	return sent, int(ok.Load())
}

// A client sends two queries a second that end the worker, with other values each time.
// Other clients of the same service, and queries of its own that have another shape, are
// answered meanwhile, and so are those of another service. Where nothing tells the innocent
// from the guilty, nobody is refused for long.
func TestCrashingClient(t *testing.T) {
	t.Parallel()
	const attacker, other = "127.0.0.1", "127.0.0.2"
	path := write(t, "quotient.onnx", quotient(numbers))
	services, random := []service{tinyAdd}, rand.New(rand.NewPCG(17, 1))
	crash := func(i int) query { return deadly(1000 + i) }
	innocents := []struct {
		service, from string
		share         float64
		query, attack func(i int) query
	}{
		{"add", attacker, 1, func(int) query { return sum(random, 1) }, nil},
		{"sender", other, 0.95, func(i int) query { return good(i % numbers) }, crash},
		{"shape", attacker, 0.95, func(i int) query { return quotientsOf(2, float64(i%numbers), 0, 0) }, crash},
		{"both", attacker, 0.1, func(i int) query { return good(i % numbers) }, crash},
		// It takes a query until its deadline, and a moment more, to be known as one that hangs.
		{"hang", other, 0.5, func(int) query { return one(3) }, func(i int) query { return one(endless + float64(int(1)<<(20+i%16))) }},
	}
	for _, in := range innocents[1:4] {
		services = append(services, service{in.service, path, "target = \"2s\"\nmax_batch = 8"})
	}
	services = append(services, service{"hang", write(t, "loop.onnx", loops()), `target = "500ms"`})
	p := serve(t, config{services: services})
	p.crashes = true
	var all sync.WaitGroup
	for _, in := range innocents {
		all.Go(func() {
			sent, answered := p.stream(in.service, in.from, innocentWait, in.query)
			if t.Logf("%s: %d of %d innocent queries were answered", in.service, answered, sent); float64(answered) < in.share*float64(sent) {
				t.Errorf("%s: %d of %d innocent queries were answered, want %v of them", in.service, answered, sent, in.share)
			}
		})
		if in.attack != nil {
			all.Go(func() { p.stream(in.service, attacker, attackEvery, in.attack) })
		}
	}
	all.Wait()
	for _, in := range innocents[1:] {
		lost := p.count(func(e event) bool { return e.Message == "worker exited" && e.Service == in.service })
		t.Logf("%s: %d workers were lost", in.service, lost)
	}
}

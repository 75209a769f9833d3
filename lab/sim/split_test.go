package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// TestPack: whatever is asked, all of it is planned, and no device has more to do in a
// cycle than it has time, nor a query to wait longer for its batch than its target.
func TestPack(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		streams := make([]demand, 1+r.IntN(12))
		for i := range streams {
			alpha, beta := 0.001+0.004*r.Float64(), 0.02*r.Float64()
			s := demand{rate: 300 * r.Float64(), most: 64, took: func(batch int) float64 { return alpha*float64(batch) + beta }}
			s.target = s.took(1) * (2 + 4*r.Float64())
			streams[i] = s
		}
		planned := make([]float64, len(streams))
		for _, b := range pack(streams, 1) {
			busy := 0.0
			for _, s := range b.shares {
				planned[s.service] += s.rate
				took := streams[s.service].took(s.batch)
				busy += took
				if b.cycle+took > streams[s.service].target*(1+1e-9) {
					t.Fatalf("seed %d: a cycle of %v and a batch of %v for a target of %v", seed, b.cycle, took, streams[s.service].target)
				}
				if s.rate*b.cycle > float64(s.batch)+1e-6 {
					t.Fatalf("seed %d: %v queries in a cycle, in a batch of %d", seed, s.rate*b.cycle, s.batch)
				}
			}
			if busy > b.cycle*(1+1e-9) {
				t.Fatalf("seed %d: %v in a cycle of %v", seed, busy, b.cycle)
			}
		}
		for i, rate := range planned {
			if math.Abs(rate-streams[i].rate) > 1e-6 {
				t.Fatalf("seed %d: of %v queries per second %v are planned", seed, streams[i].rate, rate)
			}
		}
	}
}

// TestSplit serves a service on devices that cannot take turns: as many as Symphony's
// equation gives for such devices (table 2), in batches of at most 7, and equally many on each.
func TestSplit(t *testing.T) {
	sc := Scenario{
		Scheduler: Others.New, Device: linearDevice(t, "a,1.053,5.072\n"), Devices: 8, Dispatch: Split, Queries: 20_000,
		Services: []Service{{Name: "a", Target: 25 * ms, MaxBatch: 64}},
	}
	violations := map[string]float64{}
	for _, policy := range []string{"nexus", "eager"} {
		sc.Policy, sc.Arrivals = policy, Arrivals{Process: Poisson, QPS: 4100}
		violations[policy] = run(t, sc).Violations
	}
	if violations["nexus"] > 0.01 || violations["eager"] < 0.1 {
		t.Errorf("violations %v: want the first queries to be dropped in time", violations)
	}
	sc.Policy = "nexus"
	rounds, _ := watch(t, sc)
	largest, of := 0, make([]int, 8)
	for _, r := range rounds {
		largest = max(largest, r.Spans[0].Size)
		of[r.Device] += r.Spans[0].Size
	}
	if largest != 7 || slices.Max(of)-slices.Min(of) > 200 {
		t.Errorf("batches of up to %d, %v queries on the devices", largest, of)
	}
}

// turn is an independent device of a plan, as Nexus has it: services take turns, each with
// as many of its queries, up to its largest batch, as are in time together, and a service
// with none is passed over. It returns how many are not in time.
func turn(sc *Scenario, alpha, beta float64, largest int) (bad int) {
	queues := make([][]time.Duration, len(sc.Services))
	took := func(n int) time.Duration { return time.Duration((alpha*float64(n) + beta) * float64(ms)) }
	now, next, service := time.Duration(0), 0, models.ServiceID(0)
	for {
		for ; next < len(sc.Given) && sc.Given[next].At <= now; next++ {
			q := sc.Given[next]
			queues[q.Service] = append(queues[q.Service], q.At+sc.Services[q.Service].Target)
		}
		ran := false
		for range queues {
			service = (service + 1) % models.ServiceID(len(queues))
			q := &queues[service]
			for len(*q) > 0 && now+took(min(len(*q), largest)) > (*q)[0] { // early drop
				*q, bad = (*q)[1:], bad+1
			}
			if n := min(len(*q), largest); n > 0 {
				*q, now, ran = (*q)[n:], now+took(n), true
				break
			}
		}
		switch {
		case ran:
		case next < len(sc.Given):
			now = max(now, sc.Given[next].At)
		default:
			return bad
		}
	}
}

// TestNexusIsAsGoodAsTurns: the policy, which runs first what must start first, leaves no
// more queries late than services that take turns.
func TestNexusIsAsGoodAsTurns(t *testing.T) {
	const alpha, beta, largest = 1.0, 4.0, 8
	ours, turns := 0, 0
	for seed := range uint64(8) {
		sc := Scenario{Policy: "nexus", Scheduler: Others.New, Dispatch: Split, Device: linearDevice(t, "a,1,4\n")}
		for i, target := range []time.Duration{25, 40, 60, 100} {
			sc.Services = append(sc.Services, Service{Name: string(rune('a' + i)), Model: "a", Target: target * ms, MaxBatch: largest})
		}
		r := rand.New(rand.NewPCG(seed, 2))
		for at := time.Duration(0); len(sc.Given) < 3000; at += time.Duration(r.ExpFloat64() * float64(ms) * (2.2 - 0.1*float64(seed))) {
			sc.Given = append(sc.Given, Query{At: at, Service: models.ServiceID(r.IntN(4)), Size: 1})
		}
		result := run(t, sc)
		ours, turns = ours+result.Queries-result.Answered+result.Late, turns+turn(&sc, alpha, beta, largest)
	}
	t.Logf("%d late under the policy, %d with turns", ours, turns)
	if ours > turns || turns == 0 {
		t.Errorf("%d late under the policy, %d with turns", ours, turns)
	}
}

package baselines

import (
	"flag"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
)

var instances = flag.Int("instances", 300, "random instances on which policies are compared with the optimum")

// rates are alpha and beta of a model, in milliseconds.
type rates struct{ alpha, beta float64 }

// affinity is that of Shepherd (section 5.2).
func affinity(i, j rates) float64 {
	most := (i.alpha + i.beta) / j.alpha
	if rest := j.alpha + j.beta - i.beta; rest > 0 {
		return min(most, max(i.alpha/rest, i.alpha/j.alpha))
	}
	return most
}

// optimum returns how many queries one device could have in time that knows them all and
// cuts no models. For each set of queries it finds when all of them can be over.
func optimum(sc *sim.Scenario, of []rates) (most int) {
	const late = time.Duration(1 << 62)
	over := make([]time.Duration, 1<<len(sc.Given))
	for set := 1; set < len(over); set++ {
		over[set] = late
		for batch := set; batch > 0; batch = (batch - 1) & set { // that is run last
			before := over[set&^batch]
			if before == late {
				continue
			}
			first := sc.Given[bits.TrailingZeros(uint(batch))]
			start, due, one := before, late, true
			for i, q := range sc.Given {
				if batch>>i&1 == 1 {
					start, due = max(start, q.At), min(due, q.At+sc.Services[q.Service].Target)
					one = one && q.Service == first.Service
				}
			}
			m := of[first.Service]
			end := start + time.Duration((m.alpha*float64(bits.OnesCount(uint(batch)))+m.beta)*float64(time.Millisecond))
			if one && end <= due {
				over[set] = min(over[set], end)
			}
		}
		if over[set] < late {
			most = max(most, bits.OnesCount(uint(set)))
		}
	}
	return most
}

// TestCompetitiveRatio: Shepherd proves (theorem 5.2) that flex has never fewer queries in
// time than 1/(12.62 K) of what a schedule has that knows them all beforehand. It logs the
// worst of other policies too. Those that keep what they stop may have more than the
// optimum, which cuts no models.
//
//	go test ./lab/baselines -run TestCompetitiveRatio -v -args -instances 20000
func TestCompetitiveRatio(t *testing.T) {
	worst, seeds := map[string]float64{}, map[string]int{}
	policies := []string{"flex", "flex-resume", "overlap", "largest", "eager"}
	n, sum := *instances, map[string]int{}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		of := make([]rates, 1+r.IntN(2))
		rows, sc := "", sim.Scenario{Scheduler: New, Dispatch: sim.Pool, Check: seed%16 == 0}
		for i := range of {
			of[i] = rates{0.1 * float64(1+r.IntN(30)), 0.1 * float64(r.IntN(200))}
			rows += fmt.Sprintf("%d,%.1f,%.1f\n", i, of[i].alpha, of[i].beta)
			target := (of[i].alpha + of[i].beta) * (1.05 + 2*r.Float64())
			sc.Services = append(sc.Services, sim.Service{Name: fmt.Sprint(i), Target: time.Duration(target * float64(time.Millisecond)), MaxBatch: 8})
		}
		sc.Device = linearDevice(t, rows)
		at := time.Duration(0)
		for range 2 + r.IntN(6) {
			if r.IntN(3) > 0 {
				at += time.Duration(1+r.IntN(8)) * time.Millisecond
			}
			sc.Given = append(sc.Given, sim.Query{At: at, Service: models.ServiceID(r.IntN(len(of))), Size: 1})
		}
		k := 1.0
		for _, i := range of {
			for _, j := range of {
				k = max(k, affinity(i, j))
			}
		}
		best := optimum(&sc, of)
		sum["optimum"] += best
		for _, policy := range policies {
			sc.Policy = policy
			result := run(t, sc)
			have := result.Answered - result.Late
			sum[policy] += have
			ratio := float64(best) / max(float64(have), 1e-9)
			if best == 0 {
				continue
			}
			if policy == "flex" && ratio > 12.62*k {
				t.Errorf("seed %d: flex has %d in time, the optimum %d, K is %.2f", seed, have, best, k)
			}
			if ratio > worst[policy] {
				worst[policy], seeds[policy] = ratio, seed
			}
		}
	}
	t.Log("| the optimum is times as good as | in the worst instance | its seed | in all together |")
	t.Log("|---|--:|--:|--:|")
	for _, policy := range policies {
		t.Logf("| %s | %.2f | %d | %.3f |", policy, worst[policy], seeds[policy], float64(sum["optimum"])/float64(sum[policy]))
	}
}

package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

const (
	stallsFrom = 10 * time.Second // until then the host is calm
	stallsTo   = 40 * time.Second // and from then on
	usedAgain  = stallsTo + 20*time.Second
	watched    = stallsTo + 60*time.Second
)

// stalling is a device on a host that stalls for 50 to 500 ms every now and then
// between stallsFrom and stallsTo. What runs then ends by as much later.
type stalling struct {
	*formula
	gap  time.Duration // between two stalls, in the mean
	now  time.Duration // when the last round has ended
	next time.Duration // stall
}

func (s *stalling) Sample(g models.Group, r *rand.Rand) time.Duration {
	took := s.formula.Sample(g, r)
	for s.next <= s.now+took && s.next < stallsTo {
		stall := 50*ms + time.Duration(r.Int64N(int64(450*ms)))
		if s.next >= s.now { // of the time in which something runs
			took += stall
		}
		s.next += stall + time.Duration(r.ExpFloat64()*float64(s.gap))
	}
	return took
}

// stallScenario has three services whose queries take 5 to 10 ms alone, times a
// scale, and gain by running side by side.
func stallScenario(t *testing.T, policy string, seed uint64, scale, gap time.Duration) (Scenario, *stalling) {
	sc := Scenario{Arrivals: Arrivals{Process: Poisson, QPS: 150 / float64(scale)}, Seed: seed, Policy: policy, Plan: true}
	sc.Queries = int(sc.Arrivals.QPS * watched.Seconds())
	f := newFormula(0.3, 0.06, scale*ms, scale*800*time.Microsecond, scale*600*time.Microsecond)
	for i, op := range f.op {
		sc.Services = append(sc.Services, Service{Name: f.models[i].Name, MaxBatch: 4, Target: 60 * op})
	}
	d := &stalling{formula: f, gap: gap, next: stallsFrom}
	sc.Device, sc.Predictor = d, formulaPredictor(t, f, seed)
	return sc, d
}

// TestStalls has a host stall for half a minute. Nobody can foresee a stall, and when
// they are over it must be as if there had been none: each group of services that ran
// before runs again within 20 s, as often as before, and as few queries are late. In
// the meantime no more are than under edf, which merges as well.
func TestStalls(t *testing.T) {
	for _, scale := range []time.Duration{1, 8} {
		for _, gap := range []time.Duration{300 * ms, time.Second, 3 * time.Second} {
			t.Run(fmt.Sprintf("rounds of %v ms, stalls every %v", 10*int(scale), gap), func(t *testing.T) {
				t.Parallel()
				late := map[string]*[4]float64{"edf": {}, "overlap": {}}
				seeds := max(6*uint64(scale)/8, 2) // there are fewer long rounds
				for seed := range seeds {
					for policy, sum := range late {
						sc, d := stallScenario(t, policy, seed+1, scale, gap)
						phases := watchPhases(t, sc, d)
						for i := range phases {
							sum[i] += 100 * float64(phases[i].late) / float64(phases[i].queries) / float64(seeds)
						}
						if policy == "overlap" {
							checkShapes(t, seed+1, phases)
						}
					}
				}
				for _, policy := range []string{"edf", "overlap"} {
					v := late[policy]
					t.Logf("| %v | %d ms | %s | %.1f | %.1f | %.1f | %.1f |", gap, 10*int(scale), policy, v[0], v[1], v[2], v[3])
				}
				if edf, ours := late["edf"][1], late["overlap"][1]; ours > edf {
					t.Errorf("during the stalls %.1f %% are late, under edf %.1f %%", ours, edf)
				}
				if before, after := late["overlap"][0], late["overlap"][3]; after > before+1 {
					t.Errorf("long after the stalls %.1f %% are late, before %.1f %%", after, before)
				}
			})
		}
	}
}

// stallPhase is what happened before, during, soon after or long after the stalls: how
// often each set of services ran together.
type stallPhase struct {
	queries, late, rounds int
	shapes                map[uint64]int
}

func watchPhases(t *testing.T, sc Scenario, d *stalling) (phases [4]stallPhase) {
	for i := range phases {
		phases[i].shapes = map[uint64]int{}
	}
	at := func(at time.Duration) *stallPhase {
		for i, end := range []time.Duration{stallsFrom, stallsTo, usedAgain} {
			if at < end {
				return &phases[i]
			}
		}
		return &phases[3]
	}
	sc.Observer.Round = func(r *Round) {
		d.now = r.End
		var shape uint64
		for _, s := range r.Spans {
			shape |= 1 << s.Service
		}
		p := at(r.Start)
		p.rounds++
		p.shapes[shape]++
	}
	sc.Observer.Answer = func(a *Answer) {
		p := at(a.Query.At)
		p.queries++
		if !a.InTime {
			p.late++
		}
	}
	run(t, sc)
	return phases
}

// checkShapes holds what runs after the stalls to what ran before.
func checkShapes(t *testing.T, seed uint64, phases [4]stallPhase) {
	t.Helper()
	before, soon, long := &phases[0], &phases[2], &phases[3]
	for shape, n := range before.shapes {
		share := func(p *stallPhase) float64 { return 100 * float64(p.shapes[shape]) / float64(p.rounds) }
		if n >= 5 && soon.shapes[shape] == 0 {
			t.Errorf("seed %d: shape %b is not used again within 20 s", seed, shape)
		}
		if share(before) >= 5 && share(long) < share(before)/3 {
			t.Errorf("seed %d: shape %b is %.0f %% of the rounds before, %.0f %% long after", seed, shape, share(before), share(long))
		}
	}
}

package bound

import (
	"errors"
	"flag"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/lab/synthetic"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// blocks is a formula whose models have one operator each, so that nobody can cut them.
type blocks struct{ formula }

func (b blocks) Models() []device.ModelInfo {
	list := b.formula.Models()
	for i := range list {
		list[i].Operators = 1
	}
	return list
}

func (b blocks) Latency(g models.Group) time.Duration { return 10 * b.formula.Latency(g) }

func (b blocks) Sample(g models.Group, _ *rand.Rand) time.Duration { return b.Latency(g) }

func (b blocks) OperatorTimes(whole models.Span) []int64 {
	return device.OperatorTimes(b.Latency, whole)
}

// small is a scenario of a few queries that load such a device too much.
func small(seed uint64, queries int) sim.Scenario {
	sc := scenario(seed, queries, []float64{60, 100, 160}[seed%3])
	sc.Device = blocks{formula{[]float64{0.1, 0.5, 0.9}[seed/3%3]}}
	sc.Services[0].MaxBatch, sc.Services[1].MaxBatch = 8, []int{0, 4}[seed%2]
	return sc
}

// TestForesightIsASchedule follows each schedule that is found, and compares what comes
// of it with what was said.
func TestForesightIsASchedule(t *testing.T) {
	for seed := range uint64(30) {
		sc := small(seed, 20)
		queries, err := sc.Submissions()
		if err != nil {
			t.Fatal(err)
		}
		f, err := Foresee(sc)
		if err != nil {
			t.Fatal(err)
		}
		if err := follow(&sc, queries, f); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// follow holds a schedule to the rules.
func follow(sc *sim.Scenario, queries []sim.Query, f *foresight) error {
	ran := uint64(0)
	for s := f.last; s.from != nil; s = s.from {
		var spans [2]models.Span
		for members := s.members; members != 0; members &= members - 1 {
			i := bits.TrailingZeros64(members)
			q := &queries[i]
			span := &spans[q.Service]
			if q.At > s.start || s.at > q.At+sc.Services[q.Service].Target {
				return fmt.Errorf("query %d of %v runs from %v to %v", i, q.At, s.start, s.at)
			}
			if span.Size > 0 && (span.SeqLen != q.SeqLen || span.Size+q.Size > sc.Services[q.Service].MaxBatch) {
				return fmt.Errorf("query %d is in a batch of %+v", i, *span)
			}
			*span = models.Span{Service: q.Service, End: sc.Device.Models()[q.Service].Operators, Size: span.Size + q.Size, SeqLen: q.SeqLen}
		}
		var group models.Group
		for _, span := range spans {
			if span.Size > 0 {
				group.Spans = append(group.Spans, span)
			}
		}
		if s.start < s.from.at || s.at-s.start != sc.Device.Latency(group) || ran&s.members != 0 {
			return fmt.Errorf("a round of %+v from %v to %v after one that ended at %v", group, s.start, s.at, s.from.at)
		}
		ran |= s.members
	}
	if n := bits.OnesCount64(ran); n != f.InTime || f.AtMost < n {
		return fmt.Errorf("%d are in time, said are %d to %d", n, f.InTime, f.AtMost)
	}
	return nil
}

// TestForesightIsTheBest tries all schedules of very few queries: all sets of them that
// could be a round, at every time when one could start.
func TestForesightIsTheBest(t *testing.T) {
	lost := 0
	for seed := range uint64(60) {
		sc := small(seed, 7)
		sc.Arrivals.QPS *= 10
		queries, err := sc.Submissions()
		if err != nil {
			t.Fatal(err)
		}
		f, err := Foresee(sc)
		if err != nil {
			t.Fatal(err)
		}
		if best := brute(&sc, queries, 0, 1<<len(queries)-1); f.InTime != best || f.AtMost != best {
			t.Errorf("seed %d: found %d, at most %d, of %d that are possible", seed, f.InTime, f.AtMost, best)
		}
		lost += len(queries) - f.InTime
	}
	if lost < 20 {
		t.Errorf("only %d queries could not be in time: nothing was to be found", lost)
	}
}

// brute returns how many of the queries that are left can be in time from a time on.
func brute(sc *sim.Scenario, queries []sim.Query, at time.Duration, left uint64) (most int) {
	for set := uint64(1); set <= left; set++ {
		if set&^left != 0 {
			continue
		}
		var sizes, members [2]int
		start, due, ok := at, time.Hour, true
		for i, q := range queries {
			if set>>i&1 == 1 {
				sv := &sc.Services[q.Service]
				sizes[q.Service] += q.Size
				members[q.Service]++
				start, due = max(start, q.At), min(due, q.At+sv.Target)
				ok = ok && (members[q.Service] == 1 || sizes[q.Service] <= sv.MaxBatch)
			}
		}
		var g models.Group
		for s, size := range sizes {
			if size > 0 {
				g.Spans = append(g.Spans, models.Span{Service: models.ServiceID(s), End: 1, Size: size})
			}
		}
		if end := start + sc.Device.Latency(g); ok && end <= due {
			most = max(most, bits.OnesCount64(set)+brute(sc, queries, end, left&^set))
		}
	}
	return most
}

// TestNoPolicyBeatsForesight where models cannot be cut, by a policy that knows the device.
func TestNoPolicyBeatsForesight(t *testing.T) {
	better, exact := 0, 0
	for seed := range uint64(60) {
		sc := small(seed, 20+10*int(seed%3))
		f, err := Foresee(sc)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Of(sc)
		if err != nil || b.InTime < f.InTime {
			t.Errorf("seed %d: the bound of all schedules is %+v, %v, and one has %d", seed, b, err, f.InTime)
		}
		most := 0
		for _, policy := range policyNames() {
			if sc.Policy = policy; policy == "static" {
				continue // no service has a share
			}
			r, err := sim.Run(sc)
			if err != nil {
				t.Fatal(err)
			}
			in := r.Answered - r.Late
			if in > f.AtMost || in > f.InTime && f.AtMost == f.InTime {
				t.Errorf("seed %d: %s answers %d in time, foresight %d, at most %d", seed, policy, in, f.InTime, f.AtMost)
			}
			most = max(most, in)
		}
		if f.InTime > most {
			better++
		}
		if f.InTime == f.AtMost {
			exact++
		}
	}
	if better < 20 || exact < 50 {
		t.Errorf("foresight is worth something in %d of 60, and exact in %d", better, exact)
	}
}

// TestNarrowForesight leaves states out, and says that there may be more.
func TestNarrowForesight(t *testing.T) {
	apart := false
	for seed := range uint64(20) {
		sc := small(seed, 30)
		queries, err := sc.Submissions()
		if err != nil {
			t.Fatal(err)
		}
		narrow, wide := newSearch(&sc, queries).widen(1), newSearch(&sc, queries).widen(maxWidth)
		if narrow.InTime > wide.InTime || narrow.AtMost < wide.InTime || narrow.AtMost < narrow.InTime {
			t.Errorf("seed %d: narrow %+v, wide %+v", seed, narrow, wide)
		}
		apart = apart || narrow.InTime < narrow.AtMost
	}
	if !apart {
		t.Error("one state of a slot was always enough")
	}
}

func TestForesightOfOthers(t *testing.T) {
	many := small(1, MaxForeseen+1)
	several := small(1, 10)
	several.Devices = 2
	for _, sc := range []sim.Scenario{many, several} {
		if _, err := Foresee(sc); !errors.Is(err, ErrTooMany) {
			t.Errorf("got %v", err)
		}
	}
	sc := small(1, 0)
	sc.Given = []sim.Query{{Size: 1}, {Size: 8, Leaves: 1}, {At: time.Second, Size: 1}}
	if f, err := Foresee(sc); err != nil || f.InTime != 2 || f.AtMost != 2 {
		t.Errorf("one whose client leaves counts: %+v, %v", f, err)
	}
}

var (
	instances     = flag.Int("instances", 6, "how many instances TestForesightGap compares policies on")
	deviceFile    = flag.String("device", "", "profile of another device for it than the synthetic GPU")
	predictorFile = flag.String("predictor", "", "the predictor for that")
)

// still is a device whose runs all take the middle of their time.
type still struct{ *device.Model }

func (s still) Sample(g models.Group, _ *rand.Rand) time.Duration { return s.Latency(g) }

// TestForesightGap shows what foresight is worth: it compares it with policies that merge, on
// pairs of models in turn.
func TestForesightGap(t *testing.T) {
	profile, trained := gapDevice(t)
	m, err := device.NewModel(profile)
	if err != nil {
		t.Fatal(err)
	}
	policies := []string{"edf", "abacus", "overlap"}
	sums := map[string]int{}
	total, exact := 0, 0
	for n := range *instances {
		sc := gapScenario(n, still{m}, trained)
		total += sc.Queries
		f, err := Foresee(sc)
		if err != nil {
			t.Fatal(err)
		}
		line := ""
		for _, sc.Policy = range policies {
			r, err := sim.Run(sc)
			if err != nil {
				t.Fatal(err)
			}
			sums[sc.Policy] += sc.Queries - r.Answered + r.Late
			line += fmt.Sprintf(", %s %d", sc.Policy, r.Answered-r.Late)
		}
		sums["foresight"] += sc.Queries - f.InTime
		sums["at most"] += sc.Queries - f.AtMost
		if f.InTime == f.AtMost {
			exact++
		}
		t.Logf("%d: %s and %s, %.0f/s: of %d in time: foresight %d to %d%s", n, sc.Services[0].Name, sc.Services[1].Name, sc.Arrivals.QPS, sc.Queries, f.InTime, f.AtMost, line)
	}
	t.Log("| of " + fmt.Sprint(total) + " queries | violate, percent |")
	t.Log("|---|--:|")
	for _, name := range append(policies, "foresight", "at most") {
		t.Logf("| %s | %.2f |", name, 100*float64(sums[name])/float64(total))
	}
	t.Logf("| foresight is exact | in %d of %d instances |", exact, *instances)
	for _, p := range policies[:1] { // it cuts no models
		if sums["at most"] > sums[p] {
			t.Errorf("%s has fewer violations than foresight", p)
		}
	}
}

func gapDevice(t *testing.T) (*device.Profile, *predictor.File) {
	t.Helper()
	if *deviceFile == "" {
		return synthetic.Device(), synthetic.Predictor()
	}
	profile, err := device.ReadFile(*deviceFile)
	if err != nil {
		t.Fatal(err)
	}
	trained, err := predictor.ReadFile(*predictorFile)
	if err != nil {
		t.Fatal(err)
	}
	return profile, trained
}

// gapScenario is number n of the instances: of two of the device's models, with targets of
// five times what their middle query takes alone, under a load of 0.6, 0.75 and 0.9 of what
// a device could do that is never idle and always merges and overlaps as well as it ever
// does, which is around 1, 1.25 and 1.5 times what overlap bears.
func gapScenario(n int, d still, trained *predictor.File) sim.Scenario {
	sc := sim.Scenario{Seed: uint64(n) + 1, Plan: true, Device: d, Predictor: trained, Queries: 20 + 10*(n%3)}
	known := d.Models()
	first := n % len(known)
	second := (first + 1 + n/len(known)%(len(known)-1)) % len(known)
	for _, i := range []int{first, second} {
		m := &known[i]
		s := sim.Service{Name: m.Name, MaxBatch: 32, Sizes: []int{4, 8, 16, 32}}
		if m.SeqLens[len(m.SeqLens)-1] > 0 {
			s.SeqLens = stats.Thin(m.SeqLens, 4)
		}
		seqLen := m.SeqLens[len(m.SeqLens)/2]
		s.Target = 5 * d.Latency(models.Group{Spans: []models.Span{{Service: models.ServiceID(i), End: m.Operators, Size: 16, SeqLen: seqLen}}})
		sc.Services = append(sc.Services, s)
	}
	c := newCosts(&sc)
	c.grow(0, nil, 0, 0)
	work := 0.0
	shapes := 0
	for s, list := range c.shapes {
		for _, sh := range list {
			share, _ := c.of(&sim.Query{Service: models.ServiceID(s), Size: sh.size, SeqLen: sh.seqLen})
			work += share.Seconds() / c.gain
			shapes++
		}
	}
	sc.Arrivals = sim.Arrivals{Process: sim.Poisson, QPS: []float64{0.6, 0.75, 0.9}[n/3%3] * float64(shapes) / work}
	return sc
}

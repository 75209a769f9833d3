package overlap_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// mixture is a world of services and queries whose decisions must not depend on how it is written
// down: on the order of its services, its unit of time, and services that get no query.
type mixture struct {
	policy   string
	devices  int
	services []models.Service
	solo     []float64 // of an operator at size 1, by service, in ticks
	queries  []models.Query
	tick     time.Duration
}

func newMixture(seed uint64, policy string) *mixture {
	r := rand.New(rand.NewPCG(seed, 1))
	m := &mixture{policy: policy, devices: 1 + r.IntN(2), tick: 1024}
	total := 0.0
	for i := range 2 + r.IntN(4) {
		sv := models.Service{ID: models.ServiceID(i), Name: string(rune('a' + i)), Operators: 1 + r.IntN(12), QueueLimit: 64, MaxBatch: 1 << r.IntN(4)}
		sv.BestEffort = i > 1 && r.IntN(5) == 0
		solo := float64(100 + r.IntN(900))
		whole := solo * float64(sv.Operators)
		sv.QoSTarget = m.ticks(whole * (1.5 + 4*r.Float64()) * float64(m.devices))
		m.services, m.solo = append(m.services, sv), append(m.solo, solo)
		total += whole
	}
	now := 0.0
	for id := range 200 {
		now += r.ExpFloat64() * total / float64(len(m.services)) / (0.6 + 1.4*r.Float64()) / float64(m.devices)
		sv := &m.services[r.IntN(len(m.services))]
		q := models.Query{ID: models.QueryID(id + 1), Service: sv.ID, Size: 1, Shape: 1, Arrival: m.ticks(now), Priority: r.IntN(2) * r.IntN(3)}
		q.Deadline = q.Arrival + sv.QoSTarget
		m.queries = append(m.queries, q)
	}
	return m
}

func (m *mixture) ticks(n float64) time.Duration { return time.Duration(n) * m.tick }

// Predict implements overlap.Predictor. A group takes as long as its longest span, and a part of
// the others that is the same in whatever order they stand. All numbers are whole ticks.
func (m *mixture) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		longest, sum := 0.0, 0.0
		for _, s := range g.Spans {
			took := math.Floor(m.solo[s.Service] * float64(s.Len()) * (0.6 + 0.4*float64(s.Size)))
			longest, sum = max(longest, took), sum+took
		}
		took := math.Floor(longest + 0.4*(sum-longest))
		estimates[i] = models.Estimate{Latency: m.ticks(took), Bound: m.ticks(math.Floor(1.1 * took))}
	}
}

// run lists all rounds and answers, with the names of services and times in ticks.
func (m *mixture) run(t *testing.T) (said []string) {
	t.Helper()
	c := overlap.Config{Services: m.services, Policy: m.policy, MaxRetries: 1}
	for range m.devices {
		c.Devices = append(c.Devices, m)
	}
	s, err := overlap.New(c)
	if err != nil {
		t.Fatal(err)
	}
	type running struct {
		end     time.Duration
		outcome models.Outcome
	}
	var rounds []running
	now, left := time.Duration(0), m.queries
	tell := func(format string, args ...any) {
		said = append(said, fmt.Sprintf("%d: ", now/m.tick)+fmt.Sprintf(format, args...))
	}
	for range 100 * len(m.queries) {
		r := s.Ready(now)
		for _, a := range r.Answers {
			tell("query %d %v", a.Query, a.Result)
		}
		if r.Round != nil {
			o := models.Outcome{Round: r.Round.Number, Device: r.Round.Device, Took: r.Round.Predicted.Latency}
			var spans []string
			for i, span := range r.Round.Group.Spans {
				o.Spans = append(o.Spans, models.SpanOutcome{Span: span, Reached: span.End, Took: o.Took})
				spans = append(spans, fmt.Sprintf("%s [%d,%d) %v", m.services[span.Service].Name, span.Start, span.End, r.Round.Queries[i]))
			}
			tell("%s on %d", strings.Join(spans, ", "), o.Device)
			rounds = append(rounds, running{now + o.Took, o})
		}
		if r.Round != nil || r.Ended() {
			continue
		}
		next := r.Wake
		for _, r := range rounds {
			next = min(next, r.end)
		}
		if len(left) > 0 {
			next = min(next, left[0].Arrival)
		}
		if next == overlap.Never {
			if !s.Idle() {
				t.Fatal("queries are left for which nothing happens")
			}
			return said
		}
		now = max(now, next)
		slices.SortStableFunc(rounds, func(a, b running) int { return cmp.Compare(a.end, b.end) })
		switch {
		case len(rounds) > 0 && rounds[0].end <= now:
			if err := s.Step(now, &overlap.Event{Kind: overlap.Finish, Outcome: rounds[0].outcome}); err != nil {
				t.Fatal(err)
			}
			rounds = rounds[1:]
		case len(left) > 0 && left[0].Arrival <= now:
			if err := s.Step(now, &overlap.Event{Kind: overlap.Arrive, Query: left[0]}); err != nil {
				tell("query %d: %v", left[0].ID, err)
			}
			left = left[1:]
		}
	}
	t.Fatal("the run does not end")
	return nil
}

// permuted returns the same world with its services in reverse order.
func (m *mixture) permuted() *mixture {
	p := *m
	n := len(m.services)
	p.services, p.solo, p.queries = slices.Clone(m.services), slices.Clone(m.solo), slices.Clone(m.queries)
	slices.Reverse(p.services)
	slices.Reverse(p.solo)
	for i := range p.services {
		p.services[i].ID = models.ServiceID(i)
	}
	for i := range p.queries {
		p.queries[i].Service = models.ServiceID(n-1) - p.queries[i].Service
	}
	return &p
}

// scaled returns the same world with all times multiplied by k.
func (m *mixture) scaled(k time.Duration) *mixture {
	p := *m
	p.tick *= k
	p.services, p.queries = slices.Clone(m.services), slices.Clone(m.queries)
	for i := range p.services {
		p.services[i].QoSTarget *= k
	}
	for i := range p.queries {
		p.queries[i].Arrival *= k
		p.queries[i].Deadline *= k
	}
	return &p
}

// idle is the same world with a further service, whose target is tight and that gets no query. Best
// effort alone makes way for a first query of it.
func (m *mixture) idle() *mixture {
	p := *m
	if slices.ContainsFunc(m.services, func(sv models.Service) bool { return sv.BestEffort }) {
		return &p
	}
	n := len(m.services)
	p.services = append(slices.Clone(m.services), models.Service{ID: models.ServiceID(n), Name: "idle", Operators: 4, QoSTarget: m.ticks(500), QueueLimit: 64, MaxBatch: 4})
	p.solo = append(slices.Clone(m.solo), 100)
	return &p
}

// TestSameDecisions compares the decisions in worlds that differ only in how they are written
// down. A scheduler that prefers a service for its number, counts in seconds or makes way for a
// query that never came would decide otherwise.
func TestSameDecisions(t *testing.T) {
	seeds := 200
	if testing.Short() {
		seeds = 20
	}
	for _, p := range overlap.Policies() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(seeds) {
				m := newMixture(seed, p.Name)
				want := m.run(t)
				for name, other := range map[string]*mixture{"permuted": m.permuted(), "8 times as slow": m.scaled(8), "with an idle service": m.idle()} {
					if diff := gocmp.Diff(want, other.run(t)); diff != "" {
						t.Fatalf("seed %d, %s:\n%s", seed, name, diff)
					}
				}
			}
		})
	}
}

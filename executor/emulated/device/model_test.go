package device

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

func newModel(t testing.TB, p *Profile) *Model {
	t.Helper()
	m, err := NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// withSolo gives a profile times to which its groups were calibrated.
func withSolo(p *Profile) *Profile {
	p.Solo = []SoloTime{
		{Model: "a", Size: 4, Micros: 20_000}, {Model: "a", Size: 8, Micros: 3},
		{Model: "b", Size: 4, SeqLen: 8, Micros: 50}, {Model: "b", Size: 8, SeqLen: 64, Micros: 70_000},
	}
	return p
}

// keepsPromises draws groups and parts of them.
func keepsPromises(t *testing.T, m *Model, seed uint64, groups int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	for range groups {
		g := drawGroup(m, r)
		if !m.Covers(g) {
			t.Fatalf("%v is not covered", g)
		}
		took := m.Latency(g)
		if took < 1 || took > predictor.MaxTime {
			t.Errorf("seed %d: %v takes %v", seed, g, took)
		}
		for _, s := range g.Spans {
			if alone := m.Latency(models.Group{Spans: []models.Span{s}}); alone > took {
				t.Errorf("seed %d: %v takes %v, its span %v alone %v", seed, g, took, s, alone)
			}
		}
		if less, ok := part(g, r); ok && m.Latency(less) > took {
			t.Errorf("seed %d: %v takes %v, %v takes %v", seed, g, took, less, m.Latency(less))
		}
	}
}

// The promises hold for any network that is accepted.
func TestPromises(t *testing.T) {
	for seed := range uint64(30) {
		p := random(seed)
		m := newModel(t, p)
		keepsPromises(t, m, seed, 500)
		r, distinct := rand.New(rand.NewPCG(seed, 2)), map[time.Duration]bool{}
		for range 200 {
			distinct[m.Latency(drawGroup(m, r))] = true
		}
		if len(distinct) < 100 {
			t.Errorf("seed %d: only %d latencies in 200 groups", seed, len(distinct))
		}
	}
}

func TestSampleSpreads(t *testing.T) {
	m, r := newModel(t, random(5)), rand.New(rand.NewPCG(5, 2))
	for _, c := range []struct {
		g    models.Group
		most float64
	}{
		{models.Group{Spans: []models.Span{{Service: 3, End: 20, Size: 4}}}, 0.1},
		{models.Group{Spans: []models.Span{{Service: 3, End: 20, Size: 4}, {Service: 0, End: 7, Size: 4}}}, 0.2},
	} {
		middle := float64(m.Latency(c.g))
		var runs []float64
		for range 4000 {
			runs = append(runs, float64(m.Sample(c.g, r)))
		}
		slices.Sort(runs)
		if off := runs[2000]/middle - 1; math.Abs(off) > 0.02 {
			t.Errorf("the median is off by %v", off)
		}
		if late, bound := runs[3999]/middle, math.Exp(maxDeviations*c.most*m.profile.Spread.Slow); late > bound*1.0001 || late < 1+c.most {
			t.Errorf("the latest of the runs takes %v, the bound is %v", late, bound)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	m, r := newModel(t, random(1)), rand.New(rand.NewPCG(1, 2))
	var groups []models.Group
	for range 64 {
		groups = append(groups, drawGroup(m, r))
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		m.Latency(groups[i%len(groups)])
		m.Sample(groups[i%len(groups)], r)
		if i%100 == 0 {
			clear(m.known)
		}
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCovers(t *testing.T) {
	m := newModel(t, random(1))
	whole := models.Span{Service: 1, End: 12, Size: 8, SeqLen: 64}
	if !m.Covers(models.Group{Spans: []models.Span{whole}}) {
		t.Errorf("%v is not covered", whole)
	}
	for i, change := range []func(*models.Span){
		func(s *models.Span) { s.Service = 4 }, func(s *models.Span) { s.Service = -1 },
		func(s *models.Span) { s.Start = -1 }, func(s *models.Span) { s.End = 13 },
		func(s *models.Span) { s.Start = 12 }, func(s *models.Span) { s.Size = 9 },
		func(s *models.Span) { s.Size = 0 }, func(s *models.Span) { s.SeqLen = 65 },
	} {
		s := whole
		change(&s)
		if m.Covers(models.Group{Spans: []models.Span{s}}) {
			t.Errorf("case %d: %v is covered", i, s)
		}
	}
	if m.Covers(models.Group{}) || m.Covers(models.Group{Spans: []models.Span{whole, whole}}) {
		t.Error("no span, or two of a model, are covered")
	}
	if m.Index("d") != 3 || m.Index("e") != -1 || len(m.Models()) != 4 || m.Device() != "dice" {
		t.Errorf("models %v", m.Models())
	}
}

// TestChange: each batch that begins with a size off the ladder costs a change, no other does.
func TestChange(t *testing.T) {
	p, random := random(1), rand.New(rand.NewPCG(1, 1))
	plain := newModel(t, p)
	costly := *p
	costly.ChangeMillis = 40
	m := newModel(t, &costly)
	span := func(model models.ServiceID, start, size int) models.Span {
		return models.Span{Service: model, Start: start, End: start + 1, Size: size, SeqLen: 8 * int(model%2)}
	}
	for _, c := range []struct {
		spans []models.Span
		want  time.Duration
	}{
		{[]models.Span{span(0, 0, 4), span(1, 0, 1)}, 0},
		{[]models.Span{span(0, 0, 3), span(1, 0, 2)}, 40 * time.Millisecond},
		{[]models.Span{span(0, 0, 3), span(1, 0, 3)}, 80 * time.Millisecond},
		{[]models.Span{span(0, 1, 3), span(1, 0, 4)}, 0}, // it began in another round
	} {
		g := models.Group{Spans: c.spans}
		if got := m.Latency(g) - plain.Latency(g); got != c.want {
			t.Errorf("%+v takes %v more, want %v", g, got, c.want)
		}
		if got := m.Sample(g, random); got < c.want {
			t.Errorf("a run of %+v takes %v", g, got)
		}
	}
	if costly.ChangeMillis = math.NaN(); costly.Validate() == nil {
		t.Error("a change takes no number, and the profile is taken")
	}
}

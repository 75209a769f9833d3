package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// profile returns a profile whose network predicts what the costs are.
func profile(t testing.TB, names ...string) *device.Profile {
	t.Helper()
	p := &device.Profile{Format: device.Format, Device: "formula", Rows: 1}
	p.Network.Spans = 2
	for _, name := range names {
		m := predictor.FeatureModel{Name: name, Operators: 10, MaxSize: 4}
		for _, size := range []int{1, 4} {
			c := predictor.CostCell{Size: size}
			for range m.Operators {
				c.Micros, c.Work = append(c.Micros, 500*float64(size)), append(c.Work, 300*float64(size))
			}
			m.Costs = append(m.Costs, c)
		}
		p.Network.Models = append(p.Network.Models, m)
	}
	width := device.NewEncoder(p.Network.Models).Width
	p.Network.Layers = []predictor.Layer{{Inputs: width, Outputs: 1, Weights: make([]float32, width), Bias: make([]float32, 1)}}
	return p
}

// TestProfiled serves three services on a device that was measured in pairs:
// what it knows nothing of runs one span after another.
func TestProfiled(t *testing.T) {
	d := modelOf(t, profile(t, "a", "b", "c"))
	span := func(model models.ServiceID) models.Span { return models.Span{Service: model, End: 10, Size: 4} }
	group := func(spans ...models.Span) models.Group { return models.Group{Spans: spans} }
	a, b, pair := d.Latency(group(span(0))), d.Latency(group(span(1))), d.Latency(group(span(0), span(1)))
	if pair < max(a, b) || pair >= a+b {
		t.Errorf("alone %v and %v, together %v", a, b, pair)
	}
	three := group(span(0), span(1), span(2))
	if got, want := d.Latency(three), a+b+d.Latency(group(span(2))); got != want {
		t.Errorf("three spans take %v, want %v", got, want)
	}
	random := rand.New(rand.NewPCG(1, 1))
	if got, want := d.Sample(three, random), d.Latency(three); got != want {
		t.Errorf("a run of three spans takes %v, want %v: nothing spreads here", got, want)
	}
	sc := busyScenario("abacus")
	sc.Device, sc.DeviceName, sc.Services[1].Sizes, sc.Check = d, d.Device(), []int{1, 4}, true
	sc.Services[0].MaxBatch = 4
	sc.Services = append(sc.Services, Service{Name: "c", Target: 200 * ms})
	if r := run(t, sc); r.Answered == 0 || r.Queries != sc.Queries {
		t.Errorf("got %+v", r)
	}
	if _, err := device.NewModel(&device.Profile{}); err == nil {
		t.Error("an empty profile is taken for a device")
	}
}

// linearDevice returns one of rows with the name, alpha and beta of each model.
func linearDevice(t testing.TB, rows string) *device.Model {
	t.Helper()
	p, err := device.Linear("l", rows)
	if err != nil {
		t.Fatal(err)
	}
	d := modelOf(t, p)
	return d
}

// TestLinearDevice: on a device that is linear the scheduler knows to the nanosecond what
// each batch takes, also of sizes that it was never asked about, as long as the run is.
func TestLinearDevice(t *testing.T) {
	d := linearDevice(t, "a,0.054,10.546\nb,0.268,5.172\n")
	for _, policy := range []string{"edf", "overlap"} {
		sc := busyScenario(policy)
		sc.Device, sc.Queries, sc.Arrivals = d, 20_000, Arrivals{Process: Gamma, QPS: 1500, Shape: 0.05}
		sc.Services = []Service{{Name: "a", Target: 90 * ms, MaxBatch: device.LinearMaxSize, Sizes: []int{1, 2, 30, 59}}, {Name: "b", Target: 60 * ms, MaxBatch: 100}}
		rounds, _ := watch(t, sc)
		sizes := map[int]bool{}
		for _, r := range rounds {
			sizes[r.Spans[0].Size] = true
			if r.Predicted.Latency != r.Took || r.Predicted.Bound != r.Took {
				t.Fatalf("%s: round %d of %+v took %v, predicted %+v", policy, r.Number, r.Spans, r.Took, r.Predicted)
			}
		}
		if len(sizes) <= predictor.MaxCells {
			t.Errorf("%s: batches had %d sizes, want more than a table holds", policy, len(sizes))
		}
	}
}

// modelOf is the device of a profile.
func modelOf(t testing.TB, p *device.Profile) *device.Model {
	t.Helper()
	d, err := device.NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

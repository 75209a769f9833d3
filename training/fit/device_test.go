package fit

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// quickDevice are options for a device that takes a moment to make.
func quickDevice() Options {
	o := DefaultDeviceOptions()
	o.Hidden, o.Epochs, o.allMany = []int{8, 8}, 3, true
	return o
}

func makeDevice(t *testing.T, d *training.Dataset, solo []training.SoloTime, o Options) (*device.Profile, *DeviceReport) {
	t.Helper()
	p, r, err := Device(t.Context(), d, solo, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

func TestDeviceLearnsFormula(t *testing.T) {
	o := quickDevice()
	o.Hidden, o.Epochs = []int{24, 24}, 30
	d := synthetic(1200, 1)
	p, r := makeDevice(t, d, nil, o)
	if r.MAPETest > 4 {
		t.Errorf("off by %.2f %% where the noise is 1 %%", r.MAPETest)
	}
	if p.Rows != 1200 || r.TrainRows != 1080 || r.TestRows != 120 || p.Test.Alone.Rows+p.Test.Several.Rows != 120 {
		t.Errorf("report %+v", r)
	}
	if p.Network.Spans != 3 || p.Device != "formula" || len(p.Network.Models) != 4 || p.Seed != o.Seed {
		t.Errorf("profile %+v", p)
	}
	for _, b := range p.Spread.Bands {
		if middle := b.Parts[len(b.Parts)/2]; middle < 0.009 || middle > 0.011 {
			t.Errorf("groups of %d spans spread %v in the middle, want 0.01", b.Spans, middle)
		}
	}
	m, err := device.NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	var points []point
	for _, row := range synthetic(300, 2).Rows {
		points = append(points, point{measured: formula(row.Group), predicted: float64(m.Latency(row.Group)) / 1e3})
	}
	if off := mape(points); off > 4 {
		t.Errorf("off by %.2f %% from the formula", off)
	}
}

func TestDeviceIsDeterministic(t *testing.T) {
	d, solo := synthetic(400, 1), []training.SoloTime{{Model: "m0", Size: 4, Micros: 1000}}
	first, _ := makeDevice(t, d, solo, quickDevice())
	again, _ := makeDevice(t, d, solo, quickDevice())
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same seed gives another device:\n%s", diff)
	}
	o := quickDevice()
	o.Seed = 2
	if other, _ := makeDevice(t, d, solo, o); cmp.Equal(first.Network, other.Network) {
		t.Error("another seed gives the same network")
	}
}

func TestDeviceRefuses(t *testing.T) {
	d, o := synthetic(400, 1), quickDevice()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	folds, many := quickDevice(), synthetic(400, 1)
	folds.Split = SplitFolds
	many.Models = append(many.Models, training.Model{Name: "m4", Operators: 1}, training.Model{Name: "m5", Operators: 1}, training.Model{Name: "m6", Operators: 1})
	var spans []models.Span
	for i := range many.Models {
		spans = append(spans, models.Span{Service: models.ServiceID(i), End: 1, Size: 1})
	}
	for i := range many.Rows {
		many.Rows[i].Group.Spans = spans
	}
	for _, c := range []struct {
		name string
		ctx  context.Context
		d    *training.Dataset
		solo []training.SoloTime
		o    Options
		want error
	}{
		{"folds", t.Context(), d, nil, folds, errOptions},
		{"no options", t.Context(), d, nil, Options{}, errOptions},
		{"few rows", t.Context(), &training.Dataset{Models: d.Models, Rows: d.Rows[:20]}, nil, o, errRows},
		{"no rows", t.Context(), &training.Dataset{}, nil, o, errRows},
		{"unknown model", t.Context(), d, []training.SoloTime{{Model: "x", Size: 1, Micros: 1}}, o, errRows},
		{"many spans", t.Context(), many, nil, o, errRows},
		{"cancelled", cancelled, d, nil, o, context.Canceled},
	} {
		if p, _, err := Device(c.ctx, c.d, c.solo, c.o); !errors.Is(err, c.want) || p != nil {
			t.Errorf("%s: %v, %v, want %v", c.name, p, err, c.want)
		}
	}
}

// A spread keeps groups of each kind apart, and what it says of runs has the
// standard deviation and the mean of those that it was made of.
func TestSpreadOfRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var rows []training.Row
	for i := range 3000 {
		n := 1 + i%2
		r := training.Row{Median: 1000 + 30_000*random.Float64()}
		r.Group.Spans = make([]models.Span, n)
		spread := 0.02 * float64(n)
		if r.Median >= 10e3 {
			spread *= 3
		}
		r.Std = r.Median * spread
		r.Mean = r.Median * (1 + spread/4)
		rows = append(rows, r)
	}
	s := spreadOf(rows)
	for _, c := range []struct {
		spans  int
		micros float64
		want   float64
	}{{1, 4000, 0.02}, {1, 12e3, 0.06}, {1, 1e6, 0.06}, {2, 9999, 0.04}, {2, 25e3, 0.12}, {3, 25e3, 0.12}} {
		parts := s.Parts(c.spans, c.micros)
		if got := parts[len(parts)/2]; math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%d spans that take %v spread %v, want %v", c.spans, c.micros, got, c.want)
		}
	}
	var sum, square float64
	const runs = 100_000
	for range runs {
		z := random.NormFloat64()
		if z > 0 {
			z *= s.Slow
		} else {
			z *= s.Fast
		}
		sum += z / runs
		square += z * z / runs
	}
	if std := math.Sqrt(square - sum*sum); math.Abs(std-1) > 0.02 || math.Abs(sum-0.25) > 0.02 {
		t.Errorf("runs have mean %v and deviation %v, want 0.25 and 1", sum, std)
	}
}

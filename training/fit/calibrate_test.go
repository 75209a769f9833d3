package fit

import (
	"math"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// exact are groups of the formula without noise: whole models alone, and in pairs.
func exact() *training.Dataset {
	d := synthetic(600, 1)
	for i := range d.Rows {
		r := &d.Rows[i]
		r.Median = formula(r.Group)
		r.Mean, r.Std = r.Median, 0.01*r.Median
	}
	return d
}

func whole(d *training.Dataset, model, size int) models.Span {
	return models.Span{Service: models.ServiceID(model), End: d.Models[model].Operators, Size: size}
}

// Calibrated to a model that takes half the time, its spans take half the time alone and
// where they keep the device busy, and a group still takes as long as the longest of its
// spans or all their work, whichever is more.
func TestCalibrateScalesWork(t *testing.T) {
	d := exact()
	pairs := [][2]models.Span{{whole(d, 2, 8), whole(d, 3, 8)}, {whole(d, 2, 1), whole(d, 3, 1)}} // of work; of waiting for launches
	for _, p := range pairs {
		for _, g := range [][]models.Span{p[:1], p[1:], p[:]} {
			took := formula(models.Group{Spans: g})
			d.Rows = append(d.Rows, training.Row{Group: models.Group{Spans: slices.Clone(g)}, Median: took, Mean: took, Std: took / 100})
		}
	}
	var given []training.SoloTime
	for _, size := range []int{1, 2, 4, 8} {
		given = append(given, training.SoloTime{Model: "m2", Size: size, Micros: formula(models.Group{Spans: []models.Span{whole(d, 2, size)}}) / 2})
	}
	c, times, err := Calibrate(t.Context(), d, given)
	if err != nil {
		t.Fatal(err)
	}
	near := func(got, want float64) bool { return math.Abs(got/want-1) < 0.05 }
	for i := range pairs {
		was, is := d.Rows[len(d.Rows)-6+3*i:], c.Rows[len(d.Rows)-6+3*i:]
		if !near(is[0].Median, was[0].Median/2) || !near(is[0].Mean, was[0].Mean/2) || !near(is[0].Std, was[0].Std/2) {
			t.Errorf("half of %+v is %+v", was[0], is[0])
		}
		if is[1].Median != was[1].Median {
			t.Errorf("a model without given times takes %v, not %v", is[1].Median, was[1].Median)
		}
		work := func(k int) float64 {
			n := 0.0
			for o := range d.Models[k].Operators {
				n += (100 + 50*math.Sin(float64(o)/3+float64(k))) * float64(was[0].Group.Spans[0].Size) / 8
			}
			return n
		}
		if want := max(is[0].Median, is[1].Median, work(2)/2+work(3)); !near(is[2].Median, want) {
			t.Errorf("both took %v, and take %v, not %v", was[2].Median, is[2].Median, want)
		}
	}
	if len(times) != 4 || times[2].Micros != given[2].Micros {
		t.Errorf("times %+v", times)
	}
}

// A batch of which no time is given goes by the nearest of its model, and where the
// whole model was never measured alone its costs stand in.
func TestCalibrateTakesNearest(t *testing.T) {
	d := exact()
	c, times, err := Calibrate(t.Context(), d, []training.SoloTime{{Model: "m3", Size: 64, Micros: 1e6}})
	if err != nil || times[0].Groups != 0 {
		t.Fatalf("%+v, %v", times, err)
	}
	factor := 0.0
	for i := range d.Rows {
		if s := d.Rows[i].Group.Spans; len(s) == 1 && s[0].Service == 3 {
			if f := c.Rows[i].Median / d.Rows[i].Median; factor == 0 {
				factor = f
			} else if math.Abs(f/factor-1) > 1e-9 {
				t.Fatalf("%+v takes %v times as long, others %v times", s[0], f, factor)
			}
		}
	}
	if largest := formula(models.Group{Spans: []models.Span{whole(d, 3, 8)}}); math.Abs(factor*largest/1e6-1) > 0.2 {
		t.Errorf("a factor of %v, where it was %v for %v", factor, 1e6, largest)
	}
}

// A device made of calibrated groups takes what was given.
func TestDeviceTakesSoloTimes(t *testing.T) {
	o := quickDevice()
	o.Hidden, o.Epochs = []int{24, 24}, 30
	d := synthetic(1200, 1)
	span := whole(d, 2, 4)
	for range 3 {
		row := training.Row{Group: models.Group{Spans: []models.Span{span}}, Median: formula(models.Group{Spans: []models.Span{span}})}
		row.Mean = row.Median
		d.Rows = append(d.Rows, row)
	}
	micros := d.Rows[1200].Median / 2
	p, r := makeDevice(t, d, []training.SoloTime{{Model: "m2", Size: 4, Micros: micros}}, o)
	if len(r.Solo) != 1 || p.Solo[0].Micros != micros || p.Solo[0].Groups != 2*micros {
		t.Errorf("solo times %+v", p.Solo)
	}
	m, err := device.NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	if took := m.Unheld(models.Group{Spans: []models.Span{span}}); math.Abs(took/micros-1) > 0.1 {
		t.Errorf("the whole model takes %v, not %v", took, micros)
	}
}

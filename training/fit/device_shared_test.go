package fit

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// TestSharedDevice makes a device of a part of the groups, few epochs long.
func TestSharedDevice(t *testing.T) {
	d, folder := sharedPairs(t)
	solo, err := training.ReadSoloFile(filepath.Join(folder, "solo_ms.csv"))
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultDeviceOptions()
	o.Epochs = 20
	p, r := makeDevice(t, d, solo, o)
	if r.Test.Alone.MAPE > 6 || r.Test.Several.MAPE > 4.5 {
		t.Errorf("off by %.2f %% alone, %.2f %% of several", r.Test.Alone.MAPE, r.Test.Several.MAPE)
	}
	if lost := p.Checks.Latency - p.Checks.Free; lost > 1 {
		t.Errorf("the promises cost %.2f points", lost)
	}
	for _, q := range p.Test.Spread {
		// Quantiles of the tail hang on few groups.
		if q.Rows > 500 && q.Part < 0.95 && math.Abs(q.Predicted/q.Measured-1) > 0.2 {
			t.Errorf("%+v", q)
		}
	}
	m, err := device.NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range solo {
		i := m.Index(s.Model)
		whole := models.Span{Service: models.ServiceID(i), End: m.Models()[i].Operators, Size: s.Size, SeqLen: s.SeqLen}
		if got := m.Latency(models.Group{Spans: []models.Span{whole}}); math.Abs(float64(got)/(1e3*s.Micros)-1) > 0.15 {
			t.Errorf("%+v takes %v", s, got)
		}
	}
	promises(t, m, d)
}

// promises takes operators off measured groups, one by one.
func promises(t *testing.T, m *device.Model, d *training.Dataset) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		row := &d.Rows[random.IntN(len(d.Rows))]
		spans := append([]models.Span(nil), row.Group.Spans...)
		took := m.Latency(models.Group{Spans: spans})
		for {
			s := &spans[random.IntN(len(spans))]
			if s.Len() == 1 {
				break
			}
			if random.IntN(2) == 0 {
				s.Start++
			} else {
				s.End--
			}
			less := m.Latency(models.Group{Spans: spans})
			if less > took || less <= 0 || less > time.Second {
				t.Fatalf("%v takes %v; with one operator more %v", spans, less, took)
			}
			took = less
		}
	}
}

package predictor

import (
	"cmp"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Report is how well a predictor does.
type Report struct {
	Network   bool              // whether there is a network
	Answers   [sources]uint64   // estimates given, by Source
	Unknown   uint64            // groups for which none could be given
	Fallbacks [Fallbacks]uint64 // groups for which the network did not answer, by reason
	Levels    [sources]float64  // measured/predicted of the device lately, by Source
	Shapes    []ShapeReport     // by source, then services
}

// ShapeReport is how well groups of some services are predicted.
type ShapeReport struct {
	Source    Source
	Services  []models.ServiceID // none for the groups that have no window of their own
	Runs      uint64             // measured since the start
	Window    int                // the latest of them, which all below is about
	RawMAPE   float64            // percent, of what the source predicts
	MAPE      float64            // percent, of the estimates that were given
	Quantiles Quantiles          // of measured/predicted by the source
	Latency   float64            // what a prediction is multiplied with now
	Bound     float64            // the same
}

func (c *calibration) report() (shapes []ShapeReport) {
	for _, s := range c.shapes {
		shapes = append(shapes, c.reportShape(s))
	}
	slices.SortFunc(shapes, func(a, b ShapeReport) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), slices.Compare(a.Services, b.Services))
	})
	return shapes
}

func (c *calibration) reportShape(s *shape) ShapeReport {
	speed, m := &c.speeds[s.key.source], c.margin(s.key)
	r := ShapeReport{
		Source: s.key.source, Services: s.key.members(), Runs: s.runs, Latency: m.latency, Bound: m.bound,
		Quantiles: s.own.quantiles().times(speed.level),
	}
	for i := range s.own.runs {
		r.add(&s.own.runs[i])
	}
	for i := range speed.recent[:speed.count] {
		if speed.recent[i].shape == s {
			r.add(&speed.recent[i])
		}
	}
	if r.Window > 0 {
		r.RawMAPE *= 100 / float64(r.Window)
		r.MAPE *= 100 / float64(r.Window)
	}
	return r
}

// add counts a run, unless its errors are unknown, as they are after Restore.
func (r *ShapeReport) add(v *run) {
	if v.error < 0 {
		return
	}
	r.Window++
	r.RawMAPE += v.rawError
	r.MAPE += v.error
}

func (q Quantiles) times(by float64) Quantiles {
	return Quantiles{q.P01 * by, q.P50 * by, q.P90 * by, q.P95 * by, q.P99 * by}
}

// Source is what a latency is calculated from.
type Source uint8

// The sources.
const (
	SourceSolo    Source = iota // one span: its solo time
	SourceNetwork               // the network
	SourceSum                   // the sum of solo times, because the network does not cover the group
	sources
)

var sourceNames = [sources]string{"solo", "network", "sum"}

// String returns the name of the source.
func (s Source) String() string {
	if s < sources {
		return sourceNames[s]
	}
	return "unknown"
}

// Fallback is the reason why the network does not answer for a group.
type Fallback uint8

// The reasons.
const (
	FallbackNone      Fallback = iota // it does
	FallbackPredictor                 // there is none
	FallbackModel                     // a model is not among those that it was trained on
	FallbackSize                      // a batch or a sequence is larger than those that it was trained on
	FallbackGroup                     // the group has more spans than those that it was trained on, or one model twice
	Fallbacks                         // how many there are
)

var fallbackNames = [Fallbacks]string{"", "no predictor", "model unknown", "size beyond training", "group beyond training"}

// String returns the reason in words, "" if there is none.
func (f Fallback) String() string {
	if f < Fallbacks {
		return fallbackNames[f]
	}
	return "unknown"
}

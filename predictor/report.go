package predictor

import (
	"cmp"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Report describes how well a predictor does.
type Report struct {
	// Network is set if there is a network.
	Network bool

	// Answers counts the estimates given, by source: solo, network or sum.
	Answers map[string]uint64

	// Unknown counts the groups for which no estimate could be given.
	Unknown uint64

	// Fallbacks counts the groups of several spans for which the network did not
	// answer, by each reason that there can be.
	Fallbacks map[string]uint64

	// Shapes are sorted by source, then services.
	Shapes []shapeReport
}

// shapeReport describes how well groups of some services are predicted. Window is
// how many of the latest runs the errors, in percent, and the quantiles of measured
// by predicted are about.
type shapeReport struct {
	Source    source
	Services  []models.ServiceID
	Runs      uint64
	Window    int
	RawMAPE   float64 // before any correction
	MAPE      float64 // after it
	Quantiles Quantiles
	Latency   float64 // factor of a prediction
	Bound     float64 // factor of a prediction
}

func (c *calibration) report() (shapes []shapeReport) {
	for _, s := range c.shapes {
		shapes = append(shapes, c.reportShape(s))
	}
	slices.SortFunc(shapes, func(a, b shapeReport) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), slices.Compare(a.Services, b.Services))
	})
	return shapes
}

func (c *calibration) reportShape(s *shape) shapeReport {
	speed, m := &c.speeds[s.key.source], c.margin(s.key)
	r := shapeReport{
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
func (r *shapeReport) add(v *run) {
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

// source is what a latency is calculated from: the solo time of the only span, the
// network, or the sum of solo times where the network does not cover the group.
type source uint8

const (
	sourceSolo source = iota
	sourceNetwork
	sourceSum
	sources
)

var sourceNames = [sources]string{"solo", "network", "sum"}

func (s source) String() string { return sourceNames[s] }

// fallback is the reason why the network does not answer for a group.
type fallback uint8

const (
	fallbackNone      fallback = iota // the network answers
	fallbackPredictor                 // there is no network
	fallbackModel                     // it was trained without one of the models
	fallbackSize                      // it was trained on smaller batches or shorter sequences
	fallbackGroup                     // it was trained on fewer spans, or a model occurs twice
	fallbacks
)

var fallbackNames = [fallbacks]string{"", "no predictor", "model unknown", "size beyond training", "group beyond training"}

func (f fallback) String() string { return fallbackNames[f] }

package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
)

// trust holds the errors of a device in percent: for groups of one span and of several spans that
// it was not fitted to, and for the given isolated latencies.
type trust struct {
	// name is the kind and the clock of the device.
	name string

	// alone holds the errors of groups of one span, several those of larger groups, and solo those
	// of isolated latencies.
	alone, several, solo []float64
}

// planCredibility plans the figure of the errors of each emulated device, and of the violations on
// it compared with the authors'.
func planCredibility(r *reproduction) func() []*figure {
	// The violations are those of figure 15, which share its runs.
	pairs := servePairs(r)
	var devices []*trust
	for _, key := range []stockKey{{pairsStock, 0}, {quadStock, 0}, {pairsStock, 1}, {quadStock, 1}} {
		s := r.stocks[key]
		if s == nil {
			continue
		}
		t := &trust{name: s.name}
		devices = append(devices, t)
		r.plan.add("credibility", 1, func(_ context.Context, l *lane) error {
			d, err := l.device(s)
			if err == nil {
				t.compare(d, s)
			}
			return err
		})
	}
	return func() []*figure {
		return []*figure{credibility(pairViolations.draw(pairs, r.data.authors, caseMean), devices)}
	}
}

// offBy returns the error of a latency in percent.
func offBy(took time.Duration, micros float64) float64 {
	return 100 * math.Abs(float64(took)/1e3-micros) / micros
}

// compare fills in the errors of a device made from one half of the groups, measured against the
// other half.
func (t *trust) compare(d sim.Device, s *stock) {
	// The device may number models differently from the groups.
	position := map[string]int{}
	for i, m := range d.Models() {
		position[m.Name] = i
	}
	for i := range s.half.Rows {
		row := &s.half.Rows[i]
		g := models.Group{Spans: slices.Clone(row.Group.Spans)}
		for k := range g.Spans {
			span := &g.Spans[k]
			span.Service = models.ServiceID(position[s.half.Models[span.Service].Name])
		}
		into := &t.several
		if len(g.Spans) == 1 {
			into = &t.alone
		}
		*into = append(*into, offBy(d.Latency(g), row.Median))
	}
	for _, given := range s.solo {
		if took := solo(d, given.Model, given.Size, given.SeqLen); took > 0 {
			t.solo = append(t.solo, offBy(took, given.Micros))
		}
	}
}

// credibility returns the figure, given the violations of the pairs.
func credibility(violations *figure, devices []*trust) *figure {
	f := &figure{Figure: "credibility", Title: "errors of the emulated device", Unit: "percent, or points", decimals: 2, table: true, Notes: []string{
		"The device is made of one half of the measured groups and compared with the other, which it has not seen. Violations are compared with the authors' own runs, pair by pair, in percentage points. The authors' clients, network and Python are not emulated, and neither is what they count as late.",
	}}
	for _, t := range devices {
		f.Notes = append(f.Notes, fmt.Sprintf("Device of the %s: %d groups of one span and %d of several, %d solo times.", t.name, len(t.alone), len(t.several), len(t.solo)))
		for _, v := range []struct {
			what string
			off  []float64
		}{{"one span", t.alone}, {"several spans", t.several}, {"given solo times", t.solo}} {
			if len(v.off) > 0 {
				f.Rows = append(f.Rows, row{Case: "error of the device, " + v.what, Policy: t.name, Ours: meanOf(v.off)})
			}
		}
	}
	for _, load := range loads {
		for _, policy := range slices.Concat(sequentials, []string{"abacus-authors"}) {
			f.believe(violations, load, policy)
		}
	}
	return f
}

// believe compares a policy's violations at a load with the authors'.
func (f *figure) believe(violations *figure, load float64, policy string) {
	var ours, theirs, apart, absolute []float64
	for _, pair := range violations.cases(load) {
		r := violations.find(pair, load, policy)
		if r == nil || r.Authors == nil || isMean(pair) {
			continue
		}
		// The difference is in percentage points.
		off := 100**r.Ours - 100**r.Authors
		ours, theirs = append(ours, 100**r.Ours), append(theirs, 100**r.Authors)
		apart, absolute = append(apart, off), append(absolute, math.Abs(off))
	}
	if len(ours) == 0 {
		return
	}
	for _, k := range []row{
		{Case: "violations, mean over the pairs", Ours: meanOf(ours), Authors: meanOf(theirs)},
		{Case: "violations, ours less the authors'", Ours: meanOf(apart)},
		{Case: "violations, distance in a pair", Ours: meanOf(absolute)},
		{Case: "violations, standard deviation of the distances", Ours: rounded(stats.Deviation(apart))},
	} {
		k.QPS, k.Policy = load, policy
		f.Rows = append(f.Rows, k)
	}
	f.Notes = append(f.Notes, fmt.Sprintf("%s at %g queries/s: %.1f %% of the queries violate, the authors have %.1f %%; over the pairs the two correlate by %.2f.",
		policy, load, stats.Mean(ours), stats.Mean(theirs), correlation(ours, theirs)))
}

// correlation returns the correlation coefficient of two lists, or 0 if one of them does not vary.
func correlation(a, b []float64) float64 {
	x, y := stats.Mean(a), stats.Mean(b)
	var xy, xx, yy float64
	for i := range a {
		xy += (a[i] - x) * (b[i] - y)
		xx += (a[i] - x) * (a[i] - x)
		yy += (b[i] - y) * (b[i] - y)
	}
	if xx == 0 || yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}

package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/stats"
)

// trust is how far a device is off from groups that it was not made of.
type trust struct {
	name                  string
	alone, several        float64 // mean absolute percentage errors
	aloneRows, severalRow int
	solo                  float64 // likewise, of the solo times that were given
	soloTimes             int
}

// planTrust plans the comparison of a device with the half that predictors are
// fitted to.
func planTrust(p *plan, s *stock) *trust {
	t := &trust{name: s.name}
	p.add("credibility", 1, func(_ context.Context, l *lane) error {
		d, err := l.device(s)
		if err != nil {
			return err
		}
		t.compare(d, s)
		return nil
	})
	return t
}

func (t *trust) compare(d sim.Device, s *stock) {
	var alone, several, whole []float64
	position := map[string]int{}
	for i, m := range d.Models() {
		position[m.Name] = i
	}
	for i := range s.half.Rows {
		row := &s.half.Rows[i]
		g := models.Group{}
		for _, span := range row.Group.Spans {
			span.Service = models.ServiceID(position[s.half.Models[span.Service].Name])
			g.Spans = append(g.Spans, span)
		}
		off := 100 * math.Abs(float64(d.Latency(g))/1e3-row.Median) / row.Median
		if len(g.Spans) == 1 {
			alone = append(alone, off)
		} else {
			several = append(several, off)
		}
	}
	for _, given := range s.solo {
		if took := solo(d, given.Model, given.Size, given.SeqLen); took > 0 {
			whole = append(whole, 100*math.Abs(float64(took)/1e3-given.Micros)/given.Micros)
		}
	}
	t.alone, t.aloneRows = stats.Mean(alone), len(alone)
	t.several, t.severalRow = stats.Mean(several), len(several)
	t.solo, t.soloTimes = stats.Mean(whole), len(whole)
}

// credibility shows how far the emulated device is to be believed.
func credibility(served *runs, devices []*trust) *figure {
	f := &figure{Figure: "credibility", Title: "how far the emulated device is off", Unit: "percent, or points", decimals: 2, table: true, Notes: []string{
		"The device is made of one half of the measured groups and compared with the other, which it has not seen. Violations are compared with the authors' own runs, pair by pair, in percentage points. The authors' clients, network and Python are not emulated, and neither is what they count as late.",
	}}
	for _, t := range devices {
		f.Notes = append(f.Notes, fmt.Sprintf("Device of the %s: %d groups of one span and %d of several, %d solo times.", t.name, t.aloneRows, t.severalRow, t.soloTimes))
		for _, v := range []struct {
			what  string
			value float64
			of    int
		}{{"one span", t.alone, t.aloneRows}, {"several spans", t.several, t.severalRow}, {"given solo times", t.solo, t.soloTimes}} {
			if v.of > 0 {
				f.Rows = append(f.Rows, row{Case: "error of the device, " + v.what, Policy: t.name, Ours: rounded(v.value)})
			}
		}
	}
	if served == nil {
		return f
	}
	for _, load := range loads {
		for _, policy := range slices.Concat(sequentials, []string{"abacus"}) {
			served.believe(f, load, policy)
		}
	}
	return f
}

// believe compares the violations of a policy with the authors'.
func (r *runs) believe(f *figure, load int, policy string) {
	var ours, theirs, apart, absolute []float64
	for i := range r.deploys[load] {
		pair := r.deploys[load][i].label()
		s, m := r.samples[runKey(pair, load, policy)], r.authors[load][pair]
		if s == nil || m == nil {
			continue
		}
		mid, _ := s.of(violations)
		ours, theirs = append(ours, 100**mid), append(theirs, 100*m[policy].violations)
		apart = append(apart, ours[len(ours)-1]-theirs[len(theirs)-1])
		absolute = append(absolute, math.Abs(apart[len(apart)-1]))
	}
	if len(ours) == 0 {
		return
	}
	row := func(what string, v, authors *float64) {
		f.Rows = append(f.Rows, row{Case: what, QPS: float64(load), Policy: policy, Ours: v, Authors: authors})
	}
	row("violations, mean over the pairs", meanOf(ours), meanOf(theirs))
	row("violations, ours less the authors'", meanOf(apart), nil)
	row("violations, distance in a pair", meanOf(absolute), nil)
	row("violations, standard deviation of the distances", rounded(stats.Deviation(apart)), nil)
	f.Notes = append(f.Notes, fmt.Sprintf("%s at %d queries/s: %.1f %% of the queries violate, the authors have %.1f %%; over the pairs the two correlate by %.2f.",
		policy, load, stats.Mean(ours), stats.Mean(theirs), correlation(ours, theirs)))
}

// correlation is 0 where one list does not vary.
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

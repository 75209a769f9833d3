package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/training"
)

const (
	fewestGroups = 10   // groups that make the gain of a set measured
	leastNoise   = 0.02 // relative, of a gain
)

// The verdicts on models that share a device.
const (
	verdictPays       = "pays"       // overlapped they are faster than one after the other
	verdictSequential = "sequential" // they take as long as one after the other
	verdictSlower     = "slower"     // they take longer
	verdictUnknown    = "unknown"    // too few groups to tell
)

// setGain is what models gain that were measured together. A gain is the sum
// of the solo times of a group's spans over the latency of the group: beyond 1
// overlapping pays.
type setGain struct {
	Models  []string `json:"models"`
	Groups  int      `json:"groups"`
	Gain    float64  `json:"gain"` // total solo time over total latency
	P10     float64  `json:"p10"`  // over the groups
	Median  float64  `json:"median"`
	P90     float64  `json:"p90"`
	Pays    float64  `json:"pays"`   // share of the groups whose gain is beyond 1 by more than the noise
	Hidden  float64  `json:"hidden"` // share of the shorter spans' time that passes behind the longest one
	Noise   float64  `json:"noise"`  // how far the gain may be off, relative
	Verdict string   `json:"verdict"`

	members []int // positions in the dataset, in the order of the spans
	rows    []measuredGroup
}

// Bad reports whether the models should not share a device.
func (g *setGain) Bad() bool { return g.Verdict == verdictSequential || g.Verdict == verdictSlower }

// Reason explains the verdict in words.
func (g *setGain) Reason() string {
	switch g.Verdict {
	case verdictSlower:
		return fmt.Sprintf("overlapped they take %.0f %% longer than one after the other", 100*(1/g.Gain-1))
	case verdictSequential:
		return fmt.Sprintf("as long as one after the other: a gain of %.2f, give or take %.0f %%", g.Gain, 100*g.Noise)
	case verdictUnknown:
		return fmt.Sprintf("only %d groups measured", g.Groups)
	}
	return "overlapping pays"
}

// gains returns what each set of models gains, those of fewer models first and
// then those that gain most.
func (t *soloTimes) gains(d *training.Dataset) []setGain {
	list := make([]setGain, 0, len(t.sets))
	for _, g := range t.sets {
		g.measure(d)
		list = append(list, *g)
	}
	slices.SortStableFunc(list, func(a, b setGain) int {
		return cmp.Or(cmp.Compare(len(a.Models), len(b.Models)), cmp.Compare(b.Gain, a.Gain))
	})
	return list
}

func (g *setGain) measure(d *training.Dataset) {
	g.Groups, g.Models = len(g.rows), nil
	for _, m := range g.members {
		g.Models = append(g.Models, d.Models[m].Name)
	}
	values, off := make([]float64, len(g.rows)), make([]float64, len(g.rows))
	var solo, rest, saved, took float64
	for i := range g.rows {
		r := &g.rows[i]
		sum, most := r.alone()
		solo, took = solo+sum, took+r.micros
		rest, saved = rest+sum-most, saved+sum-r.micros
		values[i], off[i] = sum/r.micros, math.Abs(r.inferred-r.micros)/r.micros
	}
	g.Gain = solo / took
	if rest > 0 {
		g.Hidden = saved / rest
	}
	g.Noise = noise(values, g.Gain, stats.Median(off))
	slices.Sort(values)
	g.P10, g.Median, g.P90 = stats.Quantile(values, 0.1), stats.Median(values), stats.Quantile(values, 0.9)
	for _, v := range values {
		if v > 1+g.Noise {
			g.Pays += 1 / float64(len(values))
		}
	}
	g.Verdict = g.judge()
}

// noise returns how far a gain may be off: by the error of the solo times,
// which all groups share, and by the spread of the groups.
func noise(values []float64, gain, soloError float64) float64 {
	spread := 0.0
	for _, v := range values {
		spread += (v - gain) * (v - gain)
	}
	n := float64(len(values))
	return max(leastNoise, math.Hypot(soloError, 2*math.Sqrt(spread)/n/gain))
}

func (g *setGain) judge() string {
	switch {
	case g.Groups < fewestGroups:
		return verdictUnknown
	case g.Gain < 1-g.Noise:
		return verdictSlower
	case g.Gain <= 1+g.Noise:
		return verdictSequential
	}
	return verdictPays
}

func (g *setGain) name() string { return strings.Join(g.Models, " + ") }

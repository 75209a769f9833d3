package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/training"
)

// Limits of what counts as measured.
const (
	// fewestGroups is the number of groups from which on the gain of a set counts as measured.
	fewestGroups = 10
	// leastNoise is the least relative error assumed for a gain.
	leastNoise = 0.02
)

// The verdicts on models that share a device.
const (
	// verdictPays means that the models are faster overlapped than one after another.
	verdictPays = "pays"
	// verdictSequential means that there is no difference.
	verdictSequential = "sequential"
	// verdictSlower means that the models are slower overlapped.
	verdictSlower = "slower"
	// verdictUnknown means that there are too few groups to decide.
	verdictUnknown = "unknown"
)

// setGain is the gain of models that were measured together. The gain of a group is the sum of
// the isolated latencies of its spans over its latency. Overlapping pays if it exceeds 1.
type setGain struct {
	Models []string `json:"models"`
	Groups int      `json:"groups"`
	// Gain is the total isolated latency over the total latency. P10, Median and P90 are
	// quantiles over the groups.
	Gain   float64 `json:"gain"`
	P10    float64 `json:"p10"`
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	// Pays is the fraction of the groups whose gain exceeds 1 by more than the noise.
	Pays float64 `json:"pays"`
	// Hidden is the fraction of the shorter spans' time that is hidden behind the longest span.
	Hidden float64 `json:"hidden"`
	// Noise is the relative uncertainty of the gain.
	Noise   float64 `json:"noise"`
	Verdict string  `json:"verdict"`

	// members holds indices in the dataset, in the order of the spans.
	members []int
	rows    []measuredGroup
}

// Bad reports whether the models should not share a device.
func (g *setGain) Bad() bool { return g.Verdict == verdictSequential || g.Verdict == verdictSlower }

// Reason explains the verdict in words.
func (g *setGain) Reason() string {
	switch g.Verdict {
	case verdictSlower:
		return fmt.Sprintf("overlapped, they take %.0f %% longer than back to back", 100*(1/g.Gain-1))
	case verdictSequential:
		return fmt.Sprintf("as long as back to back: a gain of %.2f ± %.0f %%", g.Gain, 100*g.Noise)
	case verdictUnknown:
		return fmt.Sprintf("only %d groups measured", g.Groups)
	}
	return "overlapping pays"
}

// gains returns the gains of all sets of models, sorted by the number of models and by
// descending gain.
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

// measure computes the gain of a set and its statistics from its rows.
func (g *setGain) measure(d *training.Dataset) {
	g.Groups, g.Models = len(g.rows), nil
	for _, m := range g.members {
		g.Models = append(g.Models, d.Models[m].Name)
	}
	// The totals weight groups by their latency, so that short groups with noisy times count
	// little.
	values, off := make([]float64, len(g.rows)), make([]float64, len(g.rows))
	var solo, rest, saved, took float64
	for i := range g.rows {
		r := &g.rows[i]
		sum, most := r.alone()
		solo, took = solo+sum, took+r.micros
		// At most the time of all spans but the longest can be hidden.
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

// noise returns the relative uncertainty of a gain. It combines the error of the isolated
// latencies, which all groups share, with twice the standard error of the groups.
func noise(values []float64, gain, soloError float64) float64 {
	spread := 0.0
	for _, v := range values {
		spread += (v - gain) * (v - gain)
	}
	n := float64(len(values))
	return max(leastNoise, math.Hypot(soloError, 2*math.Sqrt(spread)/n/gain))
}

// judge returns the verdict. A difference within the noise does not count.
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

// name joins the names of the models.
func (g *setGain) name() string { return strings.Join(g.Models, " + ") }

package device

import (
	"math"
	"math/rand/v2"
)

const (
	// maxDeviations limits how far a run deviates from the median, in standard deviations.
	maxDeviations = 3

	// MaxSpread limits the standard deviation of a group's runs, relative to the median.
	MaxSpread = 2

	// maxBands limits the bands of a spread.
	maxBands = 256
)

// Spread describes how much the runs of a group differ. Some groups spread much more than
// similar ones, for no reason that was measured. Each run therefore draws its spread from those
// of similar groups.
type Spread struct {
	// Bands are sorted by spans, then by latency. Without any, all runs are equal.
	Bands []SpreadBand `json:"bands,omitempty"`

	// Slow and Fast scale deviations from the median. A run that is one standard deviation late
	// is Slow of them late, and one that is early is Fast of them early.
	Slow float64 `json:"slow"`
	Fast float64 `json:"fast"`
}

// SpreadBand holds the relative spreads of groups with Spans spans and a latency from Micros up
// to that of the next band.
type SpreadBand struct {
	Spans  int     `json:"spans"`
	Micros float64 `json:"micros"`
	// Parts holds standard deviation over median at evenly spaced quantiles, from the least to
	// the greatest.
	Parts []float64 `json:"parts"`
}

// Parts returns the relative spreads of groups with that many spans and that latency, or nil if
// runs do not differ. The caller must not modify the result.
func (s *Spread) Parts(spans int, micros float64) []float64 {
	if len(s.Bands) == 0 {
		return nil
	}
	return s.band(spans, micros).Parts
}

// band returns the band of a group: among those with the most spans up to the group's, the last
// one that begins at or below its latency. There must be at least one band.
func (s *Spread) band(spans int, micros float64) *SpreadBand {
	best := &s.Bands[0]
	for i := range s.Bands {
		b := &s.Bands[i]
		if b.Spans > max(spans, s.Bands[0].Spans) {
			break
		}
		if b.Spans > best.Spans || b.Micros <= micros {
			best = b
		}
	}
	return best
}

// at returns the given quantile of the spreads, interpolated.
func (b *SpreadBand) at(part float64) float64 {
	x := part * float64(len(b.Parts)-1)
	i := min(int(x), len(b.Parts)-2)
	return b.Parts[i] + (x-float64(i))*(b.Parts[i+1]-b.Parts[i])
}

// factor draws a run and returns its ratio to the median.
func (s *Spread) factor(spans int, micros float64, random *rand.Rand) float64 {
	if len(s.Bands) == 0 {
		return 1
	}
	spread := s.band(spans, micros).at(random.Float64())
	z := min(max(random.NormFloat64(), -maxDeviations), maxDeviations)
	if z > 0 {
		return math.Exp(z * spread * s.Slow)
	}
	return math.Exp(z * spread * s.Fast)
}

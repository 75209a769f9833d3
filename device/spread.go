package device

import (
	"math"
	"math/rand/v2"
)

const (
	// maxDeviations limits how far a run is from the middle, in standard
	// deviations of the runs.
	maxDeviations = 3

	// MaxSpread limits the standard deviation of the runs of a group, as a
	// part of the middle.
	MaxSpread = 2

	// maxBands limits the bands of a spread.
	maxBands = 256
)

// Spread is how much the runs of a group differ. Some groups spread much more
// than others of their kind, for which no cause was measured; so each run
// draws how much it spreads from what the groups of its kind did.
type Spread struct {
	Bands []SpreadBand `json:"bands,omitempty"` // by spans, then latency; may be none: no run differs

	// A run that is one standard deviation late is Slow of them late, one
	// that is early Fast of them early.
	Slow float64 `json:"slow"`
	Fast float64 `json:"fast"`
}

// SpreadBand is the relative spreads of groups of so many spans whose latency
// is at least Micros and below that of the next band.
type SpreadBand struct {
	Spans  int       `json:"spans"`
	Micros float64   `json:"micros"`
	Parts  []float64 `json:"parts"` // standard deviation over median, at evenly spaced quantiles from least to most
}

// Parts returns the relative spreads of groups of so many spans that take so
// long, none if no run differs. The caller must not change them.
func (s *Spread) Parts(spans int, micros float64) []float64 {
	if len(s.Bands) == 0 {
		return nil
	}
	return s.band(spans, micros).Parts
}

// band returns that of a group: of the most spans that are no more than it
// has, and of the latency below it. There is one at least.
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

// at returns the spread that so many of the groups do not exceed.
func (b *SpreadBand) at(part float64) float64 {
	x := part * float64(len(b.Parts)-1)
	i := min(int(x), len(b.Parts)-2)
	return b.Parts[i] + (x-float64(i))*(b.Parts[i+1]-b.Parts[i])
}

// factor draws a run: what the middle is multiplied with.
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

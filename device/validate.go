package device

import (
	"errors"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/predictor"
)

// Limits of what a profile may hold.
const (
	MaxSoloTimes = 1 << 10
	maxParts     = 1024 // of a band
	maxText      = 1024 // bytes of a name
	maxFaults    = 20   // that one error lists
)

// Validate returns an error that wraps [ErrFormat] or [ErrDamaged] and lists
// every fault, unless the profile can be put to use.
func (p *Profile) Validate() error {
	if p.Format != Format {
		return fmt.Errorf("%w: its format is %.40q, want %q", ErrFormat, p.Format, Format)
	}
	var faults []error
	if len(p.Device) > maxText {
		faults = append(faults, fmt.Errorf("a device of %d bytes; the limit is %d", len(p.Device), maxText))
	}
	if p.Rows < 1 {
		faults = append(faults, fmt.Errorf("made of %d rows", p.Rows))
	}
	faults = append(faults, p.Network.faults()...)
	faults = append(faults, p.Spread.faults()...)
	faults = append(faults, p.soloFaults()...)
	faults = append(faults, p.Test.faults()...)
	faults = append(faults, p.Checks.faults()...)
	if len(faults) == 0 {
		return nil
	}
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], fmt.Errorf("and %d more", more))
	}
	return fmt.Errorf("%w: %w", ErrDamaged, errors.Join(faults...))
}

func (s *Spread) faults() (faults []error) {
	if len(s.Bands) > MaxBands {
		return []error{fmt.Errorf("%d bands of spread; the limit is %d", len(s.Bands), MaxBands)}
	}
	// Comparisons with NaN are false.
	if len(s.Bands) > 0 && !(s.Slow >= 0 && s.Slow <= MaxDeviations && s.Fast >= 0 && s.Fast <= MaxDeviations) {
		faults = append(faults, fmt.Errorf("spreads that count %v when late, %v when early", s.Slow, s.Fast))
	}
	for i := range s.Bands {
		b := &s.Bands[i]
		if err := b.fault(); err != nil {
			faults = append(faults, fmt.Errorf("band %d of spread: %w", i, err))
		}
		if i > 0 && (s.Bands[i-1].Spans > b.Spans || s.Bands[i-1].Spans == b.Spans && !(s.Bands[i-1].Micros < b.Micros)) {
			faults = append(faults, fmt.Errorf("band %d of spread is not in order", i))
		}
	}
	return faults
}

func (b *SpreadBand) fault() error {
	switch {
	case b.Spans < 1 || b.Spans > predictor.MaxSpans:
		return fmt.Errorf("%d spans", b.Spans)
	case !(b.Micros >= 0 && !math.IsInf(b.Micros, 0)):
		return fmt.Errorf("a latency of %v µs", b.Micros)
	case len(b.Parts) < 2 || len(b.Parts) > maxParts:
		return fmt.Errorf("%d quantiles, not of 2 to %d", len(b.Parts), maxParts)
	}
	for i, v := range b.Parts {
		if !(v >= 0 && v <= MaxSpread) || i > 0 && b.Parts[i-1] > v {
			return fmt.Errorf("a spread of %v, not ascending from 0 to %d", v, MaxSpread)
		}
	}
	return nil
}

func (p *Profile) soloFaults() (faults []error) {
	if len(p.Solo) > MaxSoloTimes {
		return []error{fmt.Errorf("%d solo times; the limit is %d", len(p.Solo), MaxSoloTimes)}
	}
	known := map[string]bool{}
	for i := range p.Network.Models {
		known[p.Network.Models[i].Name] = true
	}
	type key struct {
		model        string
		size, seqLen int
	}
	seen := map[key]bool{}
	for i := range p.Solo {
		s := &p.Solo[i]
		k := key{s.Model, s.Size, s.SeqLen}
		switch {
		case !known[s.Model] || seen[k]:
			faults = append(faults, fmt.Errorf("a solo time of %.40q, which is unknown or has that twice", s.Model))
		case s.Size < 1 || s.Size > predictor.MaxSize || s.SeqLen < 0 || s.SeqLen > predictor.MaxSeqLen,
			!(s.Micros > 0 && s.Micros <= maxMicros && s.Groups >= 0 && s.Groups <= maxMicros):
			faults = append(faults, fmt.Errorf("solo time %d: %s of size %d, sequence length %d takes %v µs, %v in groups", i, s.Model, s.Size, s.SeqLen, s.Micros, s.Groups))
		}
		seen[k] = true
	}
	return faults
}

func (t *Test) faults() (faults []error) {
	for _, e := range []*predictor.Errors{&t.Alone, &t.Several} {
		if !(e.MAPE >= 0 && e.MAPE <= math.MaxFloat64) || e.Rows < 0 {
			faults = append(faults, fmt.Errorf("%d groups kept aside are off %v %%", e.Rows, e.MAPE))
		}
	}
	return faults
}

func (c *Checks) faults() (faults []error) {
	for _, v := range []float64{c.Free, c.Kept, c.Latency, c.RaisedMost, c.Repeated} {
		if !(v >= 0 && v <= math.MaxFloat64) {
			faults = append(faults, fmt.Errorf("a check that gives %v", v))
		}
	}
	return faults
}

package device

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/textfile"
)

// Format is the first field of every device profile.
const Format = "overlapd-device/1"

// Profile is a device as it is stored.
type Profile struct {
	Format  string    `json:"format"`
	Device  string    `json:"device"` // in words, "" if unknown
	Created time.Time `json:"created"`
	Seed    uint64    `json:"seed"`
	Rows    int       `json:"rows"` // measured groups that it was made of, with those kept aside
	// Network yields the median of the runs of a group: the base of the encoder
	// (see [NewEncoder]) times the exponential of its output. It is not that of a
	// predictor: more operators never make its output smaller, by the signs of its
	// weights (see [Falls]). Without layers the device is [Profile.Linear], and Spans 1.
	Network struct {
		Spans  int                      `json:"spans"` // most of a group
		Models []predictor.FeatureModel `json:"models"`
		Layers []predictor.Layer        `json:"layers,omitempty"`
	} `json:"network"`
	// Targets are the QoS targets that the models are meant to have, in milliseconds.
	Targets map[string]float64 `json:"targets_ms,omitempty"`
	Spread  Spread             `json:"spread"`
	// ChangeMillis is what a batch takes more if its size is not on the ladder of
	// [models.OnLadder]: its engine prepares itself for the size when the batch begins.
	ChangeMillis float64 `json:"change_ms,omitempty"`
	// Solo is what the measured groups were calibrated to, none if they are as measured.
	Solo []SoloTime `json:"calibrated,omitempty"`
	Tested
}

// MaxSpans limits the spans of a group. Asking for a group takes as many rows
// of the network as the group has parts, which are 2^spans-1.
const MaxSpans = 6

// SoloTime is what a whole model takes alone for a batch size and sequence
// length, as it was given and as the measured groups have it.
type SoloTime struct {
	Model  string  `json:"model"`
	Size   int     `json:"size"`
	SeqLen int     `json:"seq_len"`
	Micros float64 `json:"micros"`           // given
	Groups float64 `json:"groups,omitempty"` // microseconds, median of the measured groups of nothing else, 0 for none
}

// Tested is how a device did on groups kept aside.
type Tested struct {
	// Test is how far the device is off, for groups of one span and of several.
	// Spread compares the groups kept aside with the profile.
	Test struct {
		Alone   predictor.Errors  `json:"alone"`
		Several predictor.Errors  `json:"several"`
		Spread  []SpreadQuantiles `json:"spread,omitempty"`
	} `json:"test"`
	// Checks are what the promises of a device cost, and how far measurements
	// disagree. Errors are mean absolute percentage errors on all groups kept
	// aside.
	Checks struct {
		// Free is the error of a network that promises nothing, Kept of one that
		// may not fall when operators are added, Latency of that and no group
		// faster than a part of it.
		Free    float64 `json:"mape_free"`
		Kept    float64 `json:"mape_kept"`
		Latency float64 `json:"mape_latency"`
		// Raised is how many groups a part of them holds up, RaisedMost by what
		// part of their latency at most.
		Raised     int     `json:"raised"`
		RaisedMost float64 `json:"raised_most"`
		// Repeated is the error of the median of all other rows of the same span
		// alone, for the RepeatedOf rows that have any.
		Repeated   float64 `json:"mape_repeated"`
		RepeatedOf int     `json:"repeated_of"`
	} `json:"checks"`
}

// SpreadQuantiles compares the relative spreads of the runs of groups.
type SpreadQuantiles struct {
	Spans int `json:"spans"`
	Rows  int `json:"rows"`
	// Part is the share of the groups that spread at most as much.
	Part      float64 `json:"part"`
	Measured  float64 `json:"measured"`
	Predicted float64 `json:"predicted"`
}

// These errors may be returned when a profile is read, or put to use.
var (
	// errFormat is returned when a file is no device profile, or one of
	// another version.
	errFormat = errors.New("not a device profile")

	// errDamaged is returned when a profile is truncated, too large, or holds
	// what none can: unknown fields, numbers that are none, parts that do not
	// fit each other.
	errDamaged = errors.New("damaged device profile")
)

// maxFileBytes limits a device profile.
const maxFileBytes = 32 << 20

var kind = textfile.Kind[Profile]{
	Format: Format, MaxBytes: maxFileBytes, Foreign: errFormat, Damaged: errDamaged,
	Faults: (*Profile).faults, Remedy: "overlapd device fit makes a device profile",
}

// ReadFile reads a device profile and validates it. Its errors name the path
// and what to do.
func ReadFile(path string) (*Profile, error) { return kind.ReadFile(path) }

// Read reads a device profile to the end of r and validates it. It returns an error
// that wraps [errFormat] or [errDamaged] if it is not one.
func Read(r io.Reader) (*Profile, error) { return kind.Read(r, "") }

// WriteFile validates a profile and writes it. Whoever reads the path finds
// the old file or the whole new one, also after a crash.
func (p *Profile) WriteFile(path string) error { return kind.WriteFile(path, p) }

// Validate returns an error that wraps [errDamaged] and lists the faults, unless
// the profile can be put to use.
func (p *Profile) Validate() error { return kind.Check(p) }

// Limits of what a profile may hold.
const (
	maxSoloTimes = 1 << 10
	maxParts     = 1024 // quantiles of a band
	maxText      = 1024 // bytes of a name

	leastTarget, mostTarget = 1e-6, 1e9 // milliseconds

	mostChange = 1e6 // milliseconds
)

func (p *Profile) faults() (faults []error) {
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(p.Format != Format, "its format is %.40q, want %q", p.Format, Format)
	fault(len(p.Device) > maxText, "a device of %d bytes; the limit is %d", len(p.Device), maxText)
	fault(!utf8.ValidString(p.Device), "a device of %.40q, which is not UTF-8", p.Device)
	fault(p.Rows < 1, "made of %d rows", p.Rows)
	faults = append(faults, p.networkFaults()...)
	s := &p.Spread
	fault(len(s.Bands) > maxBands, "%d bands of spread; the limit is %d", len(s.Bands), maxBands)
	// Comparisons with NaN are false.
	fault(len(s.Bands) > 0 && !(s.Slow >= 0 && s.Slow <= maxDeviations && s.Fast >= 0 && s.Fast <= maxDeviations),
		"spreads that count %v when late, %v when early", s.Slow, s.Fast)
	for i := range s.Bands[:min(len(s.Bands), maxBands)] {
		b := &s.Bands[i]
		err := b.fault()
		fault(err != nil, "band %d of spread: %w", i, err)
		fault(i > 0 && (s.Bands[i-1].Spans > b.Spans || s.Bands[i-1].Spans == b.Spans && !(s.Bands[i-1].Micros < b.Micros)),
			"band %d of spread is not in order", i)
	}
	fault(!(p.ChangeMillis >= 0 && p.ChangeMillis <= mostChange), "change_ms of %v: want 0 to %v", p.ChangeMillis, mostChange)
	fault(len(p.Solo) > maxSoloTimes, "%d solo times; the limit is %d", len(p.Solo), maxSoloTimes)
	for name, target := range p.Targets {
		if len(faults) > textfile.MaxFaults || len(p.Network.Models) > predictor.MaxFeatureModels {
			break
		}
		known := slices.ContainsFunc(p.Network.Models, func(m predictor.FeatureModel) bool { return m.Name == name })
		fault(!known || !(target >= leastTarget && target <= mostTarget), "a target of %v ms for %.40q: want one from %v to %v for a model that there is", target, name, leastTarget, mostTarget)
	}
	seen := map[SoloTime]bool{} // without times
	for i, s := range p.Solo[:min(len(p.Solo), maxSoloTimes)] {
		if len(p.Network.Models) > predictor.MaxFeatureModels {
			break
		}
		k := SoloTime{Model: s.Model, Size: s.Size, SeqLen: s.SeqLen}
		known := slices.ContainsFunc(p.Network.Models, func(m predictor.FeatureModel) bool { return m.Name == s.Model })
		fault(!known || seen[k], "a solo time of %.40q, which is unknown or has that twice", s.Model)
		fault(s.Size < 1 || s.Size > predictor.MaxSize || s.SeqLen < 0 || s.SeqLen > predictor.MaxSeqLen ||
			!(s.Micros > 0 && s.Micros <= maxMicros && s.Groups >= 0 && s.Groups <= maxMicros),
			"solo time %d: %s of size %d, sequence length %d takes %v µs, %v in groups", i, s.Model, s.Size, s.SeqLen, s.Micros, s.Groups)
		seen[k] = true
	}
	for _, e := range []*predictor.Errors{&p.Test.Alone, &p.Test.Several} {
		fault(!(e.MAPE >= 0 && e.MAPE <= math.MaxFloat64) || e.Rows < 0, "%d groups kept aside are off %v %%", e.Rows, e.MAPE)
	}
	c := &p.Checks
	for _, v := range []float64{c.Free, c.Kept, c.Latency, c.RaisedMost, c.Repeated} {
		fault(!(v >= 0 && v <= math.MaxFloat64), "a check that gives %v", v)
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

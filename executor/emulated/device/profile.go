package device

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/predictor"
)

// Format is the value of the first field of every device profile.
const Format = "overlapd-device/1"

// Profile is a device in its stored form.
type Profile struct {
	Format string `json:"format"`
	// Device names the device, or is "" if it is unknown.
	Device  string    `json:"device"`
	Created time.Time `json:"created"`
	Seed    uint64    `json:"seed"`
	// Rows is the number of measured groups that it was made from, including those held out.
	Rows int `json:"rows"`
	// Network computes the median latency of a group: the base of the encoder (see
	// [NewEncoder]) times the exponential of the output. Unlike a predictor's network, its
	// output never decreases when operators are added, which the signs of its weights ensure
	// (see [Falls]). Without layers the device is [Profile.Linear], and Spans is 1.
	Network struct {
		// Spans is the greatest number of spans of a group.
		Spans  int                      `json:"spans"`
		Models []predictor.FeatureModel `json:"models"`
		Layers []predictor.Layer        `json:"layers,omitempty"`
	} `json:"network"`
	// Targets are the QoS targets intended for the models, in milliseconds.
	Targets map[string]float64 `json:"targets_ms,omitempty"`
	Spread  Spread             `json:"spread"`
	// ChangeMillis is the extra time of a batch whose size is off the ladder of
	// [models.OnLadder], because its engine prepares for the size when the batch begins.
	ChangeMillis float64 `json:"change_ms,omitempty"`
	// Units is into how many equal parts the device is divided; a batch may have one of them, 2, 4 and
	// so on to itself, as in [Model.InShare]. 0 and 1 are a device that is not divided.
	Units int `json:"units,omitempty"`
	// Solo holds the isolated latencies to which the measured groups were calibrated, if any.
	Solo []SoloTime `json:"calibrated,omitempty"`
	Tested
}

// MaxSpans limits the spans of a group. The latency of a group needs a row of the network for
// each of its subsets, of which there are 2^spans-1.
const MaxSpans = 6

// SoloTime is the isolated latency of a whole model for one batch size and sequence length,
// both as it was given and as the measured groups have it.
type SoloTime struct {
	Model  string `json:"model"`
	Size   int    `json:"size"`
	SeqLen int    `json:"seq_len"`
	// Micros is the latency that was given.
	Micros float64 `json:"micros"`
	// Groups is the median of the measured groups with only this span, in microseconds, or 0
	// without any.
	Groups float64 `json:"groups,omitempty"`
}

// Tested holds the accuracy of a device on held-out groups.
type Tested struct {
	// Test holds the errors for groups of one span and of several. Spread compares the spread of
	// the held-out groups with that of the profile.
	Test struct {
		Alone   predictor.Errors  `json:"alone"`
		Several predictor.Errors  `json:"several"`
		Spread  []SpreadQuantiles `json:"spread,omitempty"`
	} `json:"test"`
	// Checks holds the accuracy lost to the guarantees of a device, and how far repeated
	// measurements disagree. Errors are mean absolute percentage errors on all held-out groups.
	Checks struct {
		// Free is the error of a network without guarantees, Kept that of one whose output never
		// decreases when operators are added, and Latency that of the device, which also makes
		// no group faster than a part of it.
		Free    float64 `json:"mape_free"`
		Kept    float64 `json:"mape_kept"`
		Latency float64 `json:"mape_latency"`
		// Raised counts the groups whose latency was raised to that of a part. RaisedMost is the
		// largest such raise, relative to their latency.
		Raised     int     `json:"raised"`
		RaisedMost float64 `json:"raised_most"`
		// Repeated is the error of predicting a row by the median of all other rows of the same
		// single span, for the RepeatedOf rows that have any.
		Repeated   float64 `json:"mape_repeated"`
		RepeatedOf int     `json:"repeated_of"`
	} `json:"checks"`
}

// SpreadQuantiles compares a quantile of the relative spread of groups, measured and predicted.
type SpreadQuantiles struct {
	Spans int `json:"spans"`
	Rows  int `json:"rows"`
	// Part is the fraction of the groups whose spread is at most the quantile.
	Part      float64 `json:"part"`
	Measured  float64 `json:"measured"`
	Predicted float64 `json:"predicted"`
}

// The errors of reading a profile and of using it.
var (
	// errFormat is returned when a file is not a device profile or has another version.
	errFormat = errors.New("not a device profile")

	// errDamaged is returned when a profile is truncated, too large or invalid: for example, it
	// has unknown fields, NaN, or parts that do not fit each other.
	errDamaged = errors.New("damaged device profile")
)

// maxFileBytes limits the size of a device profile.
const maxFileBytes = 32 << 20

var kind = textfile.Kind[Profile]{
	Format: Format, MaxBytes: maxFileBytes, Foreign: errFormat, Damaged: errDamaged,
	Faults: (*Profile).faults, Remedy: "make a device profile with overlapd-lab device fit",
}

// ReadFile reads and validates a device profile. Its errors name the path and the remedy.
func ReadFile(path string) (*Profile, error) { return kind.ReadFile(path) }

// Read reads r to its end and validates the profile. If it is not valid, the error wraps
// [errFormat] or [errDamaged].
func Read(r io.Reader) (*Profile, error) { return kind.Read(r, "") }

// WriteFile validates the profile and writes it atomically: readers of path see the old file or the
// complete new one, even after a crash.
func (p *Profile) WriteFile(path string) error { return kind.WriteFile(path, p) }

// Validate returns an error that wraps [errDamaged] and lists the faults, or nil if the profile can
// be used.
func (p *Profile) Validate() error { return kind.Check(p) }

// Limits on the content of a profile.
const (
	maxSoloTimes = 1 << 10
	// maxParts limits the quantiles of a band.
	maxParts = 1024
	// maxText limits a name, in bytes.
	maxText = 1024

	// leastTarget, mostTarget and mostChange are in milliseconds.
	leastTarget, mostTarget = 1e-6, 1e9

	mostChange = 1e6

	// maxUnits is no more than one for each percent, the unit of shares under MPS.
	maxUnits = 100
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
	// The negated comparisons also reject NaN.
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
	fault(p.Units < 0 || p.Units > maxUnits, "%d units: want 1 to %d", p.Units, maxUnits)
	fault(len(p.Solo) > maxSoloTimes, "%d isolated latencies; the limit is %d", len(p.Solo), maxSoloTimes)
	for name, target := range p.Targets {
		// Without this limit, a file could make this loop quadratic in its size.
		if len(faults) > textfile.MaxFaults || len(p.Network.Models) > predictor.MaxFeatureModels {
			break
		}
		known := slices.ContainsFunc(p.Network.Models, func(m predictor.FeatureModel) bool { return m.Name == name })
		fault(!known || !(target >= leastTarget && target <= mostTarget), "a target of %v ms for %.40q: want one from %v to %v for a model that there is", target, name, leastTarget, mostTarget)
	}
	// The keys of seen have no times.
	seen := map[SoloTime]bool{}
	for i, s := range p.Solo[:min(len(p.Solo), maxSoloTimes)] {
		if len(p.Network.Models) > predictor.MaxFeatureModels {
			break
		}
		k := SoloTime{Model: s.Model, Size: s.Size, SeqLen: s.SeqLen}
		known := slices.ContainsFunc(p.Network.Models, func(m predictor.FeatureModel) bool { return m.Name == s.Model })
		fault(!known || seen[k], "an isolated latency of %.40q, which is unknown or has that twice", s.Model)
		fault(s.Size < 1 || s.Size > predictor.MaxSize || s.SeqLen < 0 || s.SeqLen > predictor.MaxSeqLen ||
			!(s.Micros > 0 && s.Micros <= maxMicros && s.Groups >= 0 && s.Groups <= maxMicros),
			"isolated latency %d: %s of size %d, sequence length %d takes %v µs, %v in groups", i, s.Model, s.Size, s.SeqLen, s.Micros, s.Groups)
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

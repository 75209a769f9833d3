package training

import (
	"fmt"
	"math"
	"time"
)

// maxRepeats bounds how often a group is run.
const maxRepeats = 1 << 12

// SessionOptions says what a session measures, and how well.
type SessionOptions struct {
	Sampling
	Groups    int  // sampled groups
	Operators bool // measure every operator alone too

	MinRepeats int     // runs of a group that count, at least
	MaxRepeats int     // and at most
	Precision  float64 // standard error of the median, relative to it, at which a group was run often enough

	Budget time.Duration // nothing new begins when this is spent, 0 for no limit

	References     int     // groups that are run again to notice drift, 0 for none
	ReferenceEvery int     // measurements between two checks
	DriftLimit     float64 // percent
}

// DefaultSessionOptions returns what suits a device that nothing else uses.
func DefaultSessionOptions(subjects []Subject, groups int) SessionOptions {
	return SessionOptions{
		Sampling:       Sampling{Subjects: subjects, Spans: 4, SoloShare: DefaultSoloShare, Seed: 1},
		Groups:         groups,
		Operators:      true,
		MinRepeats:     3,
		MaxRepeats:     10,
		Precision:      0.03,
		References:     3,
		ReferenceEvery: 50,
		DriftLimit:     10,
	}
}

func (o *SessionOptions) check() error {
	switch {
	case o.Groups < 0 || o.Groups > MaxRows:
		return fmt.Errorf("%w: %d groups, not 0 to %d", ErrPlan, o.Groups, MaxRows)
	case o.MinRepeats < 1 || o.MaxRepeats < o.MinRepeats || o.MaxRepeats > maxRepeats:
		return fmt.Errorf("%w: %d to %d runs of a group, the limits are 1 and %d", ErrPlan, o.MinRepeats, o.MaxRepeats, maxRepeats)
	case math.IsNaN(o.Precision) || o.Precision < 0:
		return fmt.Errorf("%w: to a precision of %v", ErrPlan, o.Precision)
	case o.References < 0 || o.References > 0 && o.ReferenceEvery < 1:
		return fmt.Errorf("%w: %d reference groups every %d measurements", ErrPlan, o.References, o.ReferenceEvery)
	case math.IsNaN(o.DriftLimit) || o.DriftLimit < 0:
		return fmt.Errorf("%w: a drift of %v %%", ErrPlan, o.DriftLimit)
	}
	return nil
}

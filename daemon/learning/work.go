package learning

import (
	"time"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Work is what the owner of a Learner has to do for it, in the order of the
// fields.
type Work struct {
	Stop    bool            // the step that runs, and the fit; what comes of them counts for nothing
	Unfit   []error         // why stored predictors do not fit, for the log
	Restore *predictor.File // it was just taken into use: its stored calibration holds

	// Measured is set when measuring is over: what could not be measured, and how the
	// device has drifted, go to the log.
	Measured training.Progress

	Unfound error // why fitting came to nothing, for the log
	Entered bool  // a phase was begun, which Report has with why, for the log
	Store   []Job // writes to the state file
	Read    *Read // what to read from the state file
	Fit     *Fit
}

// Job writes to the state file.
type Job struct {
	What string // is being done, for messages
	Do   func(*training.Store) error
}

// Read is a wish for what was measured of models on a device, to measure the
// rest, or to fit a network to it.
type Read struct {
	generation int
	device     string
	models     []training.Model

	// begin makes a session of the rest, nil to fit.
	begin func(stored *training.Dataset, operators map[string][]training.OperatorTimes) *training.Session
}

// found is the answer to a Read.
type found struct {
	generation int
	session    *training.Session // nil to fit
	fit        Fit
	err        error
}

// From reads, away from the goroutine that owns the Learner. The error is that of
// what it returns.
func (r *Read) From(s *training.Store) (found, error) {
	f := found{generation: r.generation, fit: Fit{generation: r.generation}}
	if f.fit.Data, f.err = s.Dataset(r.device, r.models); f.err == nil {
		f.fit.Operators, f.err = s.Operators(r.device, r.models)
	}
	if f.err == nil && r.begin != nil {
		f.session = r.begin(f.fit.Data, f.fit.Operators)
	}
	return f, f.err
}

// Not is the answer to a Read that cannot be done.
func (r *Read) Not(err error) found { return found{generation: r.generation, err: err} }

// Fit is a wish for a predictor of measured groups.
type Fit struct {
	generation int
	Data       *training.Dataset
	Operators  map[string][]training.OperatorTimes // by the name of their model
}

// The phases of a daemon on its way to a predictor. Solo is also where every failure
// ends: batches then run one at a time, which is always safe.
const (
	Loading   = "loading"   // not every service was ready yet
	Solo      = "solo"      // there is no predictor, and none will come by itself
	Measuring = "measuring" // groups are measured while nothing else is to do
	Training  = "training"  // a predictor is fitted to them
	Serving   = "serving"   // groups are predicted
)

// report is how a Learner stands.
type report struct {
	Phase     string
	Reason    string          // for the phase, to a person
	File      *predictor.File // in use, nil for none
	Unknown   []string        // services whose models it does not know
	Remedy    string          // how to have it know them, "" if there are none
	Measuring bool            // the following is of measuring that goes on
	Progress  training.Progress
	Limit     time.Duration // on measuring, 0 for none
}

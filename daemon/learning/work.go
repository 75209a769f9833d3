package learning

import (
	"time"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Work is what the owner of a Learner must do for it, in the order of the fields.
type Work struct {
	// Stop stops the running step and the fit. Their results are ignored.
	Stop bool

	// Unfit says why stored predictors do not fit, for the log.
	Unfit []error

	// Restore is the predictor that was just put into use: its stored calibration applies.
	Restore *predictor.File

	// Measured is set when measuring has ended, for a log of what could not be measured and
	// how the device has drifted.
	Measured training.Progress

	// Unfound says why fitting failed, for the log.
	Unfound error

	// Entered is set if a new phase has begun, for the log. See Report.
	Entered bool

	// Store are writes to the state file.
	Store []Job

	// Read is what to read from the state file, or nil.
	Read *Read

	// Fit is a fit to run, or nil.
	Fit *Fit
}

// Job is a write to the state file. What describes it for messages.
type Job struct {
	What string
	Do   func(*training.Store) error
}

// Read asks for the stored measurements of models on a device, in order to measure the rest
// or to fit a network to them.
type Read struct {
	generation int
	device     string
	models     []training.Model

	// begin creates a session for the remaining measurements. It is nil if a network is to
	// be fitted.
	begin func(stored *training.Dataset, operators map[string][]training.OperatorTimes) *training.Session
}

// found is the result of a Read.
type found struct {
	generation int

	// session is nil if a network is to be fitted.
	session *training.Session
	fit     Fit
	err     error
}

// From reads the state file. It runs in another goroutine than the Learner's. The error is
// also in the result.
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

// Not returns the result of a Read that is not possible.
func (r *Read) Not(err error) found { return found{generation: r.generation, err: err} }

// Fit asks for a predictor fitted to measured groups.
type Fit struct {
	generation int
	Data       *training.Dataset

	// Operators is indexed by the names of the models.
	Operators map[string][]training.OperatorTimes
}

// Phases of a daemon on its way to a predictor. Every failure ends in Solo: batches then
// run one at a time, which is always safe.
const (
	Loading   = "loading"   // some service is not ready yet
	Solo      = "solo"      // there is no predictor, and there will not be one by itself
	Measuring = "measuring" // groups are being measured
	Training  = "training"  // a predictor is being fitted
	Serving   = "serving"   // groups are predicted
)

// report is the state of a Learner.
type report struct {
	Phase string

	// Reason explains the phase to a person.
	Reason string

	// File is the predictor in use, or nil.
	File *predictor.File

	// Unknown are the services whose models it does not know, and Remedy says how to change
	// that.
	Unknown []string
	Remedy  string

	// Measuring is set while groups are measured. Progress and Limit (0 for none) apply
	// then.
	Measuring bool
	Progress  training.Progress
	Limit     time.Duration
}

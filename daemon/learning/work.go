package learning

import (
	"fmt"
	"slices"
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
	Store   []Job // of the state file
	Read    *Read // of the state file
	Fit     *Fit
}

// Job writes to the state file.
type Job struct {
	What string // is being done, for messages
	Do   func(*training.Store) error
}

// Work returns what is to be done since the last call.
func (l *Learner) Work() Work {
	w := l.work
	l.work = Work{}
	return w
}

func (l *Learner) store(what string, do func(*training.Store) error) {
	l.work.Store = append(l.work.Store, Job{what, do})
}

// Read is a wish for what was measured of models on a device, to measure the
// rest, or to fit a network to it.
type Read struct {
	generation int
	device     string
	models     []training.Model

	// begin makes a session of the rest, nil to fit.
	begin func(stored *training.Dataset, operators map[string][]training.OperatorTimes) (*training.Session, error)
}

// Found is the answer to a Read.
type Found struct {
	generation int
	session    *training.Session // nil to fit
	fit        Fit
	err        error
}

// From reads, away from the goroutine that owns the Learner. The error is that of
// what it returns.
func (r *Read) From(s *training.Store) (Found, error) {
	f := Found{generation: r.generation, fit: Fit{generation: r.generation}}
	if f.fit.Data, f.err = s.Dataset(r.device, r.models); f.err == nil {
		f.fit.Operators, f.err = s.Operators(r.device, r.models)
	}
	if f.err == nil && r.begin != nil {
		f.session, f.err = r.begin(f.fit.Data, f.fit.Operators)
	}
	return f, f.err
}

// Not is the answer to a Read that cannot be done.
func (r *Read) Not(err error) Found { return Found{generation: r.generation, err: err} }

// Found goes on with what was read. If that failed there is no predictor.
func (l *Learner) Found(f Found) {
	switch {
	case f.generation != l.generation:
	case f.err != nil:
		l.enter(Solo, fmt.Sprintf("what was measured cannot be used: %v", f.err))
	case f.session != nil:
		l.session = f.session
	default:
		l.work.Fit = &f.fit
	}
}

// Fit is a wish for a predictor of measured groups.
type Fit struct {
	generation int
	Data       *training.Dataset
	Operators  map[string][]training.OperatorTimes // of each model by name
}

// Fitted takes the predictor into use that a fit has made, and has it stored, or
// takes in why there is none.
func (l *Learner) Fitted(of *Fit, f *predictor.File, err error, w World) {
	if of.generation != l.generation {
		return
	}
	if err == nil {
		err = l.use(f, w)
	}
	if err != nil {
		l.work.Unfound = err
		l.enter(Solo, fmt.Sprintf("fitting one failed: %v", err))
		return
	}
	l.store("storing the predictor", func(s *training.Store) error { return s.PutPredictor(f) })
	stored := slices.Insert(l.options.Stored, 0, f)
	l.options.Stored = stored[:min(len(stored), storedPredictors)]
}

// Report is how a Learner stands.
type Report struct {
	Phase     Phase
	Reason    string          // for the phase, to a person
	File      *predictor.File // in use, nil for none
	Unknown   []string        // services whose models it does not know
	Remedy    string          // how to have it know them, "" if there are none
	Measuring bool            // the following is of measuring that goes on
	Progress  training.Progress
	Limit     time.Duration // on measuring, 0 for none
}

// Report returns how the Learner stands.
func (l *Learner) Report() Report {
	r := Report{
		Phase: l.phase, Reason: l.reason, File: l.file, Unknown: l.unknown, Remedy: l.remedy(),
		Progress: l.progress, Limit: l.options.Limit,
	}
	if s := l.session; s != nil {
		r.Measuring, r.Progress = true, s.Progress()
	}
	return r
}

// remedy returns how a predictor is to be had that knows the unknown services. One
// with a name that the predictor was trained on keeps a daemon that starts from
// using it, so that it measures anew.
func (l *Learner) remedy() string {
	if len(l.unknown) == 0 {
		return ""
	}
	const byHand = "stop overlapd, run overlapd profile and overlapd train, "
	replaced := slices.ContainsFunc(l.unknown, func(name string) bool {
		return slices.ContainsFunc(l.file.Features.Models, func(m predictor.FeatureModel) bool { return m.Name == name })
	})
	switch {
	case l.options.Emulated:
		return "stop overlapd, fit a predictor with overlapd train to data that has them, name it in predictor.file, and start overlapd again"
	case l.options.File != "":
		return byHand + "name the new file in predictor.file, and start it again"
	case replaced && l.options.OnStart && l.options.CanFit:
		return "restart overlapd, which then measures groups while no query comes and fits another predictor; or " + byHand + "and start it again"
	}
	return byHand + "and start it again"
}

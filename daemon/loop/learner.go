package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// loggedSkips is how much of what cannot be measured is listed in the log.
const loggedSkips = 20

// errSlowState is why what was measured cannot be read.
var errSlowState = errors.New("the state file is too slow")

// FitFunc fits a predictor to measured groups. The operator times are those of
// each model by name.
type FitFunc func(ctx context.Context, d *training.Dataset, operators map[string][]training.OperatorTimes) (*predictor.File, error)

// learner carries out what the [learning.Learner] decides: it runs rounds that
// measure while nobody asks anything, has the state file read and written, and has
// predictors fitted, both away from the scheduler goroutine.
type learner struct {
	*core
	fleet       *fleet
	measurement measurement
	endFit      context.CancelFunc // ends the fit that was begun last, nil if none was
}

// bind chooses the predictor for the models of now, if they have changed
// and every worker has loaded its own or was given up.
func (d *learner) bind() {
	if d.learning.Stale() && d.fleet.settled() {
		d.learning.Bind(d.world())
		d.work()
	}
}

// world describes the device and the models of all members to the learner.
func (d *learner) world() learning.World {
	w := learning.World{Device: d.measuredOn(), Models: make([]predictor.Served, len(d.fleet.members)), Reloaded: d.fleet.reloaded}
	for i, s := range d.fleet.members {
		if s == nil {
			continue
		}
		served, m := &w.Models[i], d.measured(models.ServiceID(i))
		*served = predictor.Served{Service: m.Name, Model: m.Name, Hash: m.Hash, Operators: m.Operators}
		if d.config.Emulated() {
			// Whoever measured the device named the models; nobody has their files.
			served.Model, served.Hash = s.place.Model, ""
		}
		if s.state == stateServing {
			w.Services = append(w.Services, s.subject(m))
		}
	}
	return w
}

// subject describes a service that may be measured.
func (s *member) subject(m training.Model) learning.Service {
	l := learning.Service{ID: s.service.ID, Model: m, GivenUp: s.worker.givenUp, Sizes: []int{1}}
	if !s.config.BestEffort {
		l.Target = s.config.Target
	}
	if s.service.Mergeable() {
		l.Sizes = s.config.MeasuredSizes()
	}
	if info := s.worker.info; info != nil && models.HasSeqLen(info.Inputs) {
		l.SeqLens = s.config.SeqLens
	}
	return l
}

// measured returns the model of a service as it stands in datasets, without
// operators before it is loaded. Its threads are part of what makes it the same:
// they decide how long it takes.
func (d *learner) measured(id models.ServiceID) training.Model {
	m := training.Model{Name: d.fleet.name(id)}
	if info := d.fleet.members[id].worker.info; info != nil {
		m.Hash, m.Operators = info.Hash+"/"+d.fleet.members[id].place.Share, len(info.Operators)
	}
	return m
}

// measuredOn describes the device in datasets, with what else decides how long
// operators take. An emulated device is what it is made after: what was measured
// there holds here.
func (d *learner) measuredOn() string {
	if d.config.Emulated() {
		return d.MeasuredAs
	}
	for _, s := range d.fleet.served() {
		if info := s.worker.info; info != nil {
			return fmt.Sprintf("%s, ONNX Runtime %s", d.Device, info.ORTVersion)
		}
	}
	return d.Device
}

// measure runs the next step of measuring if it has been quiet for long enough
// and the services are ready. It returns when to ask again.
func (d *learner) measure() (next time.Duration) {
	if quiet := d.learning.QuietAt(); quiet > d.Now() {
		return quiet
	}
	for ready := !d.Keeper.Full() && !d.draining.Load() && d.measurable(); ready; {
		rounds := d.learning.Next(d.Now())
		d.work()
		if len(rounds) == 0 {
			break
		}
		err := d.measurement.start(rounds)
		if err == nil {
			break
		}
		if errors.Is(err, executor.ErrClosed) {
			d.stop()
			break
		}
		d.learning.Finished(d.Now(), nil, -1, err)
		d.work()
	}
	return d.Now() + learning.Quiet
}

// measurable reports whether the workers of all services that are measured
// run, and none loads.
func (d *learner) measurable() bool {
	if d.fleet.loading.active() {
		return false
	}
	for _, id := range d.learning.Services() {
		if !d.fleet.members[id].service.Ready() {
			return false
		}
	}
	return true
}

// finished takes in what became of a round that measures.
func (d *learner) finished(o *executor.Outcome) {
	culprit, failed := models.ServiceID(-1), 0
	for i := range o.Spans {
		s := &o.Spans[i]
		if s.Status == models.SpanLost {
			d.fleet.lost(s.Span.Service)
		}
		if s.Status != models.SpanDone {
			culprit = s.Span.Service
			failed++
		}
	}
	if failed > 1 {
		culprit = -1
	}
	over, err := d.measurement.finish(o, !d.scheduler.Idle() || d.fleet.loading.active())
	if over {
		d.learning.Finished(d.Now(), d.measurement.took, culprit, err)
		d.work()
	}
}

// stop gives up measuring and fitting.
func (d *learner) stop() {
	d.learning.Stop()
	d.work()
}

// work does what the learner wants done.
func (d *learner) work() {
	w := d.learning.Work()
	if w.Stop {
		d.measurement.stop()
		if d.endFit != nil {
			d.endFit()
			d.endFit = nil
		}
	}
	if w.Restore != nil && d.Profiles != nil {
		if c, ok := d.Profiles.Calibration(d.calibrationKey(w.Restore.Identity())); ok && d.predictor.Restore(c) != nil {
			d.Log.Warn().Msg("the stored calibration of the predictor is impossible; it is learned again")
		}
	}
	d.logWork(&w)
	for _, job := range w.Store {
		d.Keeper.Keep(job.What, job.Do)
	}
	if w.Read != nil {
		d.read(w.Read)
	}
	if w.Fit != nil {
		d.fit(w.Fit)
	}
}

// read has the state file read, away from the loop.
func (d *learner) read(r *learning.Read) {
	taken := d.Keeper.Keep("reading what was measured", func(s *training.Store) error {
		found, err := r.From(s)
		d.tell(message{ask: func() {
			d.learning.Found(found)
			d.work()
		}})
		return err
	})
	if !taken {
		d.learning.Found(r.Not(errSlowState))
		d.work()
	}
}

// fit has a predictor fitted, away from the loop.
func (d *learner) fit(f *learning.Fit) {
	ctx, cancel := context.WithCancel(d.Life)
	d.endFit = cancel
	d.Goroutines.Go(func() {
		file, err := d.Fit(ctx, f.Data, f.Operators)
		d.tell(message{ask: func() {
			if ctx.Err() == nil {
				d.learning.Fitted(f, file, err, d.world())
				d.work()
			}
		}})
	})
}

// logWork writes into the log what the learner has come to.
func (d *learner) logWork(w *learning.Work) {
	for _, err := range w.Unfit {
		d.Log.Debug().Err(err).Msg("a stored predictor does not fit")
	}
	skips, drift := w.Measured.Skips, &w.Measured.Drift
	for _, skip := range skips[:min(len(skips), loggedSkips)] {
		d.Log.Warn().Err(skip.Err).Str("service", skip.Model).Int("size", skip.Size).Int("seq_len", skip.SeqLen).Msg("this could not be measured")
	}
	if more := len(skips) - loggedSkips; more > 0 {
		d.Log.Warn().Int("more", more).Msg("nor could the rest that is not listed")
	}
	if drift.Exceeded {
		d.Log.Warn().Float64("percent", drift.Worst.Percent).Msg("the device became slower or faster while it was measured; measure again when it is calm")
	}
	if w.Unfound != nil {
		d.Log.Warn().Err(w.Unfound).Msg("fitting a predictor")
	}
	if w.Entered {
		r := d.learning.Report()
		d.Log.Info().Str("predictor", r.Phase).Str("why", r.Reason).Msg("prediction of operator groups")
	}
}

func (d *learner) report() Report {
	r := Report{Services: len(d.fleet.members)}
	for _, s := range d.fleet.served() {
		if s.service.Ready() {
			r.Ready++
		}
		if s.worker.givenUp {
			r.GivenUp = append(r.GivenUp, s.config.Name)
		}
	}
	p := d.learning.Report()
	r.Over, r.Reason = p.Phase == learning.Solo, p.Reason
	r.Progress = p.Progress
	return r
}

// Report is how far measuring has come.
type Report struct {
	Ready    int // services that have loaded their models
	Services int
	GivenUp  []string // services whose model does not load
	Progress training.Progress
	Over     bool   // nothing is left to measure, or no time
	Reason   string // why it is over
}

// calibrationKey names what a calibration holds for: it speaks of services by
// their position, and what was learned of a model holds for no other that has
// its place, or its name.
func (d *learner) calibrationKey(identity string) string {
	key := []byte(identity)
	for i, s := range d.fleet.members {
		if key = append(key, '|'); s == nil {
			continue
		}
		key = append(key, s.config.Name...)
		if m := d.measured(models.ServiceID(i)); m.Operators > 0 {
			key = fmt.Appendf(key, " %s/%d", m.Hash, m.Operators)
		}
	}
	return string(key)
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
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

// learningOptions returns what a configuration says of learning.
func learningOptions(c *config.Config) learning.Options {
	p := &c.Profile
	return learning.Options{
		Policy: c.Policy, Emulated: c.Emulated(), File: c.Predictor.File,
		OnStart: p.OnStart, Limit: p.Time, Groups: p.Groups, Repeats: p.Repeats, Spans: p.Spans, Seed: uint64(p.Seed),
	}
}

// bindPredictor chooses the predictor for the models of now, if they have changed
// and every worker has loaded its own or was given up.
func (l *loop) bindPredictor() {
	if l.learning.Stale() && l.settled() {
		l.learning.Bind(l.world())
		l.work()
	}
}

// settled reports whether every worker has loaded its model or was given up.
func (l *loop) settled() bool {
	for _, s := range l.served() {
		if w := &s.worker; w.info == nil && !w.givenUp {
			return false
		}
	}
	return true
}

// served returns the services that requests find.
func (l *loop) served() (list []*slot) {
	for _, s := range l.slots {
		if s != nil && s.state == slotServing {
			list = append(list, s)
		}
	}
	return list
}

// world describes the device and the models of all slots to the learner.
func (l *loop) world() learning.World {
	w := learning.World{Device: l.measuredOn(), Models: make([]predictor.Served, len(l.slots)), Reloaded: l.reloaded}
	for i, s := range l.slots {
		if s == nil {
			continue
		}
		served, m := &w.Models[i], l.measured(models.ServiceID(i))
		*served = predictor.Served{Service: m.Name, Model: m.Name, Hash: m.Hash, Operators: m.Operators}
		if l.emulation != nil {
			// Whoever measured the device named the models; nobody has their files.
			served.Model, served.Hash = s.model.Name, ""
		}
		if s.state == slotServing {
			w.Services = append(w.Services, s.subject(m))
		}
	}
	return w
}

// subject describes a service that may be measured.
func (s *slot) subject(m training.Model) learning.Service {
	l := learning.Service{ID: s.service.ID, Model: m, GivenUp: s.worker.givenUp, Sizes: []int{1}}
	if !s.config.BestEffort {
		l.Target = s.config.Target
	}
	if s.service.Batched() {
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
func (l *loop) measured(id models.ServiceID) training.Model {
	m := training.Model{Name: l.name(id)}
	if info := l.slots[id].worker.info; info != nil {
		m.Hash, m.Operators = info.Hash+"/"+l.share(id), len(info.Operators)
	}
	return m
}

// measuredOn describes the device in datasets, with what else decides how long
// operators take. An emulated device is what it is made after: what was measured
// there holds here.
func (l *loop) measuredOn() string {
	if l.emulation != nil {
		return l.emulation.name
	}
	for _, s := range l.served() {
		if info := s.worker.info; info != nil {
			return fmt.Sprintf("%s, ONNX Runtime %s", l.device, info.ORTVersion)
		}
	}
	return l.device
}

// measure runs the next step of measuring if it has been quiet for long enough
// and the services are ready. It returns when to ask again.
func (l *loop) measure() (next time.Duration) {
	if quiet := l.learning.QuietAt(); quiet > l.now() {
		return quiet
	}
	for ready := !l.keeper.full() && !l.draining.Load() && l.measurable(); ready; {
		rounds := l.learning.Next(l.now())
		l.work()
		if len(rounds) == 0 {
			break
		}
		err := l.measurement.start(rounds)
		if err == nil {
			break
		}
		if errors.Is(err, executor.ErrClosed) {
			l.stopLearning()
			break
		}
		l.learning.Finished(l.now(), learning.Result{Err: err, Culprit: -1})
		l.work()
	}
	return l.now() + learning.Quiet
}

// measurable reports whether the workers of all services that are measured
// run, and none loads.
func (l *loop) measurable() bool {
	if l.loading.active() {
		return false
	}
	for _, id := range l.learning.Services() {
		if !l.slots[id].service.Ready() {
			return false
		}
	}
	return true
}

// finishMeasured takes in what became of a round that measures.
func (l *loop) finishMeasured(o *executor.Outcome) {
	culprit, failed := models.ServiceID(-1), 0
	for i := range o.Spans {
		s := &o.Spans[i]
		if s.Status == models.SpanLost {
			l.lost(s.Span.Service)
		}
		if s.Status != models.SpanDone {
			culprit = s.Span.Service
			failed++
		}
	}
	if failed > 1 {
		culprit = -1
	}
	over, err := l.measurement.finish(o, !l.scheduler.Idle() || l.loading.active())
	if over {
		l.learning.Finished(l.now(), learning.Result{Took: l.measurement.took, Err: err, Culprit: culprit})
		l.work()
	}
}

// stopLearning gives up measuring and fitting.
func (l *loop) stopLearning() {
	l.learning.Stop()
	l.work()
}

// work does what the learner wants done.
func (l *loop) work() {
	w := l.learning.Work()
	if w.Stop {
		l.measurement.stop()
		if l.endFit != nil {
			l.endFit()
			l.endFit = nil
		}
	}
	if w.Restore != nil && l.profiles != nil {
		if c, ok := l.profiles.calibration(w.Restore); ok && l.predictor.Restore(c) != nil {
			l.log.Warn().Msg("the stored calibration of the predictor is impossible; it is learned again")
		}
	}
	l.logLearning(&w)
	for _, job := range w.Store {
		l.keeper.keep(job.What, job.Do)
	}
	if w.Read != nil {
		l.read(w.Read)
	}
	if w.Fit != nil {
		l.fit(w.Fit)
	}
}

// read has the state file read, away from the loop.
func (l *loop) read(r *learning.Read) {
	taken := l.keeper.keep("reading what was measured", func(s *training.Store) error {
		found, err := r.From(s)
		l.tell(message{ask: func(l *loop) {
			l.learning.Found(found)
			l.work()
		}})
		return err
	})
	if !taken {
		l.learning.Found(r.Not(errSlowState))
		l.work()
	}
}

// fit has a predictor fitted, away from the loop.
func (l *loop) fit(f *learning.Fit) {
	ctx, cancel := context.WithCancel(l.life)
	l.endFit = cancel
	l.goroutines.Go(func() {
		file, err := l.fitter(ctx, f.Data, f.Operators)
		l.tell(message{ask: func(l *loop) {
			if ctx.Err() == nil {
				l.learning.Fitted(f, file, err, l.world())
				l.work()
			}
		}})
	})
}

// logLearning writes into the log what the learner has come to.
func (l *loop) logLearning(w *learning.Work) {
	for _, err := range w.Unfit {
		l.log.Debug().Err(err).Msg("a stored predictor does not fit")
	}
	for _, skip := range w.Skips[:min(len(w.Skips), loggedSkips)] {
		l.log.Warn().Err(skip.Err).Str("service", skip.Model).Int("size", skip.Size).Int("seq_len", skip.SeqLen).Msg("this could not be measured")
	}
	if more := len(w.Skips) - loggedSkips; more > 0 {
		l.log.Warn().Int("more", more).Msg("nor could the rest that is not listed")
	}
	if w.Drift.Exceeded {
		l.log.Warn().Float64("percent", w.Drift.Worst.Percent).Msg("the device became slower or faster while it was measured; measure again when it is calm")
	}
	if w.Unfound != nil {
		l.log.Warn().Err(w.Unfound).Msg("fitting a predictor")
	}
	for _, e := range w.Entered {
		l.log.Info().Stringer("predictor", e.Phase).Str("why", e.Reason).Msg("prediction of operator groups")
	}
}

package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

// loggedSkips is how much of what cannot be measured is listed in the log.
const loggedSkips = 20

// learner carries out what the [learning.Learner] of a kind of device decides: it runs
// rounds that measure while nobody asks anything, on one device of the kind at a time,
// has the state file read and written, and has predictors fitted, both away from the
// scheduler goroutine.
type learner struct {
	env         *env
	workers     *workers
	services    *services
	kind        *kind
	learning    *learning.Learner
	measurement measurement
	jobs        []*job                      // before the next step of learning
	listed      map[models.ServiceID]string // the hash of the model whose variant was queued to be measured again
	endFit      context.CancelFunc          // ends the fit that was begun last, nil if none was
}

// bind chooses the predictor for the current models, if they have changed
// and every worker has loaded its own or has failed.
func (d *learner) bind() {
	if !d.services.settled(d.kind) {
		return
	}
	d.measureAgain()
	if d.learning.Stale() {
		d.learning.Bind(d.world())
		d.work()
	}
}

// world describes the device and the models of all services to the learner.
func (d *learner) world() learning.World {
	w := learning.World{Device: measuredOn(d.kind, d.services.served()), Models: make([]predictor.Served, len(d.services.list)), Reloaded: d.services.reloaded}
	for i, s := range d.services.list {
		if s == nil || s.on(d.kind) == nil {
			continue
		}
		served, m := &w.Models[i], d.measured(models.ServiceID(i))
		*served = predictor.Served{Service: m.Name, Model: m.Name, Hash: m.Hash, Operators: m.Operators}
		if d.device().Emulated {
			// Whoever measured the device named the models; nobody has their files.
			served.Model, served.Hash = s.on(d.kind).place.Model, ""
		}
		if s.state == stateServing {
			w.Services = append(w.Services, s.subject(m, d.kind))
		}
	}
	return w
}

// subject describes a service that may be measured.
func (s *service) subject(m training.Model, on *kind) learning.Service {
	l := learning.Service{ID: s.entry.ID, Model: m, GivenUp: s.givenUp(on.devices), Sizes: []int{1}}
	if !s.config.BestEffort {
		l.Target = s.config.Target
	}
	if s.entry.Mergeable() {
		l.Sizes = s.config.MeasuredSizes()
	}
	if info := s.info; info != nil && models.HasSeqLen(info.Inputs) {
		l.SeqLens = s.config.SeqLens
	}
	return l
}

// measured returns the model of a service as it stands in datasets, without
// operators before it is loaded. Its threads are part of what makes it the same:
// they decide how long it takes.
func (d *learner) measured(id models.ServiceID) training.Model {
	m := training.Model{Name: d.services.name(id)}
	if s := d.services.list[id]; s.info != nil && s.on(d.kind) != nil {
		m.Hash, m.Operators = s.measuredAs(d.kind), len(s.info.Operators)
	}
	return m
}

// device returns a device of the kind, which stands for all.
func (d *learner) device() *device { return d.kind.devices[0] }

// pending reports whether there is something to measure, now or later.
func (d *learner) pending() bool {
	return d.learning.Pending() || d.measurement.waits() || len(d.jobs) > 0
}

// turn measures if nothing else is to be done, or stops the round that measures if queries wait for
// its device. It is called when the scheduler has decided, and returns when to ask again.
func (d *learner) turn(idle, waits bool) (next time.Duration, wake bool) {
	switch m := &d.measurement; {
	case !m.running:
		if idle && d.pending() {
			return d.measure(), true
		}
	case !d.workers.loading.active() && (idle || len(d.env.devices) > 1 && (!waits || slices.ContainsFunc(d.env.devices, (*device).free))):
		// Nobody waits for the device.
	case d.env.now() < m.until:
		return m.until, true
	default:
		m.stop()
	}
	return 0, false
}

// measure runs the next round that measures if one is due and the services are ready:
// that of a job which queries have interrupted, or the first of the next. It returns
// when to ask again.
func (d *learner) measure() (next time.Duration) {
	if due := d.learning.DueAt(d.env.scheduler.Idle()); due > d.env.now() {
		return due
	}
	m := &d.measurement
	for !d.env.options.Keeper.Full() && !d.env.mail.draining.Load() && d.measurable() {
		if m.waits() && !m.job.wanted() {
			m.end().disturbed()
		}
		if !m.waits() {
			j := d.next()
			if j == nil {
				break
			}
			on, err := d.deviceFor(j.groups)
			if err != nil {
				j.then(nil, -1, err)
				if errors.Is(err, learning.ErrDisturbed) {
					break
				}
				continue
			}
			m.start(j, on)
		}
		if !d.vacant(m.device) {
			break
		}
		err := m.run()
		if err == nil {
			m.until = d.learning.Began(d.env.now())
			break
		}
		j := m.end()
		if errors.Is(err, executor.ErrClosed) {
			d.stop()
			break
		}
		j.then(nil, -1, err)
	}
	return d.env.now() + learning.Quiet
}

// next returns the job that comes next: the first of those that wait, or else the next step of
// learning. There is none if all is measured.
func (d *learner) next() *job {
	for len(d.jobs) > 0 {
		j := d.jobs[0]
		if d.jobs = d.jobs[1:]; j.wanted() {
			return j
		}
	}
	rounds := d.learning.Next()
	d.work()
	if len(rounds) == 0 {
		return nil
	}
	return &job{
		groups: rounds,
		wanted: func() bool { return !d.learning.Lost() },
		then: func(took []learning.Timing, culprit models.ServiceID, err error) {
			d.learning.Finished(took, culprit, err)
			d.work()
		},
	}
}

// againRuns is how often a variant is run to be measured again; the fastest run counts.
const againRuns = 3

// measureAgain queues jobs that measure variants alone, once each after all workers of the kind of
// device have loaded. A worker that is warmed up while others load seems slower than it is. A
// service that runs is corrected by its own rounds; a variant that is not selected for its time
// never would be.
func (d *learner) measureAgain() {
	for _, s := range d.services.served() {
		if s.family == nil || s.info == nil || s.on(d.kind) == nil || d.device().Emulated || d.listed[s.entry.ID] == s.info.Hash {
			continue
		}
		d.listed[s.entry.ID] = s.info.Hash
		for i := range s.info.Solo {
			d.jobs = append(d.jobs, d.again(s, s.info, &s.info.Solo[i]))
		}
	}
}

// again returns the job that measures a variant of a model again for which warming up has found
// a time. It is queued again if queries come in between.
func (d *learner) again(s *service, model *wire.Info, found *wire.Solo) *job {
	j := &job{wanted: func() bool { return s.state == stateServing && s.info == model }}
	whole := models.Span{Service: s.entry.ID, End: len(found.Nanos), Size: found.Size, SeqLen: found.SeqLen, Share: found.Share}
	for range againRuns {
		whole.Batch++
		j.groups = append(j.groups, models.Group{Spans: []models.Span{whole}})
	}
	j.then = func(took []learning.Timing, _ models.ServiceID, err error) {
		switch {
		case errors.Is(err, learning.ErrDisturbed):
			d.jobs = slices.Insert(d.jobs, 0, j)
		case err != nil:
			d.env.log.Debug().Err(err).Str("service", s.config.Name).Msg("measuring a variant again failed")
		default:
			fastest := slices.MinFunc(took, func(x, y learning.Timing) int { return int(x.Latency - y.Latency) }).Latency
			d.correct(s, found, fastest)
		}
	}
	return j
}

// correct lowers what is known of a variant to what its whole model took, each operator in
// proportion, and has policies that held for other times calculated from scratch.
func (d *learner) correct(s *service, found *wire.Solo, took time.Duration) {
	var sum int64
	for _, n := range found.Nanos {
		sum += n
	}
	scaled := wire.Solo{Size: found.Size, SeqLen: found.SeqLen, Share: found.Share}
	for _, n := range found.Nanos {
		scaled.Nanos = append(scaled.Nanos, int64(float64(n)*float64(took)/float64(max(sum, 1))))
	}
	id := s.entry.ID
	if d.kind.slower(d.services.specs[id], scaled) || d.kind.solo.On(scaled.Share).SetOperators(id, scaled.Size, scaled.SeqLen, scaled.Nanos) != nil {
		return
	}
	s.family.solved = 0
}

// measurable reports whether the workers of all services that are measured
// run, and none loads, and there is a device to measure on.
func (d *learner) measurable() bool {
	down := func(id models.ServiceID) bool {
		return slices.ContainsFunc(d.kind.devices, func(on *device) bool {
			r := d.services.list[id].replicas[on.index]
			return r != nil && r.awaited()
		})
	}
	return !d.measurement.running && !d.workers.loading.active() && slices.ContainsFunc(d.kind.devices, d.vacant) &&
		!slices.ContainsFunc(d.learning.Services(), down)
}

// vacant reports whether a device runs nothing, and holds nothing that would be lost if
// it were taken. The only device is not taken from queries: they wait.
func (d *learner) vacant(on *device) bool {
	return on.free() && on.moving == 0 && (len(d.env.devices) == 1 || d.env.scheduler.Paused(on.index) == 0)
}

// errApart is why a group cannot be measured of which the services are on no device
// together. The scheduler does not form it either.
var errApart = errors.New("no device has all services of the group")

// deviceFor returns a device to run rounds on.
func (d *learner) deviceFor(rounds []models.Group) (*device, error) {
	err := errApart
	for _, on := range d.kind.devices {
		missing := func(s models.Span) bool {
			r := d.services.list[s.Service].replicas[on.index]
			return r == nil || !r.ready()
		}
		if slices.ContainsFunc(rounds, func(g models.Group) bool { return slices.ContainsFunc(g.Spans, missing) }) {
			continue
		}
		if d.vacant(on) {
			return on, nil
		}
		err = learning.ErrDisturbed
	}
	return nil, err
}

// finished records the outcome of a round that measures, or of a detached span of one.
func (d *learner) finished(on *device, o *executor.Outcome) {
	if o.Overrun {
		d.landed(on, &o.Spans[0])
		return
	}
	culprit, failed := models.ServiceID(-1), 0
	for i := range o.Spans {
		s := &o.Spans[i]
		switch s.Status {
		case models.SpanLost, models.SpanCrashed:
			d.workers.lost(s.Span.Service, on)
		case models.SpanOverrun: // its worker can run nothing else meanwhile
			d.services.list[s.Span.Service].replicas[on.index].on(spanOverran)
			_ = d.env.step(overlap.Event{Kind: overlap.Down, Service: s.Span.Service, Device: on.index})
			on.exec.Abandon(s.Span.Service, s.Span.Batch)
		}
		if s.Status != models.SpanDone {
			culprit = s.Span.Service
			failed++
		}
	}
	if failed > 1 {
		culprit = -1
	}
	d.learning.Ended(d.env.now(), d.measurement.broken)
	if j, err := d.measurement.finish(o); j != nil {
		j.then(d.measurement.took, culprit, err)
	}
}

// landed records the end of a detached span.
func (d *learner) landed(on *device, s *executor.SpanOutcome) {
	for i := range s.Queries {
		s.Queries[i].Release()
	}
	d.measurement.giveBack(func(h *heldBatch) bool { return h.batch == s.Span.Batch })
	if r := d.services.list[s.Span.Service].replicas[on.index]; r != nil {
		r.on(spanLanded)
	}
	if s.Status == models.SpanLost || s.Status == models.SpanCrashed {
		d.workers.lost(s.Span.Service, on)
	} else {
		d.workers.resume(s.Span.Service, on)
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
	if w.Restore != nil && d.env.options.Profiles != nil {
		var c predictor.CalibrationSnapshot
		if d.env.options.Profiles.Stored(Calibrations, d.calibrationKey(w.Restore.Identity()), &c) && d.kind.predictor.Restore(c) != nil {
			d.env.log.Warn().Msg("the stored calibration of the predictor is invalid; it is learned again")
		}
	}
	d.logWork(&w)
	for _, j := range w.Store {
		d.env.keep(j.What, j.Do)
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
	taken := d.env.keep("reading measurements failed", func(s *training.Store) error {
		found, err := r.From(s)
		d.env.mail.tell(func() {
			d.learning.Found(d.env.now(), found)
			d.work()
		})
		return err
	})
	if !taken {
		d.learning.Found(d.env.now(), r.Not(errors.New("the state file is too slow")))
		d.work()
	}
}

// fit has a predictor fitted, away from the loop.
func (d *learner) fit(f *learning.Fit) {
	ctx, cancel := context.WithCancel(d.env.options.Life)
	d.endFit = cancel
	d.env.options.Goroutines.Go(func() {
		file, err := d.env.options.Fit(ctx, f.Data, f.Operators)
		d.env.mail.tell(func() {
			if ctx.Err() == nil {
				d.learning.Fitted(f, file, err, d.world())
				d.work()
			}
		})
	})
}

// logWork writes into the log what the learner has come to.
func (d *learner) logWork(w *learning.Work) {
	for i, err := range w.Unfit {
		line := d.env.log.Debug()
		if i == 0 { // the newest, which may just have come from another daemon
			line = d.env.log.Info()
		}
		line.Err(err).Msg("a stored predictor does not match")
	}
	skips, drift := w.Measured.Skips, &w.Measured.Drift
	for _, skip := range skips[:min(len(skips), loggedSkips)] {
		d.env.log.Warn().Err(skip.Err).Str("service", skip.Model).Int("size", skip.Size).Int("seq_len", skip.SeqLen).Msg("measurement failed")
	}
	if more := len(skips) - loggedSkips; more > 0 {
		d.env.log.Warn().Int("more", more).Msg("more measurements failed; they are not listed")
	}
	if drift.Exceeded {
		d.env.log.Warn().Float64("percent", drift.Worst.Percent).Msg("the speed of the device changed during the measurement; measure again when the device is idle")
	}
	if w.Unfound != nil {
		d.env.log.Warn().Err(w.Unfound).Msg("training a predictor")
	}
	if w.Entered {
		r := d.learning.Report()
		d.env.log.Info().Str("predictor", r.Phase).Str("why", r.Reason).Msg("prediction of operator groups")
	}
}

// Report is how far measuring has come.
type Report struct {
	Ready    int // services that have loaded their models
	Services int
	GivenUp  []string // services whose model does not load
	Devices  []string // that groups are measured on, as datasets name them
	Progress training.Progress
	Over     bool   // nothing is left to measure, or no time
	Reason   string // why it is over
}

// add adds how far a kind of device is. Kinds are measured beside each other.
func (r *Report) add(l *learner) {
	p, sum := l.learning.Report(), &r.Progress
	r.Over = r.Over && p.Phase == learning.Solo
	if r.Reason != "" {
		r.Reason += "; "
	}
	if len(l.env.kinds) > 1 {
		r.Reason += l.device().Name + ": "
	}
	r.Reason += p.Reason
	if p.Progress.Total == 0 {
		return
	}
	r.Devices = append(r.Devices, measuredOn(l.kind, l.services.served()))
	sum.Done, sum.Total, sum.Skipped = sum.Done+p.Progress.Done, sum.Total+p.Progress.Total, sum.Skipped+p.Progress.Skipped
	sum.Spent, sum.Left = max(sum.Spent, p.Progress.Spent), max(sum.Left, p.Progress.Left)
	sum.Skips = append(sum.Skips, p.Progress.Skips...)
	sum.Drift.Add(p.Progress.Drift)
}

// calibrationKey names what a calibration holds for: it speaks of services by
// their position, and what was learned of a model holds for no other that has
// its place, or its name.
func (d *learner) calibrationKey(identity string) string {
	key := []byte(identity)
	for i, s := range d.services.list {
		if key = append(key, '|'); s == nil || s.on(d.kind) == nil {
			continue
		}
		key = append(key, s.config.Name...)
		if m := d.measured(models.ServiceID(i)); m.Operators > 0 {
			key = fmt.Appendf(key, " %s/%d", m.Hash, m.Operators)
		}
	}
	return string(key)
}

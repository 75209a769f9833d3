package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/query"
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
	again       again
	endFit      context.CancelFunc // ends the fit that was begun last, nil if none was
}

// bind chooses the predictor for the models of now, if they have changed
// and every worker has loaded its own or was given up.
func (d *learner) bind() {
	if !d.services.settled(d.kind) {
		return
	}
	d.again.list()
	if d.learning.Stale() {
		d.learning.Bind(d.world())
		d.work()
	}
}

// world describes the device and the models of all members to the learner.
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
	return d.learning.Pending() || d.measurement.waits() || len(d.again.left) > 0
}

// turn goes on with measuring, of which a round may run, when the scheduler has decided.
// It returns when to ask again.
func (d *learner) turn(idle, waits bool) (next time.Duration, wake bool) {
	switch m := &d.measurement; {
	case !m.active():
		if idle && d.pending() {
			return d.measure(), true
		}
	case d.workers.loading.active(), !idle && d.wanted(waits):
		return m.yield()
	}
	return 0, false
}

// wanted reports whether what waits, if anything does, may wait for a device that measures.
func (d *learner) wanted(waits bool) bool {
	return len(d.env.devices) == 1 || waits && !slices.ContainsFunc(d.env.devices, (*device).free)
}

// measure runs the next round that measures if one is due and the services are ready:
// that of a step which queries have interrupted, or the first of the next. It returns
// when to ask again.
func (d *learner) measure() (next time.Duration) {
	if due := d.learning.DueAt(d.env.scheduler.Idle()); due > d.env.now() {
		return due
	}
	for ready := !d.env.options.Keeper.Full() && !d.env.mail.draining.Load() && d.measurable(); ready; {
		if d.measurement.waits() && !d.again.runs && d.learning.Lost() {
			d.measurement.end()
			d.over(nil, -1, learning.ErrDisturbed)
		}
		if !d.measurement.waits() {
			rounds := d.again.rounds()
			if len(rounds) == 0 {
				rounds = d.learning.Next()
				d.work()
			}
			if len(rounds) == 0 {
				break
			}
			on, err := d.place(rounds)
			if err != nil {
				d.over(nil, -1, err)
				if errors.Is(err, learning.ErrDisturbed) {
					break
				}
				continue
			}
			d.measurement.start(rounds, on)
		}
		if !d.measurable() || !d.vacant(d.measurement.device) {
			break
		}
		err := d.measurement.run()
		if err == nil {
			d.measurement.until = d.learning.Began(d.env.now())
			break
		}
		if errors.Is(err, executor.ErrClosed) {
			d.stop()
			break
		}
		d.over(nil, -1, err)
	}
	return d.env.now() + learning.Quiet
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
	return !d.measurement.active() && !d.workers.loading.active() && slices.ContainsFunc(d.kind.devices, d.vacant) &&
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

// place returns the device to run the rounds of a step on.
func (d *learner) place(rounds []models.Group) (*device, error) {
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

// finished takes in what became of a round that measures, or of a span of one that
// was set apart.
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
	over, err := d.measurement.finish(o)
	if over {
		d.over(d.measurement.took, culprit, err)
	}
}

// over takes in how the step went that was begun last.
func (d *learner) over(took []learning.Timing, culprit models.ServiceID, err error) {
	if d.again.runs {
		d.again.finished(took, err)
		return
	}
	d.learning.Finished(took, culprit, err)
	d.work()
}

// landed takes in how a span has ended that was set apart.
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
	for _, job := range w.Store {
		d.env.keep(job.What, job.Do)
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

// measuringIDs is where the IDs of rounds, batches and queries begin that
// measure. The scheduler, which counts from 1, never gets there.
const measuringIDs = 1 << 63

// maxMeasuredBytes is the largest input that is made up for measuring.
const maxMeasuredBytes = 1 << 30

// measurement runs the rounds of a step, on inputs of zeros, and times each. Between
// two of them queries may be served: its batches stay with the workers.
type measurement struct {
	env     *env
	workers *workers
	device  *device // that the rounds of the step run on
	lastID  uint64
	rounds  []models.Group // the groups that are left
	running bool           // the first of them
	round   uint64         // its ID
	until   time.Duration  // queries wait for it until then at most
	broken  bool           // it was told to stop
	limit   time.Duration  // by when it must have done so, or the others go on without it
	took    []learning.Timing
	held    []heldBatch
	ended   chan struct{} // is closed when no round runs any more, nil if nobody waits
}

// stopPatience is how long a round that measures may take to end once it was told
// to, because queries wait.
const stopPatience = 20 * time.Millisecond

// heldBatch is a batch that a worker may hold, and its inputs.
type heldBatch struct {
	device  *device
	service models.ServiceID
	batch   models.BatchID
	inputs  *wire.InputArena
	offset  int64 // in it
	inUse   bool  // by a span that was set apart
}

// active reports whether a round runs.
func (m *measurement) active() bool { return m.running }

// reads reports whether a worker runs what is measured, or still reads its inputs.
func (m *measurement) reads() bool { return m.running || len(m.held) > 0 }

// waits reports whether a step is interrupted, and its next round is to be run.
func (m *measurement) waits() bool { return len(m.rounds) > 0 && !m.running }

func (m *measurement) id() uint64 {
	m.lastID++
	return measuringIDs + m.lastID
}

// start takes the rounds of a step, to run on a device.
func (m *measurement) start(rounds []models.Group, on *device) {
	m.rounds, m.took, m.device = rounds, m.took[:0], on
}

// run runs the next round. A batch gets inputs where its spans start at operator 0.
// Nothing is left of the step if it fails.
func (m *measurement) run() error {
	err := m.send()
	if err != nil {
		m.end()
	}
	return err
}

func (m *measurement) send() error {
	spans := m.rounds[0].Spans
	requests := make([]executor.SpanRequest, len(spans))
	for i, s := range spans {
		s.Batch |= measuringIDs
		requests[i].Span, requests[i].Whole = s, true
		if s.Start > 0 {
			continue
		}
		tensors, err := m.alloc(&s)
		if err != nil {
			return err
		}
		requests[i].Queries = []wire.QueryTensors{{ID: models.QueryID(m.id()), Inputs: tensors}}
	}
	m.round = m.id()
	if err := m.device.exec.Run(m.round, requests); err != nil {
		return err
	}
	for _, s := range spans {
		m.workers.services.list[s.Service].replicas[m.device.index].on(roundSent)
	}
	m.workers.take(m.device)
	m.running, m.broken = true, false
	return nil
}

// yield ends the round that runs at the next operators, if queries have waited for it
// as long as they may. Otherwise it returns when to ask again.
func (m *measurement) yield() (again time.Duration, wake bool) {
	if m.env.now() < m.until {
		return m.until, true
	}
	m.stop()
	return 0, false
}

// stop ends the round that runs at the next operators, and the step.
func (m *measurement) stop() {
	if m.waits() {
		m.end()
	}
	if !m.active() || m.broken {
		return
	}
	m.broken, m.limit = true, m.env.now()+stopPatience
	for _, s := range m.rounds[0].Spans {
		m.device.exec.Stop(s.Service, s.Batch|measuringIDs)
	}
}

// finish takes in the outcome of the round that runs. It reports true when the step is
// over: all rounds have run, or there is an error.
func (m *measurement) finish(o *executor.Outcome) (over bool, err error) {
	m.running = false
	m.workers.giveBack(m.device)
	t := learning.Timing{Latency: o.Latency(), Device: o.DeviceTime()}
	stopped := false
	for i := range o.Spans {
		s := &o.Spans[i]
		for j := range s.Queries {
			s.Queries[j].Release()
		}
		switch {
		case s.Status == models.SpanOverrun:
			stopped = true
			for j := range m.held {
				m.held[j].inUse = m.held[j].inUse || m.held[j].batch == s.Span.Batch
			}
		case s.Status == models.SpanStopped && m.broken:
			stopped = true
		case s.Status != models.SpanDone:
			err = errors.Join(fmt.Errorf("operators did not run to their end: %s", s.Status), s.Err)
		}
	}
	m.took, m.rounds = append(m.took, t), m.rounds[1:]
	switch {
	case err != nil:
	case stopped, m.broken && len(m.rounds) > 0: // it may have ended before it saw that
		err = learning.ErrDisturbed
	case len(m.rounds) > 0:
		return false, nil
	}
	m.end()
	return true, err
}

// quit closes ended when no round runs any more.
func (m *measurement) quit(ended chan struct{}) {
	if m.active() {
		m.ended = ended
	} else {
		close(ended)
	}
}

// end gives back what the batches held, but for those that workers still use.
func (m *measurement) end() {
	m.giveBack(func(h *heldBatch) bool { return !h.inUse })
	m.rounds, m.running = nil, false
	if m.ended != nil {
		close(m.ended)
		m.ended = nil
	}
}

// giveBack gives back what some of the batches held.
func (m *measurement) giveBack(some func(h *heldBatch) bool) {
	m.held = slices.DeleteFunc(m.held, func(h heldBatch) bool {
		if !some(&h) {
			return false
		}
		h.device.exec.Release(h.service, h.batch)
		_ = h.inputs.Free(h.offset) // it was allocated there
		return true
	})
}

// alloc makes up the inputs of a span's batch.
func (m *measurement) alloc(s *models.Span) ([]wire.Tensor, error) {
	member := m.workers.services.list[s.Service]
	inputs := member.info.Inputs
	var tensors []wire.Tensor
	var sum int64
	for i, shape := range models.Fill(inputs, s.Size, s.SeqLen) {
		ty := inputs[i].Type
		bytes := int64(ty.Elem.Bytes())
		if ty.Kind != models.KindTensor || bytes == 0 {
			return nil, fmt.Errorf("input %q is %s, for which no data can be generated", inputs[i].Name, ty)
		}
		for _, d := range shape {
			if bytes *= d; bytes > maxMeasuredBytes {
				return nil, fmt.Errorf("input %q of shape %v is too large to generate", inputs[i].Name, shape)
			}
		}
		tensors = append(tensors, wire.Tensor{Type: ty.Elem, Shape: shape, Offset: sum, Bytes: bytes})
		sum += query.Aligned(bytes)
	}
	offset, data, err := member.inputs.Alloc(max(sum, 1))
	if err != nil {
		return nil, fmt.Errorf("memory for inputs of batch size %d: %w", s.Size, err)
	}
	clear(data)
	m.held = append(m.held, heldBatch{device: m.device, service: s.Service, batch: s.Batch, inputs: member.inputs, offset: offset})
	for i := range tensors {
		tensors[i].Offset += offset
	}
	return tensors, nil
}

package loop

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// workers is the workers of the services: what happens to them, and what they have learned of
// their models.
type workers struct {
	env       *env
	services  *services
	loading   loading
	late      []lateEvent // came while a round of their service runs
	shrinking int         // workers that go as soon as another one serves
}

// lateEvent is an event that could not be acted on yet.
type lateEvent struct {
	device *device
	event  *executor.Event
}

// loseWorkers gives up every worker of a device, those too that come later, for a reason
// that is no service's own. With a nil error there may be workers again.
func (w *workers) loseWorkers(d *device, err error) {
	d.noWorkers = err
	for i, s := range w.services.list {
		if s != nil && s.replicas[d.index] != nil && err != nil {
			w.happened(d, &executor.Event{Kind: executor.WorkerFailed, Service: models.ServiceID(i), Err: err})
		}
	}
}

// happened acts on what happened to a worker. The outcome of a span that was lost with it may come
// before or after.
func (w *workers) happened(d *device, e *executor.Event) {
	w.loading.heard(d.index, e, time.Now())
	if s := w.services.list[e.Service]; s != nil && s.state != stateLeaving && s.replicas[d.index] != nil {
		w.fares(s, d, e)
	}
	log := w.env.log
	if d.Name != "" {
		log = log.With().Str("device", d.Name).Logger()
	} else if d.Emulated {
		log = log.With().Str("device", d.Text).Logger()
	}
	logEvent(log, w.services.name(e.Service), e)
}

func (w *workers) fares(s *service, d *device, e *executor.Event) {
	r := s.replicas[d.index]
	switch e.Kind {
	case executor.WorkerStarting:
		if r.starts++; r.starts > 1 {
			s.line.restarts++
		}
	case executor.WorkerReady:
		w.up(s, d, e)
	case executor.WorkerLost, executor.WorkerStopped:
		w.down(e.Service, d)
	case executor.WorkerFailed:
		w.down(e.Service, d)
		retryAt := int64(0)
		if e.RestartIn > 0 {
			retryAt = time.Now().Add(e.RestartIn).UnixNano()
		}
		w.fail(s, d, e.Err, retryAt)
	}
	if s.state == stateJoining {
		w.joining(s, r, e)
	}
}

// loadTries is how often the worker of a service that joins may be lost before
// it is given up for reasons that another try may not have. What the model is
// at fault for is given up at once.
const loadTries = 3

// joining tells whoever waits for a service that joins how its workers do.
func (w *workers) joining(s *service, r *replica, e *executor.Event) {
	switch e.Kind {
	case executor.WorkerProgress:
		select {
		case s.joining.News <- config.Step{Service: s.config.Name, State: config.StepLoading, Done: e.Done, Total: e.Total}:
		default:
		}
	case executor.WorkerLost:
		if errors.Is(e.Err, executor.ErrHeld) {
			return // for the sake of others, who have limits of their own
		}
		hopeless := errors.Is(e.Err, executor.ErrLoad) && !errors.Is(e.Err, wire.ErrDeviceMemory)
		if r.lost++; r.lost >= loadTries || hopeless {
			w.services.withdraw(s, e.Err)
		}
	case executor.WorkerFailed:
		w.services.withdraw(s, e.Err)
	}
}

// lost is called when a span is lost. That is known before the event that its
// worker is, unless the next worker is ready already.
func (w *workers) lost(id models.ServiceID, d *device) {
	if r := w.services.list[id].replicas[d.index]; r != nil && r.state != replicaFresh {
		w.down(id, d)
	}
}

func (w *workers) down(id models.ServiceID, d *device) {
	s := w.services.list[id]
	s.replicas[d.index].on(workerLost)
	s.show()
	_ = w.env.step(overlap.Event{Kind: overlap.Down, Service: id, Device: d.index})
}

// fail expects no worker of a service on a device before some time, 0 for ever. All else goes on
// without it.
func (w *workers) fail(s *service, d *device, err error, retryAt int64) {
	r := s.replicas[d.index]
	r.on(workerFailed)
	r.fault, r.retryAt = err, retryAt
	s.show()
	d.kind.learning.GaveUp()
	w.services.rebind = true
}

// resume has a service run on a device, if it can.
func (w *workers) resume(id models.ServiceID, d *device) {
	s := w.services.list[id]
	if s == nil || s.state == stateLeaving {
		return
	}
	if r := s.replicas[d.index]; r != nil && r.ready() && r.state != replicaOverrun && (!d.taken || len(w.env.devices) == 1) {
		_ = w.env.step(overlap.Event{Kind: overlap.Up, Service: id, Device: d.index})
	}
}

// Why a worker is not used that has loaded its model.
var (
	errOtherModel = errors.New("its model differs from the one that the workers on other devices have loaded: reload, so that all load it again")
	errOtherCut   = errors.New("its model is cut otherwise than on other devices")
)

// up takes a worker into use that has loaded its model, if that can be served.
func (w *workers) up(s *service, d *device, e *executor.Event) {
	r := s.replicas[d.index]
	w.keepCut(s, r, e.Info)
	switch err := w.accept(s, d, e); {
	case errors.Is(err, overlap.ErrServiceBusy):
		w.late = append(w.late, lateEvent{d, e})
		return
	case errors.Is(err, errOtherCut):
		w.recut(s, r)
		return
	case err != nil:
		w.env.log.Error().Err(err).Str("service", s.config.Name).Str("device", d.Name).Msg("the model cannot be served")
		w.refuse(s, d, err)
		return
	}
	r.on(modelLoaded)
	r.fault, r.retryAt = nil, 0
	if err := w.services.follow(s); err != nil {
		w.env.log.Error().Err(err).Str("service", s.config.Name).Msg("the plan cannot be followed")
	}
	s.probation().back(w.env.now())
	d.kind.learning.Cold(e.Service)
	w.resume(e.Service, d)
	s.show()
	w.services.takeOver(s)
	w.services.rebind = true
}

// refuse gives up a service whose worker has loaded a model that cannot be served.
func (w *workers) refuse(s *service, d *device, err error) {
	w.services.withdraw(s, err)
	w.fail(s, d, err, 0)
}

// catchUp acts on the workers that came back with another model while a
// round with a span of the lost one was still running.
func (w *workers) catchUp() {
	late := w.late
	w.late = nil
	for _, l := range late {
		e := l.event
		if state, err := l.device.exec.State(e.Service); err == nil && state.PID == e.PID {
			w.up(w.services.list[e.Service], l.device, e)
		}
	}
}

// accept has everybody know the model that a worker has loaded, or returns why it cannot be served.
func (w *workers) accept(s *service, d *device, e *executor.Event) error {
	r, before := s.replicas[d.index], s.info
	if i := before; i != nil && s.entry.Ready() && (i.Hash != e.Info.Hash || len(i.Operators) != len(e.Info.Operators)) {
		if i.Hash == e.Info.Hash && i.Cut != nil && r.place.Worker.Load.Choose != nil && !r.recut {
			return errOtherCut
		}
		return errOtherModel
	}
	if fault := e.Info.WarmFault; fault != "" && w.warmed(s) {
		return fmt.Errorf("its model fails on the zeros that it is warmed up with, which the previous one did not: %s", fault)
	}
	info := infoOf(d, e.Info)
	if err := s.entry.Loaded(info); err != nil {
		return err
	}
	if s.family != nil {
		if err := s.family.loaded(s, info); err != nil {
			return err
		}
	}
	spec := w.services.specs[e.Service]
	spec.Operators, spec.MaxBatch = len(e.Info.Operators), s.entry.MaxBatch
	spec.Ladder = e.Info.Convolutions && slices.ContainsFunc(w.env.devices, func(d *device) bool { return d.Ladder })
	if !s.entry.Mergeable() {
		spec.MaxBatch = 1
	}
	if err := w.load(s, d, spec, e.Info); err != nil {
		return err
	}
	if s.info != before {
		return w.services.plan(s)
	}
	return nil
}

// warmed reports whether a service joins in the place of one whose model ran when it
// was warmed up.
func (w *workers) warmed(s *service) bool {
	old := w.services.serving(s.config.Name)
	return s.state == stateJoining && old != nil && old.info != nil && old.info.WarmFault == ""
}

// infoOf returns what requests are checked against.
func infoOf(d *device, i *wire.Info) query.Info {
	info := query.Info{
		Inputs:    i.Inputs,
		Outputs:   i.Outputs,
		Operators: len(i.Operators),
		Hash:      i.Hash,
		Platform:  query.OnnxPlatform,
		Device:    d.Text,
		Versions:  map[string]string{"onnxruntime": i.ORTVersion},
	}
	if d.Emulated {
		info.Platform, info.Versions = config.DeviceEmulated, nil
	}
	if i.Cut != nil {
		info.Cut = i.Cut.Reason
	}
	return info
}

// load gives scheduler and predictors what the worker learned of the model. A
// worker that comes back with the same model changes nothing.
func (w *workers) load(s *service, d *device, spec models.Service, info *wire.Info) error {
	if s.info == nil || !reflect.DeepEqual(w.services.specs[spec.ID], spec) || s.info.Hash != info.Hash {
		spec.Pipelines = nil // they are of the model that was
		if err := w.env.step(overlap.Event{Kind: overlap.Load, Definition: spec}); err != nil {
			return err
		}
		if err := w.env.forget(spec.ID, spec.Operators); err != nil {
			return err
		}
		w.services.specs[spec.ID], s.info = spec, info
	}
	if d.kind.profiled[spec.ID] == info.Hash {
		return nil
	}
	d.kind.profiled[spec.ID] = info.Hash
	return w.profile(d.kind, spec, s.replicas[d.index].place.Share, info)
}

// profile has a kind of device know how long the operators of a model take there, by
// what was stored and by what a worker found as it warmed up.
func (w *workers) profile(k *kind, spec models.Service, share string, i *wire.Info) error {
	k.learning.Changed()
	if stored := w.env.options.Profiles; stored != nil && !k.devices[0].Emulated {
		var p predictor.Snapshot
		if stored.Stored(SoloProfiles, k.profileKey(share, i), &p) && k.solo.Restore(spec.ID, p) == nil {
			w.env.log.Debug().Str("service", spec.Name).Int("cells", len(p.Cells)).Msg("stored profile loaded")
		}
	}
	for _, t := range i.Solo {
		if k.slower(spec, t) {
			continue
		}
		if err := k.solo.On(t.Share).SetOperators(spec.ID, t.Size, t.SeqLen, t.Nanos); err != nil {
			return err
		}
	}
	return nil
}

// keepCut logs a choice that a worker has made, and has it stored.
func (w *workers) keepCut(s *service, r *replica, info *wire.Info) {
	c := info.Cut
	if c == nil {
		return
	}
	if before := s.info; before != nil && before.Cut != nil && before.Cut.Reason == c.Reason && before.Hash == info.Hash {
		return
	}
	w.env.log.Info().Str("service", s.config.Name).Int("operators", len(info.Operators)).Str("why", c.Reason).Msg("model cut")
	if stored := w.env.options.Profiles; c.Measured() && stored != nil {
		stored.ChoseCut(s.config, r.place, c)
	}
}

// hire starts a worker of a service. Its model is cut as those of the others are.
func (w *workers) hire(s *service, r *replica) error {
	spec := &r.place.Worker
	spec.ID, spec.Inputs, spec.Moves = s.entry.ID, s.inputs, s.moves
	if c := spec.Load.Choose; c != nil && s.info != nil && s.info.Cut != nil {
		same := *c
		same.Known, spec.Load.Choose = s.info.Cut, &same
	}
	return w.env.devices[r.place.Device].exec.Add(*spec)
}

// hireAfter starts a worker of a service once the one before it on its device is gone,
// unless it is not wanted any more.
func (w *workers) hireAfter(s *service, r *replica, gone <-chan struct{}) {
	w.env.options.Goroutines.Go(func() {
		<-gone
		w.env.mail.tell(func() {
			d := w.env.devices[r.place.Device]
			if s.replicas[d.index] != r || s.state > stateJoining {
				return
			}
			if err := w.hire(s, r); err != nil {
				w.env.log.Error().Err(err).Str("service", s.config.Name).Str("device", d.Name).Msg("starting a worker failed")
				w.fail(s, d, err, 0)
			}
		})
	})
}

// recut starts a worker again that has cut its model otherwise than those on other
// devices, which measured at the same time what cuts cost.
func (w *workers) recut(s *service, r *replica) {
	d := w.env.devices[r.place.Device]
	gone, err := d.exec.Remove(s.entry.ID)
	if err != nil {
		w.refuse(s, d, err)
		return
	}
	r.recut = true
	w.hireAfter(s, r, gone)
}

// logEvent writes what happened to the worker of a service.
func logEvent(log zerolog.Logger, service string, e *executor.Event) {
	log = log.With().Str("service", service).Logger()
	switch e.Kind {
	case executor.WorkerStarting:
		log.Info().Int("pid", e.PID).Msg("worker starting")
	case executor.WorkerProgress:
		log.Debug().Str("phase", e.Phase).Int64("done", e.Done).Int64("total", e.Total).Msg("worker loading")
	case executor.WorkerReady:
		if e.PID == 0 {
			log.Info().Int("operators", len(e.Info.Operators)).Msg("model emulated")
			return
		}
		log.Info().Int("pid", e.PID).Int("operators", len(e.Info.Operators)).Bool("cached", e.Info.CacheHit).Dur("took", e.Took.Round(time.Millisecond)).Msg("worker ready")
	case executor.WorkerOutput:
		log.Warn().Str("line", e.Line).Msg("worker output")
	case executor.WorkerLost:
		log.Error().Err(e.Err).Int("pid", e.PID).Int("batches", len(e.Batches)).Dur("restart_in", e.RestartIn.Round(time.Millisecond)).Msg("worker exited")
	case executor.WorkerFailed:
		if e.RestartIn > 0 {
			log = log.With().Dur("retry_in", e.RestartIn).Logger()
		}
		log.Error().Err(e.Err).Msg("service failed permanently: fix the cause, then run: overlapd restart NAME")
	case executor.WorkerStopped:
		if e.PID != 0 {
			log.Info().Int("pid", e.PID).Msg("worker stopped")
		}
	}
}

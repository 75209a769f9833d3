package loop

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/rs/zerolog"
)

// crew is the workers of the fleet: what happens to them, and what they have learned of
// their models.
type crew struct {
	*fleet
	late []lateEvent // came while a round of their service runs
}

// lateEvent is an event that could not be taken in yet.
type lateEvent struct {
	device *device
	event  *executor.Event
}

// loseWorkers gives up every worker of a device, those too that come later, for a reason
// that is no service's own. With a nil error there may be workers again.
func (f *crew) loseWorkers(d *device, err error) {
	d.noWorkers = err
	for i, s := range f.members {
		if s != nil && s.replicas[d.index] != nil && err != nil {
			f.happened(d, &executor.Event{Kind: executor.WorkerFailed, Service: models.ServiceID(i), Err: err})
		}
	}
}

// happened takes in what happened to a worker. The outcome of a span that
// was lost with it may come before or after.
func (f *crew) happened(d *device, e *executor.Event) {
	f.loading.heard(d.index, e, time.Now())
	if s := f.members[e.Service]; s != nil && s.state != stateLeaving && s.replicas[d.index] != nil {
		f.fares(s, d, e)
	}
	log := f.Log
	if d.Name != "" {
		log = log.With().Str("device", d.Name).Logger()
	} else if d.Emulated {
		log = log.With().Str("device", d.Text).Logger()
	}
	logEvent(log, f.name(e.Service), e)
}

func (f *crew) fares(s *member, d *device, e *executor.Event) {
	r := s.replicas[d.index]
	switch e.Kind {
	case executor.WorkerStarting:
		if r.started {
			s.line.restarts++
		}
		r.started = true
	case executor.WorkerReady:
		f.up(d, e)
	case executor.WorkerLost:
		f.down(e.Service, d)
	case executor.WorkerFailed:
		f.down(e.Service, d)
		r.fault, r.retryAt = e.Err, 0
		if e.RestartIn > 0 {
			r.retryAt = time.Now().Add(e.RestartIn).UnixNano()
		}
		f.giveUp(s, d)
	case executor.WorkerStopped:
		f.down(e.Service, d)
	}
	if s.state == stateJoining {
		f.heard(s, r, e)
	}
}

// lost is called when a span is lost. That is known before the event that its
// worker is, unless the next worker is ready already.
func (f *crew) lost(id models.ServiceID, d *device) {
	if r := f.members[id].replicas[d.index]; r != nil && !r.fresh {
		f.down(id, d)
	}
}

func (f *crew) down(id models.ServiceID, d *device) {
	s := f.members[id]
	r := s.replicas[d.index]
	r.fresh, r.ready, r.overrun = false, false, false
	s.show()
	_ = f.step(overlap.Event{Kind: overlap.Down, Service: id, Device: d.index})
	f.answerOver()
}

// giveUp expects no worker of a service on a device soon. All else goes on without it.
func (f *crew) giveUp(s *member, d *device) {
	s.replicas[d.index].givenUp = true
	s.show()
	d.kind.learning.GaveUp()
	f.rebind()
}

// errOtherModel is why a worker is not used whose model is not that of the others.
var errOtherModel = errors.New("its model differs from the one that the workers on other devices have loaded: reload, so that all load it again")

func (f *crew) up(d *device, e *executor.Event) {
	member := f.members[e.Service]
	s, r := member.service, member.replicas[d.index]
	f.keepCut(member, r, e.Info)
	if i := member.info; i != nil && s.Ready() && (i.Hash != e.Info.Hash || len(i.Operators) != len(e.Info.Operators)) {
		if i.Hash == e.Info.Hash && i.Cut != nil && r.Worker.Load.Choose != nil && !r.recut {
			f.recut(member, r)
			return
		}
		f.Log.Error().Err(errOtherModel).Str("service", s.Name).Str("device", d.Name).Msg("the model cannot be served")
		f.refuse(member, d, errOtherModel)
		return
	}
	if fault := e.Info.WarmFault; fault != "" && f.warmed(member) {
		f.refuse(member, d, fmt.Errorf("its model fails on the zeros that it is warmed up with, which the previous one did not: %s", fault))
		return
	}
	if err := s.Loaded(f.infoOf(d, e.Info)); err != nil {
		f.Log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be served")
		f.refuse(member, d, err)
		return
	}
	if member.family != nil {
		if err := member.family.loaded(member, f.infoOf(d, e.Info)); err != nil {
			f.Log.Error().Err(err).Str("service", s.Name).Msg("the variant cannot be served")
			f.refuse(member, d, err)
			return
		}
	}
	spec := f.specs[e.Service]
	spec.Operators, spec.MaxBatch = len(e.Info.Operators), s.MaxBatch
	spec.Ladder = e.Info.Convolutions && slices.ContainsFunc(f.devices, func(d *device) bool { return d.Ladder })
	if !s.Mergeable() {
		spec.MaxBatch = 1
	}
	before := member.info
	switch err := f.load(d, spec, e); {
	case errors.Is(err, overlap.ErrServiceBusy):
		f.late = append(f.late, lateEvent{d, e})
		return
	case err != nil:
		f.Log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be scheduled")
		f.refuse(member, d, err)
		return
	}
	if member.info != before {
		if err := f.plan(member); err != nil {
			f.refuse(member, d, err)
			return
		}
	}
	r.ready, r.fresh, r.loaded, r.givenUp, r.retryAt, r.fault = true, true, true, false, 0, nil
	if err := f.follow(member); err != nil {
		f.Log.Error().Err(err).Str("service", s.Name).Msg("the plan cannot be followed")
	}
	member.probation().back(f.Now())
	d.kind.learning.Cold(e.Service)
	f.resume(e.Service, d)
	member.show()
	succession{f.fleet}.takeOver(member)
	f.rebind()
}

// recut starts a worker again that has cut its model otherwise than those on other
// devices, which measured at the same time what cuts cost.
func (f *crew) recut(s *member, r *replica) {
	gone, err := f.devices[r.Device].exec.Remove(s.service.ID)
	if err != nil {
		f.refuse(s, f.devices[r.Device], err)
		return
	}
	r.recut = true
	f.hireAfter(s, r, gone)
}

// warmed reports whether a service joins in the place of one whose model ran when it
// was warmed up.
func (f *crew) warmed(s *member) bool {
	old := f.serving(s.config.Name)
	return s.state == stateJoining && old != nil && old.info != nil && old.info.WarmFault == ""
}

// infoOf returns what requests are checked against.
func (f *crew) infoOf(d *device, i *wire.Info) query.Info {
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

// refuse gives up a service whose worker has loaded a model that cannot be
// served.
func (f *crew) refuse(s *member, d *device, err error) {
	r := s.replicas[d.index]
	r.fault, r.retryAt = err, 0
	f.withdraw(s, err)
	f.giveUp(s, d)
}

// catchUp takes in the workers that came back with another model while a
// round with a span of the lost one was still running.
func (f *crew) catchUp() {
	late := f.late
	f.late = nil
	for _, l := range late {
		e := l.event
		if state, err := l.device.exec.State(e.Service); err == nil && state.PID == e.PID {
			f.up(l.device, e)
		}
	}
}

// load gives scheduler and predictors what the worker learned of the model. A
// worker that comes back with the same model changes nothing.
func (f *crew) load(d *device, spec models.Service, e *executor.Event) error {
	member := f.members[spec.ID]
	if member.info == nil || !reflect.DeepEqual(f.specs[spec.ID], spec) || member.info.Hash != e.Info.Hash {
		spec.Pipelines = nil // they are of the model that was
		if err := f.step(overlap.Event{Kind: overlap.Load, Definition: spec}); err != nil {
			return err
		}
		if err := f.forget(spec.ID, spec.Operators); err != nil {
			return err
		}
		f.specs[spec.ID], member.info = spec, e.Info
	}
	if d.kind.profiled[spec.ID] == e.Info.Hash {
		return nil
	}
	d.kind.profiled[spec.ID] = e.Info.Hash
	return f.profile(d.kind, spec, member.replicas[d.index].Share, e.Info)
}

// profile has a kind of device know how long the operators of a model take there, by
// what was stored and by what a worker found as it warmed up.
func (f *crew) profile(k *kind, spec models.Service, share string, i *wire.Info) error {
	k.learning.Changed()
	if f.Profiles != nil && !k.devices[0].Emulated {
		var p predictor.Snapshot
		if f.Profiles.Stored(SoloProfiles, k.profileKey(share, i), &p) && k.solo.Restore(spec.ID, p) == nil {
			f.Log.Debug().Str("service", spec.Name).Int("cells", len(p.Cells)).Msg("stored profile loaded")
		}
	}
	for _, t := range i.Solo {
		if k.slower(spec, t) {
			continue
		}
		if err := k.solo.SetOperators(spec.ID, t.Size, t.SeqLen, t.Nanos); err != nil {
			return err
		}
	}
	return nil
}

// keepCut logs a choice that a worker has made, and has it stored.
func (f *crew) keepCut(member *member, r *replica, info *wire.Info) {
	c := info.Cut
	if c == nil {
		return
	}
	if before := member.info; before != nil && before.Cut != nil && before.Cut.Reason == c.Reason && before.Hash == info.Hash {
		return
	}
	f.Log.Info().Str("service", member.config.Name).Int("operators", len(info.Operators)).Str("why", c.Reason).Msg("model cut")
	if c.Measured() && f.Profiles != nil {
		f.Profiles.ChoseCut(member.config, r.Place, c)
	}
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

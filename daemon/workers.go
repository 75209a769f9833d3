package daemon

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// What happens to the workers of a fleet.

// event takes in what happened to a worker. The outcome of a span that
// was lost with it may come before or after.
func (f *fleet) event(e *executor.Event) {
	f.loading.heard(e, time.Now())
	if s := f.members[e.Service]; s != nil && s.state != stateLeaving {
		f.fares(s, e)
	}
	log := f.log
	if f.emulation != nil {
		log = log.With().Str("device", f.device).Logger()
	}
	logEvent(log, f.name(e.Service), e)
}

func (f *fleet) fares(s *member, e *executor.Event) {
	switch e.Kind {
	case executor.WorkerStarting:
		s.starts++
	case executor.WorkerReady:
		f.up(e)
	case executor.WorkerLost:
		f.down(e.Service)
	case executor.WorkerFailed:
		f.down(e.Service)
		s.worker.fault = e.Err
		f.giveUp(e.Service)
	case executor.WorkerStopped:
		f.down(e.Service)
	}
	if s.state == stateJoining {
		f.heard(s, e)
	}
}

// lost is called when a span is lost. That is known before the event that its
// worker is, unless the next worker is ready already.
func (f *fleet) lost(id models.ServiceID) {
	if !f.members[id].worker.fresh {
		f.down(id)
	}
}

func (f *fleet) down(id models.ServiceID) {
	s := f.members[id]
	s.worker.fresh = false
	s.service.SetReady(false)
	f.scheduler.Down(f.now(), id)
	f.calls.answer()
}

// giveUp expects no worker of a service any more. The others go on without it.
func (f *fleet) giveUp(id models.ServiceID) {
	s := f.members[id]
	s.worker.givenUp = true
	s.service.SetGivenUp(true)
	f.learner.learning.GaveUp()
	f.learner.bind()
}

func (f *fleet) up(e *executor.Event) {
	member := f.members[e.Service]
	s := member.service
	f.keepCut(member, e.Info)
	if err := s.Loaded(f.infoOf(e.Info)); err != nil {
		f.log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be served")
		f.refuse(e.Service, err)
		return
	}
	spec := f.specs[e.Service]
	spec.Operators, spec.MaxBatch = len(e.Info.Operators), s.MaxBatch
	if !s.Batched() {
		spec.MaxBatch = 1
	}
	switch err := f.load(spec, e); {
	case errors.Is(err, overlap.ErrServiceBusy):
		f.late = append(f.late, e)
		return
	case err != nil:
		f.log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be scheduled")
		f.refuse(e.Service, err)
		return
	}
	member.worker.fresh, member.worker.givenUp = true, false
	f.learner.learning.Cold(e.Service)
	f.scheduler.Up(f.now(), e.Service)
	s.SetGivenUp(false)
	s.SetReady(true)
	f.takeOver(member)
	f.learner.bind()
}

// infoOf returns what requests are checked against.
func (f *fleet) infoOf(i *wire.Info) query.Info {
	info := query.Info{
		Inputs:    i.Inputs,
		Outputs:   i.Outputs,
		Operators: len(i.Operators),
		Hash:      i.Hash,
		Platform:  query.OnnxPlatform,
		Device:    f.device,
		Versions:  map[string]string{"onnxruntime": i.ORTVersion},
	}
	if f.emulation != nil {
		info.Platform, info.Versions = config.DeviceEmulated, nil
	}
	if i.Cut != nil {
		info.Cut = i.Cut.Reason
	}
	return info
}

// refuse gives up a service whose worker has loaded a model that cannot be
// served.
func (f *fleet) refuse(id models.ServiceID, err error) {
	f.members[id].worker.fault = err
	f.withdraw(f.members[id], err)
	f.giveUp(id)
}

// catchUp takes in the workers that came back with another model while a
// round with a span of the lost one was still running.
func (f *fleet) catchUp() {
	late := f.late
	f.late = nil
	for _, e := range late {
		if state, err := f.exec.State(e.Service); err == nil && state.PID == e.PID {
			f.up(e)
		}
	}
}

// load tells scheduler and predictor what the worker learned of the model. A
// worker that comes back with the same model changes nothing.
func (f *fleet) load(spec models.Service, e *executor.Event) error {
	member := f.members[spec.ID]
	w := &member.worker
	if w.info != nil && f.specs[spec.ID] == spec && w.info.Hash == e.Info.Hash {
		return nil
	}
	if err := f.scheduler.Load(f.now(), spec); err != nil {
		return err
	}
	if err := f.predictor.Reset(spec.ID, spec.Operators); err != nil {
		return err
	}
	f.specs[spec.ID], w.info = spec, e.Info
	f.learner.learning.Changed()
	if f.profiles != nil {
		if p, ok := f.profiles.stored(e); ok && f.solo.Restore(spec.ID, p) == nil {
			f.log.Debug().Str("service", spec.Name).Int("cells", len(p.Cells)).Msg("the stored profile is taken")
		}
	}
	for _, t := range e.Info.Solo {
		if f.slower(spec, t) {
			continue
		}
		if err := f.solo.SetOperators(spec.ID, t.Size, t.SeqLen, t.Nanos); err != nil {
			return err
		}
	}
	return nil
}

// slower reports whether warming up took longer than what is known already. A
// machine that is busy while models load must not spoil a profile that is good,
// and a profile from a busy time must not outlive it.
func (f *fleet) slower(spec models.Service, t wire.Solo) bool {
	known, ok := f.solo.Span(models.Span{Service: spec.ID, End: spec.Operators, Size: t.Size, SeqLen: t.SeqLen})
	var took time.Duration
	for _, n := range t.Nanos {
		took += time.Duration(n)
	}
	return ok && took > known
}

// keepCut logs a choice that a worker has made, and has it stored.
func (f *fleet) keepCut(member *member, info *wire.Info) {
	c := info.Cut
	if c == nil {
		return
	}
	if before := member.worker.info; before != nil && before.Cut != nil && before.Cut.Reason == c.Reason && before.Hash == info.Hash {
		return
	}
	f.log.Info().Str("service", member.config.Name).Int("operators", len(info.Operators)).Str("why", c.Reason).Msg("model is cut")
	if c.Measured() && f.profiles != nil {
		f.profiles.chose(member.config, c)
	}
}

// logEvent writes what happened to the worker of a service.
func logEvent(log zerolog.Logger, service string, e *executor.Event) {
	log = log.With().Str("service", service).Logger()
	switch e.Kind {
	case executor.WorkerStarting:
		log.Info().Int("pid", e.PID).Msg("worker starts")
	case executor.WorkerProgress:
		log.Debug().Str("phase", e.Phase).Int64("done", e.Done).Int64("total", e.Total).Msg("worker loads")
	case executor.WorkerReady:
		if e.PID == 0 {
			log.Info().Int("operators", len(e.Info.Operators)).Msg("model is emulated")
			return
		}
		log.Info().Int("pid", e.PID).Int("operators", len(e.Info.Operators)).Bool("cached", e.Info.CacheHit).Dur("took", e.Took).Msg("worker is ready")
	case executor.WorkerOutput:
		log.Warn().Str("line", e.Line).Msg("worker says")
	case executor.WorkerLost:
		log.Error().Err(e.Err).Int("pid", e.PID).Int("batches", len(e.Batches)).Dur("restart_in", e.RestartIn).Msg("worker is lost")
	case executor.WorkerFailed:
		log.Error().Err(e.Err).Msg("service is given up: mend what is wrong, and try again with overlapd restart")
	case executor.WorkerStopped:
		if e.PID != 0 {
			log.Info().Int("pid", e.PID).Msg("worker stopped")
		}
	}
}

// loading is how far the workers have come that load their models. They do so
// on threads of low priority beside what is served, but a group that is measured
// meanwhile would be measured too slow.
type loading map[models.ServiceID]load

type load struct {
	began       time.Time
	phase       string
	done, total int64
}

// heard takes in what happened to a worker.
func (g loading) heard(e *executor.Event, now time.Time) {
	switch e.Kind {
	case executor.WorkerProgress:
		began := now
		if before, ok := g[e.Service]; ok {
			began = before.began
		}
		g[e.Service] = load{began, e.Phase, e.Done, e.Total}
	case executor.WorkerReady, executor.WorkerLost, executor.WorkerStopped:
		delete(g, e.Service)
	}
}

// active reports whether any worker loads.
func (g loading) active() bool { return len(g) > 0 }

// status returns the workers that load, by service.
func (g loading) status(name func(models.ServiceID) string, now time.Time) (list []status.Loading) {
	for _, id := range slices.Sorted(maps.Keys(g)) {
		l := g[id]
		list = append(list, status.Loading{Service: name(id), Phase: l.phase, Done: l.done, Total: l.total, LoadSeconds: now.Sub(l.began).Seconds()})
	}
	return list
}

package loop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

func serviceStatus(s *service, now time.Duration, m overlap.ServiceMetrics, waiting overlap.Waiting) status.Service {
	counts := s.entry.Stats.Counts()
	o := status.Service{
		Name: s.config.Name, Version: s.entry.Version, Ready: s.entry.Ready(), BestEffort: s.config.BestEffort, TargetMS: float64(s.config.Target) / 1e6,
		Queued: m.Queued, Paused: m.Paused, Arrived: m.Arrived, Refused: byReason(m.Refused),
		Finished: m.Finished, Late: m.Late, Dropped: byReason(m.Dropped), Failed: byReason(m.Failed), Cancelled: m.Cancelled,
		Batches: m.Batches, Merged: m.Merged, Retried: m.Retried,
		Overruns: s.line.overruns, Overrun: waiting.Overrun,
		EngineSeconds: counts.Spans.Took.Seconds(), DeviceSeconds: counts.Device.Took.Seconds(),
		ID: s.entry.ID, Requests: counts, QueueLimit: s.config.QueueLimit, Postponed: waiting.Postponed, Restarts: s.line.restarts, Cut: cutStatus(s.info),
		Selection: s.selects(), Moves: s.line.moves, MovesLost: s.line.movesLost,
	}
	if s.inputs != nil {
		o.InputBytes = s.inputs.Used()
	}
	if asked := s.asked(); asked != s.entry { // what was refused before there was a variant
		all := asked.Stats.Counts()
		counts.Fail, counts.Failures, counts.TurnedAway = all.Fail, all.Failures, all.TurnedAway
		o.Requests = counts
	}
	for i, n := range counts.TurnedAway {
		if n > 0 {
			o.Refused[query.TurnedAwayFor[i]] += n
		}
	}
	if m.Queued > 0 {
		o.OldestAge = max(now-waiting.Oldest, 0)
	}
	if fault := s.fault(); s.entry.GivenUp.Load() && fault != nil {
		again, _ := s.entry.TriedAgain()
		o.Fault = fault.Error() + "; " + again
	}
	return o
}

// replicaStatus returns how the workers of a service stand, none where there is one device.
func (s *service) replicaStatus(devices []*device) (list []status.Replica) {
	for r := range s.each {
		if len(devices) == 1 {
			break
		}
		o := status.Replica{Device: devices[r.place.Device].Name, Ready: r.ready()}
		if r.state == replicaFailed && r.fault != nil {
			o.Fault = r.fault.Error()
		}
		list = append(list, o)
	}
	return list
}

// planText says by how many pipelines the batches of a service go, or why by none.
func (s *service) planText(pipelines int) string {
	switch {
	case s.route.refused != nil:
		return "not followed: " + s.route.refused.Error()
	case s.route.waits && s.info != nil:
		return "waiting for workers that it needs"
	case pipelines > 0:
		return fmt.Sprintf("pipelines: %d", pipelines)
	}
	return ""
}

func byReason(counts [overlap.ReasonCount]uint64) map[string]uint64 {
	named := map[string]uint64{}
	for r, n := range counts {
		if n > 0 {
			named[overlap.Reason(r).String()] = n
		}
	}
	return named
}

// cutStatus returns nil if nothing was to be chosen.
func cutStatus(info *wire.Info) *status.Cut {
	if info == nil || info.Cut == nil {
		return nil
	}
	o := &status.Cut{Operators: len(info.Operators), Reason: info.Cut.Reason, Costs: []status.CutCost{}}
	for i := range info.Cut.Costs {
		c := &info.Cut.Costs[i]
		o.Costs = append(o.Costs, status.CutCost{
			Operators: c.Segments, Batch: c.Batch, WholeMS: float64(c.WholeNanos) / 1e6, CutMS: float64(c.CutNanos) / 1e6, Percent: 100 * c.Relative(),
		})
	}
	return o
}

// statusOf returns how a loop with some services stands, with the shapes of its predictor or without.
func statusOf(f *services, workers loading, shapes bool) *status.Status {
	env := f.env
	now := env.now()
	m := env.scheduler.Metrics()
	waiting := env.scheduler.Waiting(nil)
	o := &status.Status{
		Policy: env.config.Policy, Device: strings.Join(slices.Compact(slices.Clone(env.texts)), "; "), Emulated: env.devices[0].Emulated, UpSeconds: now.Seconds(),
		Rounds: m.Rounds, BusySeconds: m.Busy.Seconds(), Load: *env.timeline.Load(true), Pool: poolStatus(f, shapes),
		Loading: workers.status(f.name, func(i int) string { return env.devices[i].Name }, time.Now()), Predictor: predictorStatus(env.kinds[0], f, shapes), At: now,
		Draining: env.mail.leaving.Load() || env.mail.draining.Load(),
	}
	o.Plans.Made, o.Plans.Kept, o.Plans.Overturned = m.Plans.Made, m.Plans.Kept, m.Plans.Overturned
	g := &o.Gain
	var sum observe.Gain
	sum, g.OverlapNow, g.MergeNow = env.timeline.Gained(now)
	g.OverlapSeconds, g.MergeSeconds = sum.Overlap.Seconds(), sum.Merge.Seconds()
	var names []string
	soonest := soonestAnswers(f, &m)
	for _, front := range env.registry.Services() {
		if front.Asleep != nil {
			if a := f.asleep[front.Name]; a != nil {
				o.Services, names = append(o.Services, a.status()), append(names, front.Name)
			}
			continue
		}
		for _, entry := range front.Each() {
			s := f.list[entry.ID]
			one := serviceStatus(s, now, f.counted(s, &m), waiting[entry.ID])
			one.Replicas, one.Accuracy = s.replicaStatus(env.devices), f.specs[entry.ID].Accuracy
			if at, ok := soonest[entry.ID]; ok && s.config.Target > 0 {
				one.TargetShare = float64(at) / float64(s.config.Target)
			}
			one.Plan = s.planText(len(f.specs[entry.ID].Pipelines))
			o.Services, names = append(o.Services, one), append(names, entry.Name)
		}
	}
	for _, d := range env.devices {
		o.HostLateSeconds += d.late.Seconds()
		if d.GPU != nil {
			part := d.GPU()
			part.Services = slices.DeleteFunc(slices.Clone(names), func(name string) bool { s := f.serving(name); return s == nil || s.replicas[d.index] == nil })
			o.GPU = append(o.GPU, part)
		}
	}
	return o
}

// poolStatus returns how the devices stand, none where there is one. The predictor of a
// kind of device that is not the first's is with the first device of its kind.
func poolStatus(f *services, shapes bool) (list []status.Device) {
	for _, d := range f.env.devices {
		if len(f.env.devices) == 1 {
			break
		}
		o := status.Device{Name: d.Name, Text: d.Text, Rounds: d.rounds, BusySeconds: d.busy.Seconds(), Measuring: d.taken}
		if d.kind != f.env.kinds[0] && d.kind.devices[0] == d {
			p := predictorStatus(d.kind, f, shapes)
			o.Predictor = &p
		}
		list = append(list, o)
	}
	return list
}

func predictorStatus(k *kind, f *services, shapes bool) status.Predictor {
	p, r := k.learning.Report(), k.predictor.Report(shapes)
	o := status.Predictor{
		Phase: p.Phase, Reason: p.Reason, UnknownServices: p.Unknown, Remedy: p.Remedy, Unknown: r.Unknown,
		Answers: r.Answers, Fallbacks: r.Fallbacks, Shapes: []status.Shape{},
	}
	if f := p.File; f != nil {
		o.File = &status.File{Created: f.Created, Recipe: f.Recipe, Rows: f.Rows, MAPE: f.Test.MAPE}
	}
	if now := &p.Progress; p.Measuring {
		o.Measuring = &status.Progress{Done: now.Done, Total: now.Total, LeftSeconds: now.Left.Seconds(), LimitSeconds: p.Limit.Seconds()}
	}
	for i := range r.Shapes {
		s := &r.Shapes[i]
		q := &s.Quantiles
		shape := status.Shape{
			Source: s.Source.String(), Services: []string{}, Runs: s.Runs, Window: s.Window, RawMAPE: s.RawMAPE, MAPE: s.MAPE,
			P01: q.P01, P50: q.P50, P90: q.P90, P99: q.P99, Bound: s.Bound,
		}
		for _, id := range s.Services {
			shape.Services = append(shape.Services, f.name(id))
		}
		o.Shapes = append(o.Shapes, shape)
	}
	return o
}

// soonestAnswers returns in how long a query of each service would be answered that came now, as far
// as solo times are known: what waits on a device is served before it, in batches as large as
// they may be, and it runs on that of its devices where that ends first. What overlapping gains
// and the round that runs are left out, so it is for comparing daemons and not for deadlines.
func soonestAnswers(f *services, m *overlap.Metrics) map[models.ServiceID]time.Duration {
	waits := make([]time.Duration, len(f.env.devices))
	for i, s := range f.list {
		if s == nil || s.info == nil {
			continue
		}
		var on []int
		for r := range s.each {
			if r.ready() {
				on = append(on, r.place.Device)
			}
		}
		for _, d := range on {
			queued, paused := m.Services[i].Queued, m.Services[i].Paused
			waits[d] += (s.takes(f.env.devices[d], &f.specs[i], queued) + time.Duration(paused)*s.takes(f.env.devices[d], &f.specs[i], 1)) / time.Duration(len(on))
		}
	}
	found := map[models.ServiceID]time.Duration{}
	for _, s := range f.served() {
		for r := range s.each {
			own := s.takes(f.env.devices[r.place.Device], &f.specs[s.entry.ID], 1)
			if before, ok := found[s.entry.ID]; r.ready() && own > 0 && (!ok || waits[r.place.Device]+own < before) {
				found[s.entry.ID] = waits[r.place.Device] + own
			}
		}
	}
	return found
}

// takes returns how long so many queries of a service take alone on a device, in batches as
// large as they may be, with its longest sequence; 0 if that is not known.
func (s *service) takes(on *device, spec *models.Service, queries int) (sum time.Duration) {
	if s.info == nil || queries == 0 {
		return 0
	}
	whole := models.Span{Service: s.entry.ID, End: spec.Operators}
	if len(s.config.SeqLens) > 0 && models.HasSeqLen(s.info.Inputs) {
		whole.SeqLen = slices.Max(s.config.SeqLens)
	}
	most := max(spec.MaxBatch, 1)
	for _, batches := range [][2]int{{queries / most, most}, {min(queries%most, 1), queries % most}} {
		if whole.Size = batches[1]; batches[0] > 0 {
			took, _ := on.kind.solo.Span(whole)
			sum += time.Duration(batches[0]) * took
		}
	}
	return sum
}

package loop

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// service is a service with its workers. Its position in the list of all is the ID by which
// scheduler, executors and predictors know it.
type service struct {
	entry    *query.Service   // what requests find
	inputs   *wire.InputArena // of its queries, which all of its workers read
	moves    *wire.InputArena // through which its batches go from device to device, nil where there is one
	family   *family          // nil unless it is a variant, of this name
	variant  string
	config   config.Service
	replicas []*replica              // by device, nil where it has no worker
	info     *wire.Info              // what a worker last learned of the model, nil before
	gone     map[int]<-chan struct{} // by device that it has left: closed when nothing of its worker there is left

	overrunLogged time.Duration // when the log last had a line about overruns of the service, 0 for never

	state   serviceState
	joining *Joining      // while it joins
	ended   chan struct{} // closed when a service that was retired is gone, nil if nobody waits

	line *lineage // never nil

	lone probation // of a service that is no variant

	route route
}

// route is how the batches of a service go over devices by its plan.
type route struct {
	waits   bool // next is to be taken once all workers that it needs are ready
	next    []models.Pipeline
	refused error         // why the plan is not followed, nil if it is or there is none
	since   time.Duration // when the pipelines became others, 0 for never
}

// newService returns a service with its places in a pool of that many devices.
func newService(c *config.Service, places []Place, devices int) *service {
	s := &service{config: *c, replicas: make([]*replica, devices), line: new(lineage)}
	for _, p := range places {
		s.replicas[p.Device] = &replica{place: p}
	}
	return s
}

// joined reports whether the service is on its way and all of its workers are ready.
func (s *service) joined() bool {
	return s.state == stateJoining && !slices.ContainsFunc(s.replicas, func(r *replica) bool { return r != nil && !r.ready() })
}

// flushed reports whether no batch is left that goes by other pipelines than those of now:
// the deadlines of those that there were have passed.
func (s *service) flushed(now time.Duration) bool {
	return !s.route.waits && (s.route.since == 0 || now-s.route.since >= s.config.Target)
}

// overrunLogEvery is how often the log has a line about the overruns of a service:
// on a host that is too busy there may be many, and each of them is counted.
const overrunLogEvery = 10 * time.Second

// ran counts a span of the service.
func (s *service) ran(e *env, o *executor.SpanOutcome) {
	switch o.Status {
	case models.SpanDone, models.SpanStopped:
		s.entry.Stats.Ran(o.Took, o.DeviceTook)
	case models.SpanOverrun:
		s.line.overruns++
		if now := e.now(); s.overrunLogged == 0 || now-s.overrunLogged >= overrunLogEvery {
			s.overrunLogged = now
			e.log.Warn().Str("service", s.config.Name).Uint64("overruns", s.line.overruns).
				Msg("overrun: operators take far longer than predicted; other services continue")
		}
	}
	if o.Finished {
		times := o.Span.Times(len(o.Queries))
		s.entry.Stats.Executed(times)
		if s.family != nil {
			s.family.front.Stats.Executed(times)
		}
	}
}

// probation returns what is held against queries of the service, which variants share.
func (s *service) probation() *probation {
	if s.family != nil {
		return &s.family.probation
	}
	return &s.lone
}

// each yields the replicas there are.
func (s *service) each(yield func(r *replica) bool) {
	for _, r := range s.replicas {
		if r != nil && !yield(r) {
			return
		}
	}
}

// on returns a replica on a device of a kind, or nil.
func (s *service) on(k *kind) *replica {
	for _, d := range k.devices {
		if r := s.replicas[d.index]; r != nil {
			return r
		}
	}
	return nil
}

// measuredOn names devices of a kind in what is measured on them, by services that serve. An
// emulated device is what it is made after: what was measured there holds here.
func measuredOn(k *kind, served []*service) string {
	d := k.devices[0]
	if d.Emulated {
		return d.MeasuredAs
	}
	for _, s := range served {
		if s.info != nil && s.on(k) != nil {
			return models.MeasuredOn(d.Text, s.info.ORTVersion)
		}
	}
	return d.Text
}

// measuredAs names the model of a service in what is measured of it on devices of a kind. The
// service must have been loaded there.
func (s *service) measuredAs(k *kind) string {
	return models.MeasuredAs(s.info.Hash, s.on(k).place.Share)
}

// givenUp reports whether no worker is expected on any of some devices.
func (s *service) givenUp(devices []*device) bool {
	return !slices.ContainsFunc(devices, func(d *device) bool { r := s.replicas[d.index]; return r != nil && r.state != replicaFailed })
}

// fault returns why the service was given up, nil if that is not known.
func (s *service) fault() error {
	for r := range s.each {
		if r.fault != nil {
			return r.fault
		}
	}
	return nil
}

// show lets requests see how the workers stand: one that serves is enough.
func (s *service) show() {
	all := standing{failed: true}
	for r := range s.each {
		all.add(r.ready(), r.state == replicaFailed, r.retryAt)
	}
	all.show(s.entry)
	if s.family != nil {
		s.family.show()
	}
}

// standing is how several workers stand together.
type standing struct {
	ready   bool  // one at least
	failed  bool  // all
	retryAt int64 // when the first of them is tried again, 0 for none
}

func (a *standing) add(ready, failed bool, retryAt int64) {
	a.ready, a.failed = a.ready || ready, a.failed && failed
	if retryAt > 0 && (a.retryAt == 0 || retryAt < a.retryAt) {
		a.retryAt = retryAt
	}
}

func (a *standing) show(entry *query.Service) {
	entry.RetryAt.Store(a.retryAt)
	entry.GivenUp.Store(a.failed)
	entry.SetReady(a.ready)
}

// giveBack returns what the service was admitted to.
func (s *service) giveBack() {
	for r := range s.each {
		r.place.GiveBack()
	}
}

// lineage is what was counted of the services that had a name one after another. Who
// takes over a name goes on with it, so that no series of metrics goes backward.
type lineage struct {
	past      overlap.ServiceMetrics // of those that are gone
	restarts  uint64                 // times that a worker was started again
	overruns  uint64                 // detached spans
	moves     uint64                 // of batches that arrived on another device
	movesLost uint64

	turnedAway [len(query.TurnedAwayFor)]uint64 // queries, as others were told last
}

// newsLimit is how much progress of a load may wait to be read; what does not fit
// is dropped.
const newsLimit = 64

// Joining is a service on its way to take requests. Ready holds one value in the
// end: nil once the service serves, or why it does not come.
type Joining struct {
	News    chan config.Step
	Ready   chan error
	service *service
	held    bool // it is ready once it has loaded, and serves when Replace says so
}

// end says what has become of the service, in the place of what was said and not heard.
func (j *Joining) end(err error) {
	select {
	case <-j.Ready:
	default:
	}
	j.Ready <- err
}

// serviceState is where a service stands between coming and going.
type serviceState uint8

const (
	stateServing  serviceState = iota // requests find it
	stateJoining                      // it loads its model for the first time
	stateRetiring                     // requests do not find it any more, and those that did are answered
	stateLeaving                      // its worker ends
)

package loop

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/planning/selection"
	"github.com/overlapd/overlapd/segments/wire"
)

// member is a service of the services with its workers. Its position is the ID by which
// scheduler, executors and predictors know it; a position that is free holds nil. A
// member belongs to the scheduler goroutine.
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

	lone probation // of a member that is no variant

	route route
}

// route is how the batches of a service go over devices by its plan.
type route struct {
	waits   bool // next is to be taken once all workers that it needs are ready
	next    []models.Pipeline
	refused error         // why the plan is not followed, nil if it is or there is none
	since   time.Duration // when the pipelines became others, 0 for never
}

// replica is the worker of a service on a device.
type replica struct {
	Place
	ready   bool  // spans can be run
	fresh   bool  // it became ready after the last round of the service was sent
	loaded  bool  // it was ready once
	overrun bool  // a span that measured runs on, and nothing else can
	started bool  // once at least
	givenUp bool  // no worker is expected soon
	fault   error // why, nil if that is not known
	retryAt int64 // when it is tried again, in nanoseconds of Unix time, 0 if by hand only
	lost    int   // workers, while the service joins
	recut   bool  // it was started again to be cut as the others are
	leaves  bool  // it goes as soon as another one serves
}

// newService returns a service with its places on so many devices.
func newService(c *config.Service, places []Place, devices int) *service {
	s := &service{config: *c, replicas: make([]*replica, devices), line: new(lineage)}
	for _, p := range places {
		s.replicas[p.Device] = &replica{Place: p}
	}
	return s
}

// joined reports whether the service is on its way and all of its workers are ready.
func (s *service) joined() bool {
	return s.state == stateJoining && !slices.ContainsFunc(s.replicas, func(r *replica) bool { return r != nil && !r.ready })
}

// flushed reports whether no batch is left that goes by other pipelines than those of now:
// the deadlines of those that there were have passed.
func (s *service) flushed(now time.Duration) bool {
	return !s.route.waits && (s.route.since == 0 || now-s.route.since >= s.config.Target)
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

// measuredOn names devices of a kind in what is measured on them, by members that serve. An
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

// measuredAs names the model of a member in what is measured of it on devices of a kind. The
// member must have been loaded there.
func (s *service) measuredAs(k *kind) string { return models.MeasuredAs(s.info.Hash, s.on(k).Share) }

// givenUp reports whether no worker is expected on any of some devices.
func (s *service) givenUp(devices []*device) bool {
	return !slices.ContainsFunc(devices, func(d *device) bool { r := s.replicas[d.index]; return r != nil && !r.givenUp })
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
	ready, givenUp, retryAt := false, true, int64(0)
	for r := range s.each {
		ready, givenUp = ready || r.ready, givenUp && r.givenUp
		if r.retryAt > 0 && (retryAt == 0 || r.retryAt < retryAt) {
			retryAt = r.retryAt
		}
	}
	s.entry.RetryAt.Store(retryAt)
	s.entry.GivenUp.Store(givenUp)
	s.entry.SetReady(ready)
	if s.family != nil {
		s.family.show()
	}
}

// giveBack returns what the service was admitted to.
func (s *service) giveBack() {
	for r := range s.each {
		r.GiveBack()
	}
}

// lineage is what was counted of the services that had a name one after another. Who
// takes over a name goes on with it, so that no series of metrics goes backward.
type lineage struct {
	past      overlap.ServiceMetrics // of those that are gone
	restarts  uint64                 // times that a worker was started again
	overruns  uint64                 // spans that were set apart
	moves     uint64                 // of batches that arrived on another device
	movesLost uint64

	turnedAway [len(query.TurnedAwayFor)]uint64 // queries, as others were told last
}

// serviceState is where a service stands between coming and going.
type serviceState uint8

const (
	stateServing  serviceState = iota // requests find it
	stateJoining                      // it loads its model for the first time
	stateRetiring                     // requests do not find it any more, and those that did are answered
	stateLeaving                      // its worker ends
)

// family is a service with variants. To clients it is one service, its front; to the services
// each variant is a member of its own.
type family struct {
	front    *query.Service
	inputs   *wire.InputArena
	users    int        // members that have the inputs
	variants []*service // that serve or, if none does, that did last, in the order of their IDs

	probation probation

	live    selection.Live
	file    string // of policies, "" to have them calculated
	refused error  // why there are none
	solving bool
	solved  time.Duration // when it last began, 0 for never with these variants and this file
}

// serves reports whether requests find the family.
func (f *family) serves() bool {
	return slices.ContainsFunc(f.variants, func(m *service) bool { return m.state == stateServing })
}

// gather updates the variants and the front of a family. Once no variant serves, those that
// did last still answer the requests that hold the front.
func (f *family) gather(served []*service) {
	var now []*service
	for _, m := range served {
		if m.family == f {
			now = append(now, m)
		}
	}
	if len(now) == 0 {
		return
	}
	before := f.variants
	f.variants = now
	if file := f.variants[0].config.Selection; file != "" || file != f.file || !slices.Equal(before, f.variants) {
		f.file, f.solved = file, 0 // a reload may have found the file rewritten
	}
	f.front.Retired.Store(false)
	first := f.variants[0].entry
	next := f.front.Successor()
	next.ID, next.QoSTarget, next.QueueLimit, next.MaxBatch = first.ID, first.QoSTarget, first.QueueLimit, first.MaxBatch
	next.MaxQueryBatch, next.MaxSeqLen = math.MaxInt, 0
	for _, m := range f.variants {
		s := m.entry
		next.MaxQueryBatch = min(next.MaxQueryBatch, s.MaxQueryBatch)
		if s.MaxSeqLen > 0 && (next.MaxSeqLen == 0 || s.MaxSeqLen < next.MaxSeqLen) {
			next.MaxSeqLen = s.MaxSeqLen
		}
		_, v := m.config.Of()
		next.Variants = append(next.Variants, query.Variant{Name: m.variant, Accuracy: v.Accuracy, Service: s})
	}
	if sig := f.front.Signature(); sig != nil {
		_ = next.Loaded(sig.Info) // as it was before
	}
	f.front = next
	f.show()
}

// show lets requests see how the workers of all variants stand.
func (f *family) show() {
	ready, givenUp, retryAt := false, true, int64(0)
	for _, m := range f.variants {
		s := m.entry
		ready, givenUp = ready || s.Ready(), givenUp && s.GivenUp.Load()
		if at := s.RetryAt.Load(); at > 0 && (retryAt == 0 || at < retryAt) {
			retryAt = at
		}
	}
	f.front.RetryAt.Store(retryAt)
	f.front.GivenUp.Store(givenUp)
	f.front.SetReady(ready)
}

// loaded takes in what the model of a variant looks like, which must be what the others do.
func (f *family) loaded(m *service, info query.Info) error {
	sig := f.front.Signature()
	if sig == nil {
		return f.front.Loaded(info)
	}
	if err := sig.Differs(m.entry.Signature()); err != nil {
		return fmt.Errorf("it cannot answer for %s: %w", f.front.Name, err)
	}
	return nil
}

// asked returns the service whose requests count for a member: those of a family count for
// its first.
func (s *service) asked() *query.Service {
	if s.family != nil && len(s.family.variants) > 0 && s.family.variants[0] == s {
		return s.family.front
	}
	return s.entry
}

// selects says in words what the variant that answers is chosen by, "" for a member that is
// not the first of a family.
func (s *service) selects() string {
	if s.family == nil || s.asked() == s.entry {
		return ""
	}
	l := &s.family.live
	switch p := l.Policy(); {
	case p != nil:
		return fmt.Sprintf("by a policy for %s queries/s, with an expected accuracy of %.3g and %.2g %% late or dropped", stats.Digits(4, p.Rate), p.Accuracy, 100*p.Violations)
	case s.family.refused != nil:
		return "by speed, the fastest answers: " + s.family.refused.Error()
	}
	return "by speed: the fastest answers until all latencies are known"
}

// inUse reports whether a request holds the service, or may still arrive for it as a variant.
func (s *service) inUse() bool {
	return s.entry.Users() != 0 || s.family != nil && !s.family.serves() && s.family.front.Users() != 0
}

package baselines

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// policy is a rule by which offers start. It keeps no state.
type policy interface {
	// opens returns from when on an offer may start that can grow.
	opens(s *scheduler, o *offer) time.Duration

	// before orders offers that may start and are equal in best effort and priority.
	before(a, b *offer) bool

	// target returns the batch size for which a service drops its most urgent queries. With
	// 0 it drops none that could be in time.
	target(s *scheduler, o *offer) int

	// resumes reports whether a paused batch resumes before an offer starts.
	resumes(b *batch, o *offer) bool

	// preempts returns how many times as large as a running batch an offer must be to stop
	// it, 0 to stop none, and whether a stopped batch starts from scratch.
	preempts() (times float64, restarts bool)
}

// named is a policy with its name.
type named struct {
	Name    string
	Summary string // one sentence
	policy  policy
}

var policies = []named{
	{"eager", "The batch that must start first, one at a time, as soon as a device is free.", eager{}},
	{"deferred", "Symphony: a batch is held back while it could grow, one at a time.", deferred{}},
	{"timeout:0.25", "A batch is held back until a share of the target of its first query has passed, here a quarter.", timeout{share: 0.25}},
	{"nexus", "As eager, but the first queries are dropped for the largest batch; for a plan's devices.", nexus{}},
	{"largest", "Shepherd without preemption: the largest batch first, one at a time.", flex{}},
	{"flex", "Shepherd: the largest batch first, which stops one a third as large; that starts from scratch.", flex{threshold: flexThreshold}},
	{"flex-resume", "As flex, but a stopped batch resumes.", flex{threshold: flexThreshold, resume: true}},
}

// Policies lists the policies of this package.
func Policies() []named { return slices.Clone(policies) }

// policyNamed returns the policy with a name, nil if this package has none.
func policyNamed(name string) policy {
	if share, found := strings.CutPrefix(name, "timeout:"); found {
		if f, err := strconv.ParseFloat(share, 64); err == nil && f >= 0 && f <= 1 {
			return timeout{share: f}
		}
		return nil
	}
	if i := slices.IndexFunc(policies, func(p named) bool { return p.Name == name }); i >= 0 {
		return policies[i].policy
	}
	return nil
}

// eager starts a batch as soon as a device is free: of the offers the one that must
// start first. Symphony compares itself with it (section 3.4).
type eager struct{}

func (eager) opens(s *scheduler, _ *offer) time.Duration { return s.now }

func (eager) before(a, b *offer) bool { return a.latest < b.latest }

func (eager) target(*scheduler, *offer) int { return 0 }

func (eager) resumes(*batch, *offer) bool { return true }

func (eager) preempts() (times float64, restarts bool) { return 0, false }

// deferred holds a batch back until it would be late with one more query (Symphony,
// algorithm 1), so that it grows and the devices take turns. It keeps twice the margin: of
// the batches that start as late as the bound allows, one in a hundred is late. Where
// services are more than devices they wait for each other, and a device is not always free
// when a batch must start. The batch may then start earlier by the time that it takes.
type deferred struct{ eager }

func (deferred) opens(s *scheduler, o *offer) time.Duration {
	e := s.estimate(o, o.size+o.members[0].Size)
	opens := o.due - e.Bound - (e.Bound - e.Latency)
	if len(s.services) > len(s.devices) {
		opens -= e.Bound
	}
	return opens
}

// target returns the batch size at which devices that take turns keep to the target of a
// service (Symphony, equation 1). Each service counts with as many devices as it has when
// all share them equally. With all devices for each of many services, queries would be
// dropped for batches with which the devices cannot take turns.
func (deferred) target(s *scheduler, o *offer) int {
	devices := max(time.Duration(len(s.devices)/len(s.services)), 1)
	low, high := 0, o.service.MaxBatch
	for low < high {
		mid := (low + high + 1) / 2
		if took := s.estimate(o, mid).Bound; took+took/devices <= o.service.QoSTarget {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// nexus starts a batch as soon as its device is free, and drops the first queries for the
// largest batch (Nexus, SOSP 2019, section 4.3: early drop). It is for devices whose
// services have the largest batches of a plan, see [sim.Split].
type nexus struct{ eager }

func (nexus) target(_ *scheduler, o *offer) int { return o.service.MaxBatch }

// timeout holds a batch back until a share of the target of its first query has passed
// (Symphony, section 3.4), as many servers do.
type timeout struct {
	eager
	share float64
}

func (p timeout) opens(_ *scheduler, o *offer) time.Duration {
	return o.members[0].Arrival + time.Duration(p.share*float64(o.service.QoSTarget))
}

// flex starts the largest batch (Shepherd, algorithm 1). If threshold is not 0, a batch
// that is at least threshold times as large as a running one stops it at its next
// operator. The stopped batch starts from scratch, or resumes if resume is set.
type flex struct {
	eager
	threshold float64
	resume    bool
}

// flexThreshold is the one for which Shepherd proves its competitive ratio (theorem 5.2).
const flexThreshold = 3.03

func (flex) before(a, b *offer) bool { return a.size > b.size }

func (flex) resumes(b *batch, o *offer) bool { return b.size >= o.size }

func (p flex) preempts() (times float64, restarts bool) { return p.threshold, !p.resume }

package overlap

import "time"

// eager starts a batch as soon as a device is free: of the offers the one that must
// start first. It is what Symphony compares itself with (section 3.4).
type eager struct{ edf }

func (eager) opens(m *matching, _ *offer) time.Duration { return m.now }

func (eager) before(a, b *offer) bool { return a.latest < b.latest }

func (eager) target(*matching, *offer) int { return 0 }

func (eager) resumes(*batch, *offer) bool { return true }

func (eager) preempts() (times float64, anew bool) { return 0, false }

func (eager) choose(*decision) {} // it is asked for offers

// deferred holds a batch back until one that were larger by a query would be late
// (Symphony, algorithm 1), so that it grows and the devices take turns. It keeps twice
// the margin: of those that start as late as the bound allows one in a hundred is late.
// Where services are more than devices they wait for each other, and a device is not
// free just when a batch must start: it may then start earlier by the time that it takes.
// The first of its queries are given up for the sake of a batch as large as those of
// devices that take perfect turns.
type deferred struct{ eager }

func (deferred) opens(m *matching, o *offer) time.Duration {
	e := m.estimate(o, o.size+o.members[0].Size)
	opens := o.due - e.Bound - (e.Bound - e.Latency)
	if len(m.services) > len(m.devices) {
		opens -= e.Bound
	}
	return opens
}

// target is the size of batch at which devices that take turns keep to the target of a
// service (Symphony, equation 1): as many devices as each service has where all share
// them equally. With all of them for each, where services are many, queries are given up
// for the sake of batches that the devices cannot take turns with.
func (deferred) target(m *matching, o *offer) int {
	devices := max(time.Duration(len(m.devices)/len(m.services)), 1)
	low, high := 0, o.service.MaxBatch
	for low < high {
		mid := (low + high + 1) / 2
		if took := m.takes(o, mid); took+took/devices <= o.service.QoSTarget {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// nexus starts a batch as soon as its device is free, and gives up the first of its
// queries for the sake of the largest batch (Nexus, SOSP 2019, section 4.3: early drop).
// It is for devices whose services have the largest batches of a plan, see sim.Split.
type nexus struct{ eager }

func (nexus) target(_ *matching, o *offer) int { return o.service.MaxBatch }

// timeout holds a batch back until a share of the target of its first query has passed
// (Symphony, section 3.4), as many servers do.
type timeout struct {
	eager
	share float64
}

func (p timeout) opens(_ *matching, o *offer) time.Duration {
	return o.members[0].Arrival + time.Duration(p.share*float64(o.service.QoSTarget))
}

// flex starts the largest batch (Shepherd, algorithm 1). One that is at least threshold
// times as large as one that runs has that stopped at its next operator, unless
// threshold is 0. What was stopped starts anew, or goes on from there if resume is set.
type flex struct {
	eager
	threshold float64
	resume    bool
}

// flexThreshold is the one for which Shepherd proves its competitive ratio (theorem 5.2).
const flexThreshold = 3.03

func (flex) before(a, b *offer) bool { return a.size > b.size }

func (flex) resumes(b *batch, o *offer) bool { return b.Size >= o.size }

func (p flex) preempts() (times float64, anew bool) { return p.threshold, !p.resume }

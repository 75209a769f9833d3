package timeline

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// lane holds what is remembered under one service name: of the current service and of
// earlier ones with that name. Rounds refer to a lane by its index, so a lane stays as long
// as a round refers to it.
type lane struct {
	name string

	// target is that of the latest service with the name.
	target time.Duration

	// services is the number of current services with the name. During a replacement there
	// may be two.
	services int

	// last is the last round that refers to the lane, 0 for none.
	last      uint64
	latencies latencies
	past      steps[served]

	bestEffort bool

	// load is never nil. It is a pointer because lanes are copied to readers, which do not
	// need it.
	load *steps[demand]

	// took is the device time since the service was added.
	took time.Duration
}

// lanes holds all lanes and the lane of each service.
type lanes struct {
	list []lane

	// of is indexed by service ID.
	of []place
}

// place is the lane of a service. here is false once the service was dropped.
type place struct {
	lane int
	here bool
}

// set assigns a service to the lane of its name. Rounds before oldest are no longer kept.
// fresh clears the lane.
func (l *lanes) set(m models.Service, fresh bool, oldest uint64) {
	l.leave(m.ID)
	for int(m.ID) >= len(l.of) {
		l.of = append(l.of, place{lane: -1})
	}
	i := l.named(m.Name, oldest)
	to := &l.list[i]
	if fresh {
		to.latencies, to.past, to.load, to.took = latencies{}, steps[served]{}, new(steps[demand]), 0
	}
	to.services++
	to.target, to.bestEffort = m.QoSTarget, m.BestEffort
	l.of[m.ID] = place{i, true}
}

// leave removes a service from its lane.
func (l *lanes) leave(id models.ServiceID) {
	if id < 0 || int(id) >= len(l.of) || !l.of[id].here {
		return
	}
	l.of[id].here = false
	l.list[l.of[id].lane].services--
}

// named returns the lane of a name. A new lane takes the place of one that is not needed,
// if there is one, so that the list does not grow with every reload.
func (l *lanes) named(name string, oldest uint64) int {
	free := len(l.list)
	for i := range l.list {
		if l.list[i].name == name {
			return i
		}
		if free == len(l.list) && l.forgotten(i, oldest) {
			free = i
		}
	}
	if free == len(l.list) {
		l.list = append(l.list, lane{})
	}
	l.list[free] = lane{name: name, load: new(steps[demand])}
	return free
}

// forgotten reports whether a lane has neither a service nor a round.
func (l *lanes) forgotten(i int, oldest uint64) bool {
	at := &l.list[i]
	return at.services == 0 && at.last < oldest
}

// laneOf returns the lane of a service, or nil if the service is unknown.
func (l *lanes) laneOf(id models.ServiceID) *lane {
	if id < 0 || int(id) >= len(l.of) || l.of[id].lane < 0 {
		return nil
	}
	return &l.list[l.of[id].lane]
}

// Service is the outcome of the last queries of a service. Its index on a page is stable
// while there are rounds of it, even after it was removed or replaced by another service of
// the same name.
type Service struct {
	Name   string        `json:"name"`
	Target time.Duration `json:"target_ns"`

	// Gone is set if the service was removed.
	Gone bool `json:"gone,omitempty"`
	recent
}

// tell returns the lane as readers see it.
func (l *lane) tell() Service {
	if l.services == 0 {
		return Service{Name: l.name, Gone: true}
	}
	return Service{Name: l.name, Target: l.target, recent: l.latencies.recent()}
}

// position returns the lane of a service in a round and notes that the round refers to it.
// A service that was never set is a defect, but its rounds are kept anyway.
func (l *lanes) position(id int, services []models.Service, round, oldest uint64) int {
	if l.laneOf(models.ServiceID(id)) == nil {
		l.set(services[id], false, oldest)
	}
	i := l.of[id].lane
	l.list[i].last = round
	return i
}

// demands counts the outcome of a query for the load, if it counts as good or bad.
func (l *lane) demands(a *overlap.Answer, took, allowed time.Duration) {
	switch {
	case a.Result == overlap.Finished:
		l.load.at(a.At).count(1-float64(took)/float64(max(allowed, 1)), took > allowed, 1)
	case a.Result == overlap.Dropped && overloaded(a.Reason):
		l.load.at(a.At).count(0, true, 1)
	}
}

// demanded returns the sum of a service's demand from a step on.
func (l *lane) demanded(first int64) (sum demand) {
	l.load.each(first, loadSteps, func(_ int, d *demand) {
		sum.took, sum.saved, sum.total, sum.bad = sum.took+d.took, sum.saved+d.saved, sum.total+d.total, sum.bad+d.bad
		for i, n := range d.left {
			sum.left[i] += n
		}
	})
	return sum
}

// window is the number of last queries of a service that statistics cover.
const window = 256

// recent has statistics of the last queries of a service. Latencies are from arrival to
// answer.
type recent struct {
	// Ended is the number of queries in the window, Missed the number of those that were
	// late or had no outputs.
	Ended  int           `json:"recent"`
	Missed int           `json:"recent_missed"`
	P50    time.Duration `json:"p50_ns"`
	P99    time.Duration `json:"p99_ns"`
	Max    time.Duration `json:"max_ns"`
}

// latencies holds the last queries of a service. It has arrays, so that an assignment
// copies it: a reader evaluates the copy while queries are added.
type latencies struct {
	took   [window]time.Duration
	missed [window]bool
	added  uint64
}

// add records a query.
func (l *latencies) add(took time.Duration, inTime bool) {
	at := l.added % window
	l.took[at], l.missed[at] = took, !inTime
	l.added++
}

// recent evaluates the window. It sorts the latencies, so it must be called on a copy.
func (l *latencies) recent() (r recent) {
	r.Ended = int(min(l.added, window))
	if r.Ended == 0 {
		return r
	}
	for _, missed := range l.missed[:r.Ended] {
		if missed {
			r.Missed++
		}
	}
	took := l.took[:r.Ended]
	slices.Sort(took)
	r.P50, r.P99, r.Max = stats.Quantile(took, 0.5), stats.Quantile(took, 0.99), took[r.Ended-1]
	return r
}

package timeline

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/stats"
)

// lane is what is remembered under one name: of the service that has it, and of
// those that had it before or have it meanwhile. Its position is what rounds
// name, so it stays as long as one of them does.
type lane struct {
	name      string
	target    time.Duration // the latest service's
	services  int           // how many have the name now
	last      uint64        // round that tells of it, 0 for none
	latencies latencies
	past      steps[served]

	bestEffort bool
	load       *steps[demand] // never nil
	took       time.Duration  // of devices, since the service was first there
}

// lanes are all lanes, and where each service belongs.
type lanes struct {
	list []lane
	of   []place // by the ID of the service
}

// place is where a service belongs.
type place struct {
	lane int
	here bool // it was not dropped
}

// set takes in a service. Rounds before oldest are remembered no more.
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

// leave takes a service off its name.
func (l *lanes) leave(id models.ServiceID) {
	if id < 0 || int(id) >= len(l.of) || !l.of[id].here {
		return
	}
	l.of[id].here = false
	l.list[l.of[id].lane].services--
}

// named returns the lane of a name, or a new one: in the place of one that
// no service has and no round tells of, if there is one.
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

// forgotten reports whether nothing needs a lane any more.
func (l *lanes) forgotten(i int, oldest uint64) bool {
	at := &l.list[i]
	return at.services == 0 && at.last < oldest
}

// laneOf returns the lane of a service, nil if it was never there.
func (l *lanes) laneOf(id models.ServiceID) *lane {
	if id < 0 || int(id) >= len(l.of) || l.of[id].lane < 0 {
		return nil
	}
	return &l.list[l.of[id].lane]
}

// Service is what became of the last queries of a service. Its position on a
// page stays as long as there are rounds of it, also when it is gone or another
// one with its name takes its place.
type Service struct {
	Name   string        `json:"name"`
	Target time.Duration `json:"target_ns"`
	Gone   bool          `json:"gone,omitempty"` // it was removed
	recent
}

func (l *lane) tell() Service {
	if l.services == 0 {
		return Service{Name: l.name, Gone: true}
	}
	return Service{Name: l.name, Target: l.target, recent: l.latencies.recent()}
}

// position returns that of a service in a round, which is one that was never set only
// by a mistake: it is remembered all the same.
func (l *lanes) position(id int, services []models.Service, round, oldest uint64) int {
	if l.laneOf(models.ServiceID(id)) == nil {
		l.set(services[id], false, oldest)
	}
	i := l.of[id].lane
	l.list[i].last = round
	return i
}

// demands counts a query that is over, unless it is neither good nor bad.
func (l *lane) demands(a *overlap.Answer, took, allowed time.Duration) {
	switch {
	case a.Result == overlap.Finished:
		l.load.at(a.At).count(1-float64(took)/float64(max(allowed, 1)), took > allowed, 1)
	case a.Result == overlap.Dropped && overloaded(a.Reason):
		l.load.at(a.At).count(0, true, 1)
	}
}

// demanded sums up what a service demanded from a step on.
func (l *lane) demanded(first int64) (sum demand) {
	l.load.each(first, loadSteps, func(_ int, d *demand) {
		sum.took, sum.saved, sum.total, sum.bad = sum.took+d.took, sum.saved+d.saved, sum.total+d.total, sum.bad+d.bad
		for i, n := range d.left {
			sum.left[i] += n
		}
	})
	return sum
}

// window is how many of the last queries of a service are looked at.
const window = 256

// recent is what became of the last queries of a service.
type recent struct {
	Ended  int           `json:"recent"`        // at most the length of the window
	Missed int           `json:"recent_missed"` // those late or without outputs
	P50    time.Duration `json:"p50_ns"`        // from arrival to answer, as the following
	P99    time.Duration `json:"p99_ns"`
	Max    time.Duration `json:"max_ns"`
}

// latencies holds the last queries of a service. It is a value: a copy is
// looked at while others are added.
type latencies struct {
	took   [window]time.Duration
	missed [window]bool
	added  uint64
}

func (l *latencies) add(took time.Duration, inTime bool) {
	at := l.added % window
	l.took[at], l.missed[at] = took, !inTime
	l.added++
}

// recent sums the window up, and sorts it.
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

package timeline

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/stats"
)

// lane is what is remembered under one name: of the service that has it, and of
// those that had it before or have it meanwhile. Its position is what rounds
// name, so it stays as long as one of them does.
type lane struct {
	name      string
	target    time.Duration // of the latest
	services  int           // that have the name now
	last      uint64        // round that tells of it, 0 for none
	latencies latencies
}

// place is where a service belongs.
type place struct {
	lane int
	here bool // it was not dropped
}

// setService takes in a service that is new, or has another target or another
// name than before. Rounds that were remembered keep the name that they ran
// with. The last queries that were answered under its name stay, unless it
// begins afresh. Its ID is at most how many IDs there were.
func (r *Ring) setService(m models.Service, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(m, fresh)
}

// dropService forgets a service. What it still runs and answers is told under
// its name until a page tells of none of its rounds any more.
func (r *Ring) dropService(id models.ServiceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave(id)
}

// Services returns what became of the last queries of each service, of two with
// one name together. Those that were dropped are left out.
func (r *Ring) Services() []Service {
	return slices.DeleteFunc(r.tell(0), func(s Service) bool { return s.Gone })
}

func (r *Ring) set(m models.Service, fresh bool) {
	r.leave(m.ID)
	for int(m.ID) >= len(r.mu.of) {
		r.mu.of = append(r.mu.of, place{lane: -1})
	}
	i := r.laneNamed(m.Name)
	l := &r.mu.lanes[i]
	if fresh {
		l.latencies = latencies{}
	}
	l.services++
	l.target = m.QoSTarget
	r.mu.of[m.ID] = place{i, true}
}

// leave takes a service off its name.
func (r *Ring) leave(id models.ServiceID) {
	if id < 0 || int(id) >= len(r.mu.of) || !r.mu.of[id].here {
		return
	}
	r.mu.of[id].here = false
	r.mu.lanes[r.mu.of[id].lane].services--
}

// laneNamed returns the lane of a name, or a new one: in the place of one that
// no service has and no round tells of, if there is one.
func (r *Ring) laneNamed(name string) int {
	free := len(r.mu.lanes)
	for i := range r.mu.lanes {
		if r.mu.lanes[i].name == name {
			return i
		}
		if free == len(r.mu.lanes) && r.forgotten(i) {
			free = i
		}
	}
	if free == len(r.mu.lanes) {
		r.mu.lanes = append(r.mu.lanes, lane{})
	}
	r.mu.lanes[free] = lane{name: name}
	return free
}

// forgotten reports whether nothing needs a lane any more.
func (r *Ring) forgotten(i int) bool {
	l := &r.mu.lanes[i]
	return l.services == 0 && l.last < r.oldestLocked()
}

// laneOf returns the lane of a service, nil if it was never there.
func (r *Ring) laneOf(id models.ServiceID) *lane {
	if id < 0 || int(id) >= len(r.mu.of) || r.mu.of[id].lane < 0 {
		return nil
	}
	return &r.mu.lanes[r.mu.of[id].lane]
}

// name gives a round that has begun the positions of its services in the place
// of their IDs.
func (r *Ring) name(at *Round, services []models.Service) {
	for i := range at.Spans {
		at.Spans[i].Service = r.position(at, at.Spans[i].Service, services)
	}
	for i := range at.Candidates {
		at.Candidates[i].Service = r.position(at, at.Candidates[i].Service, services)
	}
	for i := range at.Dropped {
		at.Dropped[i].Service = r.position(at, at.Dropped[i].Service, services)
	}
}

// position returns that of a service in a round, which is one that was never
// set only by a mistake: it is told all the same.
func (r *Ring) position(at *Round, id int, services []models.Service) int {
	if r.laneOf(models.ServiceID(id)) == nil {
		r.set(services[id], false)
	}
	i := r.mu.of[id].lane
	r.mu.lanes[i].last = at.Number
	return i
}

// tell returns what became of the last queries, each at its position: at least so
// many, and up to the last that is needed.
func (r *Ring) tell(least int) []Service {
	r.mu.Lock()
	n := len(r.mu.lanes)
	for n > least && r.forgotten(n-1) {
		n--
	}
	r.mu.Unlock()
	all := make([]Service, 0, n)
	var at lane
	for i := range n {
		r.mu.Lock()
		at = r.mu.lanes[i]
		r.mu.Unlock()
		all = append(all, at.tell())
	}
	return all
}

// positions returns how many services the rounds of a page need at least.
func (p *Page) positions() (n int) {
	for i := range p.Rounds {
		n = max(n, p.Rounds[i].positions())
	}
	if p.Running != nil {
		n = max(n, p.Running.positions())
	}
	return n
}

func (r *Round) positions() (n int) {
	for i := range r.Spans {
		n = max(n, r.Spans[i].Service+1)
	}
	for i := range r.Candidates {
		n = max(n, r.Candidates[i].Service+1)
	}
	for i := range r.Dropped {
		n = max(n, r.Dropped[i].Service+1)
	}
	return n
}

func (l *lane) tell() Service {
	if l.services == 0 {
		return Service{Name: l.name, Gone: true}
	}
	return Service{Name: l.name, Target: l.target, recent: l.latencies.recent()}
}

// window is how many of the last queries of a service are looked at.
const window = 256

// recent is what became of the last queries of a service.
type recent struct {
	Ended  int           `json:"recent"`        // at most the length of the window
	Missed int           `json:"recent_missed"` // of them, late or without outputs
	P50    time.Duration `json:"p50_ns"`        // of all of them, from arrival to answer
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

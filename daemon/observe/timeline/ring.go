// Package timeline keeps the last rounds and queries of a daemon, and why the rounds were
// chosen. A [Ring] listens to the events of the scheduler goroutine and is read by the
// endpoint. Clients receive a [Page], a [QueryPage] or a [History]; the commands top and
// trace decode them.
//
// Everything is kept by the name of a service, whatever its ID is: see [Ring.Observe].
//
// Recording a round takes well under a microsecond and does not allocate once the ring has
// filled, because it copies into memory that is reused.
package timeline

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

const (
	// Rounds is the number of rounds that are kept.
	Rounds = 2048

	// PageRounds is the maximum number of rounds on a page.
	PageRounds = 256

	// copied is how many rounds are copied under the lock at a time, so that the scheduler
	// goroutine waits for microseconds at most.
	copied = 16
)

// Ring holds the last rounds and queries. Rounds are in the order in which they ended; on
// one device that is the order of their numbers. Observe must be called by one goroutine.
// All other methods may be called from any.
type Ring struct {
	epoch time.Time

	// load is the load that was published last.
	load atomic.Pointer[status.Load]

	// due is when the next load is published. Only Observe uses it, without the lock.
	due time.Duration

	mu struct {
		sync.Mutex

		// slots is a ring. The n-th round that has ended is at n % Rounds.
		slots []Round

		// ended is the number of rounds that have ended.
		ended uint64

		// running has the current rounds of each device by their slots. The number of one that
		// has ended is 0.
		running [][]Round
		lanes   lanes

		queries queries
		history history
		load    load
		moves   moves
	}
}

// moves is a ring of the last moves of batches between devices. Each entry has the device
// that the batch left.
type moves struct {
	last [256]struct {
		batch models.BatchID
		from  int
	}
	count uint64
}

// add records a move.
func (m *moves) add(batch models.BatchID, from int) {
	at := &m.last[m.count%uint64(len(m.last))]
	at.batch, at.from = batch, from
	m.count++
}

// way returns the devices that a batch has left, followed by the last one, or nil if the
// batch has not moved.
func (m *moves) way(batch models.BatchID, last int, names []string) (way []string) {
	size := uint64(len(m.last))
	for n := m.count - min(m.count, size); n < m.count; n++ {
		if at := &m.last[n%size]; at.batch == batch {
			way = append(way, names[at.from])
		}
	}
	if way != nil {
		way = append(way, names[last])
	}
	return way
}

// New returns an empty ring for these services and devices. Without names there is one
// device. Times are relative to epoch.
func New(epoch time.Time, services []models.Service, devices ...string) *Ring {
	if len(devices) == 0 {
		devices = []string{""}
	}
	r := &Ring{epoch: epoch}
	r.mu.load.names, r.mu.load.devices = devices, make([]steps[busy], len(devices))
	r.mu.slots, r.mu.running = make([]Round, Rounds), make([][]Round, len(devices))
	for _, m := range services {
		r.mu.lanes.set(m, false, 1)
	}
	r.publishLocked(0)
	return r
}

// Observe implements [observe.Listener]. What a dropped service still runs and answers
// counts for its name as long as a round of it is kept. Rounds keep the name under which
// they ran. The last queries of a name are kept when another service takes it over, unless
// that is Fresh.
func (r *Ring) Observe(e *observe.Event) {
	switch e.Kind {
	// These events are frequent and record nothing, so they do not take the lock.
	case observe.Woke, observe.Published, observe.Accepted:
		return
	case observe.Rested:
		if e.At < r.due {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case observe.Dispatched:
		on := &r.mu.running[e.Round.Device]
		if missing := e.Round.Slot + 1 - len(*on); missing > 0 {
			*on = append(*on, make([]Round, missing)...)
		}
		at := &(*on)[e.Round.Slot]
		at.begin(e.Round, e.Why, e.Services)
		at.Device = r.mu.load.names[e.Round.Device]
		oldest := r.oldestLocked()
		for service := range at.services {
			*service = r.mu.lanes.position(*service, e.Services, r.mu.ended+1, oldest)
		}
	case observe.Rested:
		r.publishLocked(e.At)
	case observe.Ended:
		r.finishLocked(e)
	case observe.Refused:
		q := r.queryOf(e.Call, e.At)
		reason := overlap.ReasonOf(e.Err)
		q.Result, q.Reason = resultRefused, reasonOf(reason)
		r.mu.history.at(e.At).lost[reason]++
		if l := r.mu.lanes.laneOf(e.Call.Service.ID); l != nil {
			l.past.at(e.At).lost++
			if overloaded(reason) {
				l.load.at(e.At).count(0, true, 1)
			}
		}
		r.addLocked(e.Call.Service.ID, q)
	case observe.TurnedAway:
		r.turnedAwayLocked(e)
	case observe.Answered:
		if e.Call != nil {
			r.answerLocked(e.Call, e.Answer)
		}
	case observe.Moved:
		if e.Arrived {
			r.mu.moves.add(e.Move.Batch, e.Move.Device)
		}
	case observe.Set:
		r.mu.lanes.set(*e.Service, e.Fresh, r.oldestLocked())
	case observe.Dropped:
		r.mu.lanes.leave(e.Service.ID)
	}
}

// finishLocked records the outcome of a device's round, with the times by the device's own
// clock.
func (r *Ring) finishLocked(e *observe.Event) {
	r.mu.history.ended(e)
	r.spendLocked(e)
	on := r.mu.running[e.Outcome.Device]
	slot := slices.IndexFunc(on, func(at Round) bool { return at.Number > 0 && at.Number == e.Outcome.Round })
	if slot < 0 {
		return
	}
	at := &on[slot]
	at.finish(e.At, e.Outcome)
	if e.Measured != nil {
		at.Late = e.Measured.Late
		for i := range e.Measured.Spans {
			s := &e.Measured.Spans[i]
			if to := at.span(s.Span.Batch); to != nil {
				to.Device = s.DeviceTook
			}
		}
	}
	r.mu.ended++
	for service := range at.services {
		r.mu.lanes.list[*service].last = r.mu.ended
	}
	kept := &r.mu.slots[r.mu.ended%Rounds]
	// Swapping reuses the memory of the round that is no longer kept.
	*kept, *at = *at, *kept
	at.Number = 0
}

// spendLocked divides the time of a round, and the time it has saved by overlapping, among
// the services of its spans. A span without a time in the engine, such as one that overran,
// counts as if it had run for the whole round.
func (r *Ring) spendLocked(e *observe.Event) {
	o := e.Outcome
	took := cmp.Or(e.Part, o.Took)
	b := r.mu.load.devices[o.Device].at(e.At)
	b.took, b.rounds = b.took+took, b.rounds+1
	in := func(s *models.SpanOutcome) time.Duration {
		if s.Took > 0 {
			return s.Took
		}
		return max(o.Took, 1)
	}
	var sum time.Duration
	for i := range o.Spans {
		sum += in(&o.Spans[i])
	}
	for i := range o.Spans {
		s := &o.Spans[i]
		if l := r.mu.lanes.laneOf(s.Span.Service); l != nil {
			share := float64(in(s)) / float64(sum)
			part := time.Duration(float64(took) * share)
			to := l.load.at(e.At)
			to.took, to.saved = to.took+part, to.saved+time.Duration(float64(e.Gain.Overlap)*share)
			l.took += part
		}
	}
}

// answerLocked records how a query ended. A cancelled query has no latency.
func (r *Ring) answerLocked(c *query.Call, a *overlap.Answer) {
	took, allowed := a.At-c.Arrival.Sub(r.epoch), c.Deadline().Sub(c.Arrival)
	inTime := a.Result == overlap.Finished && took <= allowed
	r.mu.history.answered(a, inTime)
	if l := r.mu.lanes.laneOf(a.Service); l != nil && a.Result != overlap.Cancelled {
		l.latencies.add(took, inTime)
		l.past.at(a.At).answered(a, took, inTime)
		l.demands(a, took, allowed)
	}
	q := r.queryOf(c, a.At)
	q.Batch, q.Result, q.Reason = uint64(a.Batch), a.Result.String(), reasonOf(a.Reason)
	if a.Batch != 0 {
		q.Started, q.Devices = a.Started, r.mu.moves.way(a.Batch, a.Device, r.mu.load.names)
	}
	r.addLocked(a.Service, q)
}

// turnedAwayLocked counts queries of a service that did not reach the scheduler.
func (r *Ring) turnedAwayLocked(e *observe.Event) {
	p, l := r.mu.history.at(e.At), r.mu.lanes.laneOf(e.Service.ID)
	for i, n := range e.Turned {
		p.turnedAway[i] += n
		if l != nil {
			l.past.at(e.At).lost += n
		}
	}
	if l != nil {
		l.load.at(e.At).turnedAway(e.Turned)
	}
}

// addLocked records an ended query under the name of its service.
func (r *Ring) addLocked(service models.ServiceID, q Query) {
	if l := r.mu.lanes.laneOf(service); l != nil {
		q.Service = l.name
	}
	r.mu.queries.add(q)
}

// resultRefused is the result of a query that the scheduler did not accept.
const resultRefused = "refused"

// queryOf returns the record of a call that ends at the given time.
func (r *Ring) queryOf(c *query.Call, end time.Duration) Query {
	return Query{
		ID: uint64(c.QueryID), Size: c.Size, Arrival: c.Arrival.Sub(r.epoch), End: end, Deadline: c.Deadline().Sub(r.epoch),
	}
}

// reasonOf returns the name of a reason, "" for none.
func reasonOf(r overlap.Reason) string {
	if r == overlap.ReasonNone {
		return ""
	}
	return r.String()
}

// Latest as the "since" of Read asks for the last rounds.
const Latest = ^uint64(0)

// Page is a page of the timeline.
type Page struct {
	// Epoch is when the daemon started. Now is the time since then.
	Epoch time.Time     `json:"epoch"`
	Now   time.Duration `json:"now_ns"`

	// Services includes removed services as long as there are rounds of them.
	Services []Service `json:"services"`

	// Rounds have ended, in order. Running has not ended yet; Beside are those of other
	// devices at the same time.
	Rounds  []Round `json:"rounds"`
	Running *Round  `json:"running,omitempty"`
	Beside  []Round `json:"beside,omitempty"`

	// Next is the "since" of the next request: the number of rounds that had ended.
	Next uint64 `json:"next"`

	// Missed is the number of rounds that belong before these but are no longer kept.
	Missed uint64 `json:"missed"`

	// More is set if there are rounds after these.
	More bool `json:"more"`
}

// Read returns the rounds that ended after the first since ones, oldest first, at most
// limit; or the latest ones if since is Latest. p is a page to reuse, or nil.
func (r *Ring) Read(since uint64, limit int, p *Page) *Page {
	if p == nil {
		p = new(Page)
	}
	limit = max(0, min(limit, PageRounds))
	p.Epoch, p.Now, p.Next = r.epoch, time.Since(r.epoch), since
	p.Rounds, p.Running, p.Beside, p.Missed = refill(p.Rounds, nil), nil, nil, 0
	for r.copyRounds(p, limit) {
	}
	p.Services = r.tell(p.positions())
	return p
}

// ReadLatest is like Read, but skips to the latest rounds if there are more than limit.
// Skipped rounds count as missed.
func (r *Ring) ReadLatest(since uint64, limit int, p *Page) *Page {
	r.mu.Lock()
	ended := r.mu.ended
	r.mu.Unlock()
	from := max(since, ended-min(ended, uint64(limit)))
	p = r.Read(from, limit, p)
	p.Missed += from - since
	return p
}

// Services returns the statistics of the current services. Two services with the same name
// are one.
func (r *Ring) Services() []Service {
	return slices.DeleteFunc(r.tell(0), func(s Service) bool { return s.Gone })
}

// tell returns the services by index: at least as many as given, and up to the last that is
// needed. It locks for each lane separately, because copying a lane takes a few
// microseconds.
func (r *Ring) tell(least int) []Service {
	r.mu.Lock()
	n, oldest := len(r.mu.lanes.list), r.oldestLocked()
	for n > least && r.mu.lanes.forgotten(n-1, oldest) {
		n--
	}
	r.mu.Unlock()
	all := make([]Service, 0, n)
	var at lane
	for i := range n {
		r.mu.Lock()
		at = r.mu.lanes.list[i]
		r.mu.Unlock()
		all = append(all, at.tell())
	}
	return all
}

// positions returns how many services the rounds of a page refer to at least.
func (p *Page) positions() (n int) {
	need := func(r *Round) {
		for service := range r.services {
			n = max(n, *service+1)
		}
	}
	for i := range p.Rounds {
		need(&p.Rounds[i])
	}
	if p.Running != nil {
		need(p.Running)
	}
	for i := range p.Beside {
		need(&p.Beside[i])
	}
	return n
}

// ReadQueries returns the queries that ended after the first since ones, oldest first, at
// most pageQueries. With Latest it returns none, only their number.
func (r *Ring) ReadQueries(since uint64) *QueryPage {
	p := &QueryPage{Epoch: r.epoch, Queries: []Query{}, Next: since}
	var chunk [copiedQueries]Query
	for {
		r.mu.Lock()
		n := r.mu.queries.copy(p, chunk[:min(copiedQueries, pageQueries-len(p.Queries))])
		r.mu.Unlock()
		p.Queries = append(p.Queries, chunk[:n]...) // without the lock, because it may allocate
		if !p.More || len(p.Queries) == pageQueries {
			return p
		}
	}
}

// History returns what happened in the last twenty minutes.
func (r *Ring) History() *History { return r.historyUpTo(time.Since(r.epoch)) }

// historyUpTo returns the history that ends now, which tests choose.
func (r *Ring) historyUpTo(now time.Duration) *History {
	r.mu.Lock()
	past, lanes := r.mu.history.steps, len(r.mu.lanes.list)
	r.mu.Unlock()
	h := newHistory(&past, now)
	h.Epoch = r.epoch
	for i := range lanes {
		r.mu.Lock()
		at := r.mu.lanes.list[i]
		r.mu.Unlock()
		if at.services > 0 {
			h.add(at.name, at.target, &at.past)
		}
	}
	return h
}

// Gained returns the device time saved since the start, and the time currently saved per
// second by overlapping and by dynamic batching.
func (r *Ring) Gained(now time.Duration) (sum observe.Gain, overlap, merge float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	overlap, merge = r.mu.history.recentRate(now)
	return r.mu.history.gain, overlap, merge
}

// Load returns the load that was published last. It never waits. While the scheduler makes
// no progress, it demands at least the devices that there are, so that an autoscaler does
// not remove any.
func (r *Ring) Load(live bool) *status.Load {
	o := *r.load.Load()
	o.AgeSeconds, o.Stalled = (time.Since(r.epoch) - o.At).Seconds(), !live
	if o.Stalled {
		o.DevicesDemanded = max(o.DevicesDemanded, float64(len(o.Devices)))
	}
	return &o
}

// publishLocked computes the load and publishes it for all readers until the next.
func (r *Ring) publishLocked(now time.Duration) {
	r.due = now + loadEvery
	first := max(0, int64(now/historyStep)-int64(loadSteps)+1)
	back := now - time.Duration(first)*historyStep
	o := &status.Load{Services: map[string]status.ServiceLoad{}, At: now, WindowSeconds: back.Seconds()}
	var idle float64
	for i := range r.mu.load.devices {
		d := loadOf(&r.mu.load.devices[i], r.mu.load.names[i], first, back)
		idle += d.Idle
		o.Devices = append(o.Devices, d)
	}
	var all demand
	for i := range r.mu.lanes.list {
		if l := &r.mu.lanes.list[i]; l.services > 0 {
			sum := l.demanded(first)
			o.Services[l.name] = status.ServiceLoad{
				Headroom: sum.headroom(), DeviceSeconds: sum.took.Seconds(), BadRate: sum.badRate(), DeviceTotal: l.took, SavedSeconds: sum.saved.Seconds(),
			}
			if !l.bestEffort { // best effort promises nothing
				all.total, all.bad = all.total+sum.total, all.bad+sum.bad
			}
		}
	}
	n := float64(len(o.Devices))
	o.Idle, o.BadRate = idle/n, all.badRate()
	o.DevicesDemanded = n * (1 - o.Idle)
	if o.BadRate > badLimit {
		o.DevicesDemanded = n / (1 - min(o.BadRate, mostBad))
	}
	if now < loadWindow { // not enough seen yet to release devices
		o.DevicesDemanded = max(o.DevicesDemanded, n)
	}
	r.load.Store(o)
}

// Changed reports whether a round has ended since, or is running.
func (r *Ring) Changed(since uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range r.runningLocked {
		return true
	}
	return r.mu.ended > since
}

// oldestLocked returns the first round that is still kept.
func (r *Ring) oldestLocked() uint64 { return r.mu.ended - min(r.mu.ended, Rounds) + 1 }

// copyRounds appends some of the rounds that follow those on a page, and reports whether
// there are more for it. When there are none, it adds the running rounds.
func (r *Ring) copyRounds(p *Page, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended, forgotten := r.mu.ended, r.oldestLocked()-1
	if p.Next == Latest {
		p.Next = ended - min(ended, uint64(limit), ended-forgotten)
	}
	p.Next = min(p.Next, ended)
	// Some were overwritten between two calls. A page must have no gaps, so it starts
	// again.
	if p.Next < forgotten {
		p.Missed += forgotten - p.Next + uint64(len(p.Rounds))
		p.Next, p.Rounds = forgotten, p.Rounds[:0]
	}
	for range copied {
		if p.Next == ended || len(p.Rounds) == limit {
			break
		}
		n := len(p.Rounds)
		p.Rounds = slices.Grow(p.Rounds, 1)[:n+1] // reuses the memory of an earlier round
		p.Next++
		r.mu.slots[p.Next%Rounds].copyTo(&p.Rounds[n])
	}
	if p.More = p.Next < ended; p.More && len(p.Rounds) < limit {
		return true
	}
	for at := range r.runningLocked {
		if p.Running == nil {
			p.Running = new(Round)
			at.copyTo(p.Running)
		} else {
			p.Beside = append(p.Beside, Round{})
			at.copyTo(&p.Beside[len(p.Beside)-1])
		}
	}
	return false
}

// runningLocked yields the rounds that run.
func (r *Ring) runningLocked(yield func(*Round) bool) {
	for _, on := range r.mu.running {
		for i := range on {
			if on[i].Number > 0 && !yield(&on[i]) {
				return
			}
		}
	}
}

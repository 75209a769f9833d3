package overlap

import (
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// routes forms the batches of services that have pipelines, and keeps their ways through
// the devices: by reservation (PPipe, section 5.4 and algorithms 1 and 2). A batch is
// formed when a way is found on which it ends in time, and is then there like one that is
// paused before its first operator.
type routes struct {
	tables
	s     *Scheduler
	moves drain[Move]

	sends, receives bitset   // links that are in use
	onWay           []*batch // between two devices, in the order in which they left
	blocked         int      // so many of them wait for links

	piped       []*service // that have pipelines, by ID
	best, trial route
	members     []*query // that could be in the next batch of a service, the most urgent first
}

// leastWait is the shortest time for which a batch waits for more queries.
const leastWait = 10 * time.Microsecond

// intent is when the queue of a service with pipelines is looked at again: at once, at a
// time, or when so many queries wait.
type intent struct {
	stale  bool
	until  time.Duration
	queued int
	lead   time.Duration // of the last batch, from its reservation to its end; 0 if none is known
}

// open makes the tables of a pool.
func (r *routes) open(s *Scheduler, links []int) {
	r.s, r.tables = s, tables{pool: &s.host, now: &s.now, links: links, known: map[asking]estimated{}}
	if _, r.blind = s.policy.(reactive); r.blind {
		r.links = nil // moves contend
	}
	for i := range s.devices {
		r.everywhere = append(r.everywhere, i)
	}
	n := 0
	for _, link := range r.links {
		n = max(n, link+1)
	}
	r.out, r.in = make([]timetable, n), make([]timetable, n)
	r.sends, r.receives = newBitset(n), newBitset(n)
	r.regard()
}

// regard finds out which services have pipelines, after one has changed.
func (r *routes) regard() {
	r.piped = r.piped[:0]
	for _, sv := range r.s.services {
		if len(sv.Pipelines) > 0 && !sv.removed {
			r.piped = append(r.piped, sv)
			sv.intent = intent{stale: true}
		}
	}
	for _, sv := range r.piped {
		sv.rivals, sv.alike = rivalsOf(sv, r.piped, r.s.devices), alike(sv, r.s.devices)
	}
	clear(r.known)
}

// alike reports whether the devices of each stage of a service are of one kind.
func alike(sv *service, devices []*device) bool {
	for _, p := range sv.Pipelines {
		for _, stage := range p.Stages {
			if slices.ContainsFunc(stage.Devices, func(d int) bool { return devices[d].kind != devices[stage.Devices[0]].kind }) {
				return false
			}
		}
	}
	return true
}

// rival is a stage of another service on a device that one has a stage on, too.
type rival struct {
	service          *service
	pipeline         int
	device           *device
	start, end, size int
}

// rivalsOf returns those of a service among others.
func rivalsOf(sv *service, others []*service, devices []*device) (list []rival) {
	own := newBitset(len(devices))
	for _, p := range sv.Pipelines {
		for _, stage := range p.Stages {
			for _, device := range stage.Devices {
				own.set(device)
			}
		}
	}
	for _, other := range others {
		if other == sv {
			continue
		}
		for p := range other.Pipelines {
			start := 0
			for _, stage := range other.Pipelines[p].Stages {
				if at := slices.IndexFunc(stage.Devices, own.has); at >= 0 {
					list = append(list, rival{other, p, devices[stage.Devices[at]], start, stage.End, other.largest(p)})
				}
				start = stage.End
			}
		}
	}
	return list
}

// others is what a batch of each other service takes, on its longest pipeline, on devices
// that a service has stages on: they may be reserved while it waits.
func (x *tables) others(sv *service) (sum time.Duration) {
	most, took := time.Duration(0), time.Duration(0)
	for i, o := range sv.rivals {
		if i > 0 && o.service != sv.rivals[i-1].service {
			sum, most, took = sum+most, 0, 0
		} else if i > 0 && o.pipeline != sv.rivals[i-1].pipeline {
			took = 0
		}
		span := models.Span{Service: o.service.ID, Start: o.start, End: o.end, Size: o.size, SeqLen: o.service.LastSeqLen}
		took += x.estimate(o.device, span).Bound
		most = max(most, took)
	}
	return sum + most
}

// freed marks what waits to start on a device that has become free to be looked at again.
func (r *routes) freed(device int) {
	for _, sv := range r.piped {
		sv.intent.stale = sv.intent.stale || r.blind || sv.queue.len() > 0 && slices.ContainsFunc(sv.Pipelines, func(p models.Pipeline) bool {
			return slices.Contains(p.Stages[0].Devices, device)
		})
	}
}

// idleShare is the part of the devices on which batches of a service start, one in so many,
// that must be idle for one to start that is not full. With less, smaller batches would take
// the time that a plan at its limit needs: nearly all devices of a large pool are busy then.
const idleShare = 4

// idles reports whether so many run nothing now.
func idles(sv *service, idling bitset) bool {
	idle, all := 0, 0
	for _, p := range sv.Pipelines {
		for _, d := range p.Stages[0].Devices {
			if all++; idling.has(d) && sv.runnable(d) {
				idle++
			}
		}
	}
	return idle*idleShare >= all
}

// Routed reports whether [Scheduler.Ready] may change what waits for a pipeline without returning anything.
func (r *routes) Routed() bool { return len(r.piped)+len(r.onWay) > 0 }

// queued returns how many queries wait for a reservation.
func (r *routes) queued() (n int) {
	for _, sv := range r.piped {
		n += sv.queue.len()
	}
	return n
}

// serve makes the reservations whose time has come, and begins moves.
func (r *routes) serve() {
	if r.blocked > 0 {
		r.depart()
	}
	for more := true; more; {
		more = false
		for _, sv := range r.piped {
			for r.turn(sv) {
				more = true
			}
		}
	}
}

// alarm returns when serve is to be called again. It is false if there is nothing to wait for.
func (r *routes) alarm() (at time.Duration, ok bool) {
	at = forever
	for _, sv := range r.piped {
		if n := &sv.intent; sv.queue.len() > 0 && (n.stale || sv.queue.len() >= n.queued) {
			at = r.s.now
		} else if sv.queue.len() > 0 {
			at = min(at, n.until)
		}
	}
	if r.blocked > 0 {
		for _, b := range r.onWay {
			if depart := b.Legs[b.Leg].Depart; b.Transit == awaiting && depart > r.s.now {
				at = min(at, depart)
			}
		}
	}
	return at, at < forever
}

// turn forms the next batch of a service, drops its most urgent query, or has it wait for
// more. It is true if there may be more to do.
func (r *routes) turn(sv *service) bool {
	s, n := r.s, &sv.intent
	if queued := sv.queue.len(); queued == 0 || !n.stale && s.now < n.until && queued < n.queued {
		return false
	}
	fresh := n.stale
	n.stale, n.until, n.queued = false, forever, math.MaxInt
	there, due := r.gather(sv)
	head := r.members[0]
	idle := !r.blind && idles(sv, r.pool.idle)
	if wait := (due - s.now - n.lead) / 2; !idle && fresh && n.lead > 0 && due < forever && wait >= leastWait && !s.draining && !head.suspect() {
		if missing := sv.smallest() - there; missing > 0 { // there is time to look closer later
			n.until, n.queued = s.now+wait, sv.queue.len()+missing
			return false
		}
	}
	p, found := r.choose(sv, due)
	if !found {
		return false // until a device comes
	}
	size := r.most(sv, p)
	if !r.best.inTime(due) {
		if size = r.shrink(sv, &p, size, due); size == 0 {
			late := r.best.ends > due // nobody is dropped for the sake of a margin
			if late && !sv.exploration(nil).allows(s.now, r.best.ends-r.best.waits-s.now, head) {
				s.answer(s.dequeue(head), Dropped, ReasonCannotFinish)
				return true
			}
			r.try(&r.best, sv, p, head.Size)
			r.book(sv, p, head.Size, late)
			return true
		}
		if r.spoils(sv, p, size) {
			s.answer(s.dequeue(head), Dropped, ReasonCannotFinish)
			return true
		}
	}
	if more := there + 1; more <= size && due < forever && !s.draining && !head.suspect() {
		r.try(&r.trial, sv, p, more)
		ends := r.trial.ends + r.trial.spare
		r.try(&r.trial, sv, p, there) // which may take longer
		wait := due - max(ends, r.trial.ends+r.trial.spare) - r.others(sv)
		if idle { // until the rest of the way is free
			wait = min(wait-r.trial.reserve(), r.trial.waits)
		}
		if wait >= leastWait {
			head.Waited = true
			n.until, n.queued = s.now+wait, sv.queue.len()+size-there
			return false
		}
	}
	r.book(sv, p, min(size, there), false)
	return true
}

// gather lists the queries that may be in the next batch of a service, and returns their
// size, and the earliest of their deadlines, forever for best effort.
func (r *routes) gather(sv *service) (size int, due time.Duration) {
	most, queue := 0, &sv.view.queue
	for p := range sv.Pipelines {
		most = max(most, sv.largest(p))
	}
	r.members, due = r.members[:0], forever
	queue.start()
	for scanned := 0; scanned < max(mergeScan, most); scanned++ {
		q, ok := queue.top()
		if !ok || size >= most {
			break
		}
		queue.pass()
		if len(r.members) > 0 {
			head := r.members[0]
			if !q.mergesWith(head) || size+q.Size > most {
				continue
			}
		}
		r.members = append(r.members, q)
		size += q.Size
		if !q.Rank.Filler {
			due = min(due, q.Deadline)
		}
	}
	return size, due
}

// most returns the largest batch of a pipeline, with regard to the most urgent query.
func (r *routes) most(sv *service, p int) int {
	if head := r.members[0]; head.Apart || head.Size > sv.largest(p) {
		return head.Size
	}
	return sv.largest(p)
}

// choose finds the pipeline whose largest batch waits least, one first on which that is in
// time (algorithm 1, lines 4 to 8), and its route. It is false if there is none that any
// device can begin.
func (r *routes) choose(sv *service, due time.Duration) (p int, found bool) {
	for i := range sv.Pipelines {
		if !r.try(&r.trial, sv, i, r.most(sv, i)) {
			continue
		}
		late, least := !r.trial.inTime(due), !r.best.inTime(due)
		if !found || late != least && !late || late == least && r.trial.waits < r.best.waits {
			p, found = i, true
			r.best, r.trial = r.trial, r.best
			if !late && r.best.waits == 0 && !r.blind {
				break
			}
		}
	}
	return p, found
}

// shrink returns the size of the largest batch that is in time (algorithm 1, lines 9 to
// 14), and 0 if not even the most urgent query is, on any pipeline.
func (r *routes) shrink(sv *service, p *int, size int, due time.Duration) int {
	low := r.members[0].Size
	if !r.try(&r.best, sv, *p, low) || !r.best.inTime(due) {
		chosen := -1
		for i := range sv.Pipelines {
			if i != *p && r.try(&r.best, sv, i, low) && r.best.inTime(due) {
				chosen = i
				break
			}
		}
		if chosen < 0 {
			r.try(&r.best, sv, *p, low)
			return 0
		}
		*p, size = chosen, r.most(sv, chosen)
	}
	high := size // it is too large, or as large as may be
	if r.try(&r.trial, sv, *p, high) && r.trial.inTime(due) {
		return high
	}
	for low+1 < high {
		mid := (low + high) / 2
		if r.try(&r.trial, sv, *p, mid); r.trial.inTime(due) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// fullShare is how large a batch must be, against what is planned, for a query that has
// become the most urgent only now.
const fullShare = 0.95

// spoils reports whether the most urgent query has come to wait so long for others that the
// batches of a pipeline that it is in time with are smaller than planned. Then there is not
// time for all: with smaller batches still less is answered, those who come next wait
// longer, and theirs are smaller still. A query whose own target is too short for a whole
// batch, or that has waited for its batch to grow, spoils nothing, nor does one for whom
// nobody else is in the way.
func (r *routes) spoils(sv *service, p, size int) bool {
	head, full := r.members[0], r.most(sv, p)
	if head.Waited || head.suspect() || size >= int(math.Round(fullShare*float64(full))) {
		return false
	}
	r.try(&r.trial, sv, p, full)
	return r.trial.waits > 0 && r.trial.ends-r.trial.waits+r.trial.spare-*r.now <= head.Deadline-head.Arrival
}

// reserve is what a batch that waits though devices are idle leaves besides what its way takes
// by all bounds: as much again as moves take, which have none, and as the bounds are above the
// middle.
func (t *route) reserve() time.Duration {
	reserve := t.spare
	for i := range t.legs {
		reserve += t.legs[i].Travel
	}
	return reserve
}

func (t *route) inTime(due time.Duration) bool { return t.ends+t.spare <= due }

// try probes a pipeline with a batch of a size (algorithm 2).
func (r *routes) try(to *route, sv *service, p, size int) bool {
	head := r.members[0]
	to.legs, to.p, to.size, to.target = to.legs[:0], p, size, head.Deadline-head.Arrival
	for _, stage := range sv.Pipelines[p].Stages {
		to.legs = append(to.legs, leg{Stage: stage})
	}
	return r.probe(to, sv, way{device: -1, size: size, seqLen: head.SeqLen})
}

// book forms the batch of a service by the best route: of those that were gathered as many
// as are of a size together.
func (r *routes) book(sv *service, p, size int, explores bool) {
	s, n, reach := r.s, 0, 0
	for n < len(r.members) && reach+r.members[n].Size <= size {
		reach += r.members[n].Size
		n++
	}
	n, reach = sv.together(r.members[:n])
	if r.best.p != p || r.best.size != reach {
		r.try(&r.best, sv, p, reach)
	}
	c := candidate{service: sv, head: r.members[0], members: r.members[:n]}
	b := s.form(&c, s.devices[r.best.legs[0].Device])
	b.Legs, b.Reserved, b.Explores = append(b.Legs[:0], r.best.legs...), true, explores
	b.Due = forever
	for _, q := range b.members {
		if q.Deadline >= r.best.ends {
			b.Due = min(b.Due, q.Deadline)
		}
	}
	r.reserve(b)
	s.pause(b)
	s.overturn()
	sv.intent.stale, sv.intent.lead = true, r.best.ends+r.best.spare-s.now
}

// begin takes in that a span of a batch starts now, of which so much is left in the stage.
func (r *routes) begin(b *batch, left time.Duration) {
	if b.Reserved {
		b.Reserved, b.Started = false, r.s.now
	}
	r.correct(b, r.s.now, left)
}

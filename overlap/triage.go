package overlap

import (
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Limits of a triage.
const (
	// triageScan is how many waiting queries a triage looks at, the most urgent
	// first, or for each of triageLevels where some have priorities. Those behind them count as
	// in time.
	triageScan = 128

	// triageLeast is with how many waiting queries it begins: with fewer there
	// is nothing to choose.
	triageLeast = 2

	// triageLevels is how many priorities a triage tells apart. The lowest ones count as one.
	triageLevels = 4
)

// triage finds the work for which there is no time, by the rule of Moore: see the
// package comment. A batch that has started takes its place by its deadline, as a
// query that waits does, with what is left of it.
type triage struct {
	rules   overlap
	number  uint64          // counts triages; work remembers the one that postponed it
	slacks  []slack         // of what is kept, the highest priority first
	units   float64         // of the device
	idle    float64         // of them, on which a batch may start; 0 where they are not shared
	pooled  bool            // some of what waits can run on another device, too
	begun   []job           // memory of started
	started []job           // the batches that have started, the most urgent first
	jobs    []job           // that were added
	kept    heap[int]       // positions in jobs, the longest first
	free    []time.Duration // scratch of alike, as ends
	ends    []time.Duration
	lines   heap[*view] // of the services, the most urgent query first
	queries []*query    // that wait, the most urgent first
}

// slack is by how long all kept work of a priority and of higher ones may be deferred and is in
// time, forever if there is none.
type slack struct {
	priority int
	time     time.Duration
}

// above returns for how long a group may hold up the kept work that has a higher priority than a
// rank. To best effort, all kept work has a higher priority.
func (t *triage) above(r *rank) time.Duration {
	least := forever
	for _, s := range t.slacks {
		if r.Filler || s.priority < r.Priority {
			least = s.time
		}
	}
	return least
}

// job is what a triage keeps or postpones: a query that waits, or what is left of a
// batch.
type job struct {
	rank     *rank
	deadline time.Duration
	alone    time.Duration // the time that it takes
	share    time.Duration // of that on the device of the decision
	each     time.Duration // the same as alone for each query in it, forever for a suspect: what is longest goes first
	waits    bool          // it has not started
	// Its deadline leaves too little time for the largest batch that it could be in: see hurry.
	tight     bool
	postponed *uint64
}

// mergeTrust is how much a triage counts on merging: with 0 a query counts with the time
// that it takes alone, with 1 with its part of the batch that it would be in if all that
// wait for its service were merged. Not all of them can be.
const mergeTrust = 0.5

// A query is tight if its service has others queued, and its deadline leaves less than hurry times
// the isolated latency of the largest batch of them that it could be in. To keep it would cost its
// service that batch, or the time in which the batch could overlap other work.
const hurry = 1.8

// job returns a query that waits.
func (q *query) job(sv *service, v *device, trusts bool) job {
	taken, devices := q.Takes.Alone, max(time.Duration((1+sv.view.others)/v.width(q.Takes.Share)), 1)
	if q.Takes.Share > 0 && sv.view.at+taken > q.Deadline { // it has waited, and needs all units
		return job{&q.Rank, q.Deadline, q.Takes.Least, q.Takes.Least, q.Takes.Least * devices, true, false, &q.postponed}
	}
	tight := func(batch float64) bool {
		return sv.queue.len() > 1 && q.Deadline < sv.view.at+time.Duration(hurry*batch)
	}
	if q.suspect() {
		// The runs that find a bad query are its service's own fault. Where they leave no time
		// for everybody, they go first, and not the queries of a neighbour that takes longer.
		return job{&q.Rank, q.Deadline, taken, taken / devices, forever, true, false, &q.postponed}
	}
	if q.Takes.Full == 0 || q.Size >= sv.MaxBatch {
		return job{&q.Rank, q.Deadline, taken, taken / devices, taken, true, tight(float64(taken)), &q.postponed}
	}
	merged := float64(min(sv.queue.len(), sv.MaxBatch/q.Size))
	further := float64(q.Takes.Full-q.Takes.Alone) / float64(sv.MaxBatch-q.Size) * float64(q.Size)
	batch := float64(q.Takes.Alone) + further*(merged-1)
	if trusts {
		taken -= time.Duration(mergeTrust * max(float64(q.Takes.Alone)-batch/merged, 0))
	}
	return job{&q.Rank, q.Deadline, taken, taken / devices, taken, true, tight(batch), &q.postponed}
}

func newTriage() *triage {
	t := &triage{units: 1, lines: heap[*view]{before: func(a, b *view) bool { return a.first.Rank.before(&b.first.Rank) }}}
	t.kept.before = func(i, k int) bool {
		a, b := &t.jobs[i], &t.jobs[k]
		switch {
		case a.each != b.each:
			return a.each > b.each
		case a.tight != b.tight:
			return a.tight
		case a.tight:
			return a.rank.before(b.rank)
		}
		return b.rank.before(a.rank)
	}
	return t
}

// sort finds out which queries are postponed in a decision.
func (t *triage) sort(d *decision) {
	waiting := 0
	t.pooled, t.units, t.idle = false, float64(d.device.units), 0
	if d.device.units > 1 {
		t.idle = float64(d.device.startable())
	}
	for _, sv := range d.s.backlog.services {
		if sv.queue.len() == 0 || sv.view.reserves {
			continue
		}
		sv.view.others = sv.places()*d.device.units - 1
		if sv.sorted() {
			waiting += sv.queue.len()
			t.pooled = t.pooled || sv.view.others > 0
		}
	}
	t.begin(d.s)
	t.jobs = t.jobs[:0]
	if waiting < triageLeast || !t.rules.has(ruleShedding) {
		return
	}
	t.start(d)
	alone := t.list(d)
	if alone != nil && len(t.begun) == 0 && d.s.backlog.ranked == 0 {
		if a, ok := t.alike(d, alone); ok {
			t.trim(d.at, &a)
			return
		}
	}
	t.shed(d.at)
}

// begin forgets what was kept and what was postponed.
func (t *triage) begin(s *Scheduler) {
	s.triages++
	t.number, t.slacks = s.triages, t.slacks[:0]
	for _, sv := range s.backlog.services {
		sv.view.triage = t.number
	}
}

// list goes through all work, the most urgent first. It returns the service if only one has queries
// that wait.
func (t *triage) list(d *decision) (alone *service) {
	t.lines.items, t.queries = t.lines.items[:0], t.queries[:0]
	for _, sv := range d.s.backlog.services {
		if sv.sorted() && sv.view.advance() {
			t.lines.push(&sv.view)
			alone = sv
		}
	}
	if t.lines.len() > 1 {
		alone = nil
	}
	scan := triageScan
	if d.s.backlog.ranked > 0 { // those that are protected may have later deadlines than many others
		scan *= triageLevels
	}
	for n := 0; n < scan && t.lines.len() > 0; n++ {
		q := t.next()
		t.queries = append(t.queries, q)
		for len(t.started) > 0 && t.started[0].rank.before(&q.Rank) {
			t.add(t.started[0], d.at)
			t.started = t.started[1:]
		}
		t.add(q.job(d.s.backlog.services[q.Service], d.device, t.rules.has(ruleTrust)), d.at)
	}
	for _, sv := range d.s.backlog.services {
		sv.view.looked = sv.view.queue.at
		sv.view.queue.start()
	}
	return alone
}

// start lists the batches that have started.
func (t *triage) start(d *decision) {
	d.ask.clear()
	t.started = t.begun[:0]
	list := func(b *batch, rank *rank, deadline time.Duration, rest models.Span) {
		if rank.Filler || deadline <= d.at {
			return
		}
		d.ask.add(nil, rest)
		t.started = append(t.started, job{rank: rank, deadline: deadline, each: time.Duration(len(b.members)), postponed: &b.postponed})
	}
	for _, sv := range d.s.backlog.services {
		if !sv.sorted() {
			continue
		}
		for _, b := range sv.view.replica.paused.items {
			list(b, &b.Rank, b.Deadline, b.rest())
		}
		if o := &sv.view; o.goesOn {
			list(o.going.batch, &o.going.rank, o.going.deadline, o.going.rest)
		}
	}
	for i, e := range d.ask.take() {
		j := &t.started[i]
		j.alone, j.share, j.each = e.Latency, e.Latency, e.Latency*time.Duration(d.device.units)/j.each
	}
	t.begun = t.started
	slices.SortFunc(t.started, func(a, b job) int {
		if a.rank.before(b.rank) {
			return -1
		}
		return 1
	})
}

// next passes the most urgent waiting query of all services, and returns it.
func (t *triage) next() *query {
	o := t.lines.top()
	q := o.first
	if o.queue.pass(); o.advance() {
		t.lines.down(0)
	} else {
		t.lines.pop()
	}
	return q
}

// add takes in the next work in the order of ranks. What is not known to take
// any time is never late, nor is what was best effort when it arrived, and what is
// late even alone is there to be dropped.
func (t *triage) add(j job, at time.Duration) {
	if j.alone == 0 || j.rank.Filler {
		return
	}
	if at+j.alone > j.deadline {
		return
	}
	t.jobs = append(t.jobs, j)
}

// shed postpones work until there is time for the rest. It begins with the highest priority. Of
// each lower one it keeps what fits in addition to the work kept so far.
func (t *triage) shed(at time.Duration) {
	const none = -1
	for level, above := 0, none; level < triageLevels; level++ {
		priority := math.MaxInt
		if level < triageLevels-1 {
			for i := range t.jobs {
				if p := t.jobs[i].rank.Priority; p > above {
					priority = min(priority, p)
				}
			}
		}
		t.keep(above, priority, at)
		if above = priority; above == math.MaxInt {
			return
		}
	}
}

// width returns how many units of the device a job has: it takes that part of the device.
func (t *triage) width(j *job) float64 { return t.units * float64(j.share) / float64(j.alone) }

// keep adds up what the work takes that has at least a priority, in the order of ranks, and
// postpones the longest so far whose priority is below another while something would be late. A
// batch that has started stays where what waits could run elsewhere.
func (t *triage) keep(above, priority int, at time.Duration) {
	t.kept.items = t.kept.items[:0]
	taken, least := time.Duration(0), forever
	units := 0.0 // that the work so far has: what starts at once is in time whatever the rest takes
	for i := range t.jobs {
		j := &t.jobs[i]
		if j.rank.Priority > priority || *j.postponed == t.number {
			continue
		}
		taken, units = taken+j.share, units+t.width(j)
		if j.rank.Priority > above && (j.waits || !t.pooled) {
			t.kept.push(i)
		}
		due := j.deadline - (j.alone - j.share)
		for t.kept.len() > 0 && at+taken > due && units > t.idle {
			longest := &t.jobs[t.kept.pop()]
			*longest.postponed = t.number
			taken, units = taken-longest.share, units-t.width(longest)
		}
		least = min(least, max(due-at-taken, 0))
	}
	t.slacks = append(t.slacks, slack{priority, least})
}

package overlap

import (
	"slices"
	"sort"
	"time"

	"github.com/overlapd/overlapd/models"
)

// maxPlannedDrops is how much a plan may drop. With more, deciding ahead again
// after every event would cost more than it saves.
const maxPlannedDrops = 64

// decision is what a policy sees, and where it puts the group. Making it
// changes nothing but itself and the views of the services: it may be for a
// time to come, and is carried out by commit, or not at all.
type decision struct {
	s      *Scheduler
	device *device // that the group is for
	ask    *prediction
	ways   int
	kept   bool // it was made ahead, and carried out

	at         time.Duration // when the group starts
	candidates []candidate   // one of each service that has work, the most urgent first
	drops      []drop
	group      []int         // candidates, in the order in which they were added
	spans      []models.Span // the spans of the group
	progress
	steps  []progress // before each span was added
	lax    bool       // the latency of the group must keep to the limit, and not its bound
	strict bool       // its bound must keep to the limit though nobody else is in it
	unsure bool       // as a plan it cannot hold
	asked  asked

	members []*query   // memory of all candidates' members
	joining []joiner   // scratch of merge
	sizes   []int      // scratch of merge
	passed  []*service // scratch of settle
	trials  []int      // scratch of the overlap policy
	sorting *triage
}

// progress is how far a group has come.
type progress struct {
	predicted models.Estimate
	solo      time.Duration // the time the spans take one after another
	limit     time.Duration // when the group must have ended, forever if nothing depends on that
}

// drop is work that cannot finish in time.
type drop struct {
	query    *query // nil if it is a batch
	batch    *batch
	urgent   models.QueryID // its most urgent query
	rest     models.Span
	deadline time.Duration
}

func newDecision(s *Scheduler, ways int) *decision {
	if ways == 0 {
		ways = DefaultWays
	}
	return &decision{s: s, ways: ways, sorting: newTriage()}
}

// decide starts from scratch, for a device and a time.
func (d *decision) decide(v *device, at time.Duration) {
	s := d.s
	d.device, d.ask, d.kept = v, &v.predict, false
	d.ask.counts = asked{}
	d.at, d.lax, d.strict, d.unsure = at, false, false, false
	d.progress, d.steps = progress{limit: forever}, d.steps[:0]
	d.candidates, d.drops, d.members = d.candidates[:0], d.drops[:0], d.members[:0]
	d.group, d.spans = d.group[:0], d.spans[:0]
	for _, sv := range s.backlog.services {
		sv.look(v, at)
	}
	if v.units > 1 {
		d.ask.beside = v.beside(d.ask.beside[:0])
		defer func() { d.ask.beside = d.ask.beside[:0] }()
	} else if v.busy() {
		d.foresee()
	}
	if t, sorts := s.backlog.policy.(triager); sorts {
		d.sorting.rules = t.triages()
		d.sorting.sort(d)
	}
	for _, sv := range s.backlog.services {
		d.gather(sv)
	}
	if len(d.candidates) > 0 {
		s.backlog.policy.choose(d)
		d.lengthen()
	}
	if slices.ContainsFunc(s.backlog.services, func(sv *service) bool { return sv.view.late > maxLate }) {
		d.group, d.drops = d.group[:0], d.drops[:0] // no plan
	}
	d.asked = d.ask.counts
}

// foresee takes it that the round that runs is over, each span at its end.
func (d *decision) foresee() {
	s := d.s
	first := &d.device.slots[0]
	for i, b := range first.running {
		o := &b.service.view
		o.runs = true
		if end := first.round.Group.Spans[i].End; end < b.end() && b.wanted() {
			if c := s.backlog.candidate(b, end); c.deadline > d.at {
				o.going, o.goesOn = c, true
				o.open--
			}
		}
	}
}

// gather inserts the head of a service.
func (d *decision) gather(sv *service) {
	c, ok := sv.head()
	if !ok {
		return
	}
	if c.batch != nil {
		c.members = c.batch.members
	} else {
		d.members = append(d.members, c.head)
		c.members = slices.Clip(d.members[len(d.members)-1:])
	}
	at := sort.Search(len(d.candidates), func(k int) bool { return c.before(&d.candidates[k]) })
	d.candidates = slices.Insert(d.candidates, at, c)
}

// settle finds out what the first n candidates take alone, and drops those
// that cannot finish and leaves those waiting for whom a reservation leaves no time; what
// comes next of their service becomes a candidate. It returns the first n that remain, or
// fewer.
func (d *decision) settle(n int) []candidate {
	for {
		first := d.candidates[:min(n, len(d.candidates))]
		d.ask.clear()
		for i := range first {
			if !first[i].settled {
				d.askAlone(&first[i])
			}
		}
		estimates := d.ask.take()
		if len(estimates) == 0 {
			return first
		}
		for i := range first {
			if c := &first[i]; !c.settled {
				estimates = d.learnAlone(c, estimates)
			}
		}
		for i := range first {
			if c := &first[i]; !c.settled {
				c.settled = true
				c.dropped = d.hopeless(c)
				c.waits = !c.dropped && d.at+c.solo.Bound > d.s.backlog.routes.spared(d, c.batch, d.at)
			}
		}
		d.replace()
	}
}

// askAlone asks what the rest of a candidate takes alone, on each share of the device.
func (d *decision) askAlone(c *candidate) {
	rest := c.rest
	for _, rest.Share = range d.device.shares {
		d.ask.add(nil, rest)
	}
}

// learnAlone takes the answers to askAlone, and returns those that are left.
func (d *decision) learnAlone(c *candidate, estimates []models.Estimate) []models.Estimate {
	n := copy(c.menu[:], estimates[:len(d.device.shares)])
	c.solo = c.menu[n-1]
	for _, e := range c.menu[:n-1] {
		if e.Latency > 0 && e.Latency < c.solo.Latency {
			c.solo = e
		}
	}
	return estimates[n:]
}

// replace puts the next work of its service in the place of every candidate
// that is dropped or waits.
func (d *decision) replace() {
	d.passed = d.passed[:0]
	kept := d.candidates[:0]
	for i := range d.candidates {
		c := &d.candidates[i]
		if !c.dropped && !c.waits {
			kept = append(kept, *c)
			continue
		}
		if c.dropped && !d.elsewhere(c) {
			d.drops = append(d.drops, drop{c.head, c.batch, c.rank.ID, c.rest, c.deadline})
		}
		d.passed = append(d.passed, c.service)
		c.service.view.pass(c)
	}
	d.candidates = kept
	if d.device.units == 1 && d.device.busy() && len(d.drops) > maxPlannedDrops {
		d.unsure, d.candidates = true, d.candidates[:0]
		return
	}
	for _, sv := range d.passed {
		d.gather(sv)
	}
}

// hopeless reports whether a candidate is to be dropped: even alone, and as
// long as it takes in the middle of its runs, it would end after the deadline
// of all its members. Best-effort work is never hopeless, nor is what explores
// (see exploration).
func (d *decision) hopeless(c *candidate) bool {
	c.aim(d.at + c.solo.Latency)
	if d.at+c.solo.Latency <= c.deadline || c.rank.Filler {
		return false
	}
	if c.batch != nil {
		c.explores = c.batch.Explores
	} else { // how the round that runs ends may change whether it explores
		d.unsure = d.unsure || c.service.view.runs
		c.explores = c.service.exploration(d.device).allows(d.at, c.solo.Latency, c.head)
	}
	return !c.explores
}

// elsewhere reports whether a device of another kind, or another variant, can still run a
// candidate in time that this one cannot.
func (d *decision) elsewhere(c *candidate) bool {
	if c.batch != nil {
		return false
	}
	for _, v := range d.s.backlog.host.devices {
		for _, sv := range c.service.family.members {
			other := v.kind != d.device.kind || sv != c.service
			if other && c.head.fits(sv) && sv.runs(v) && d.at+d.s.backlog.host.aloneOn(v, sv, c.head).Latency <= c.deadline {
				return true
			}
		}
	}
	return false
}

// promote makes candidate i the first.
func (d *decision) promote(i int) {
	c := d.candidates[i]
	copy(d.candidates[1:i+1], d.candidates)
	d.candidates[0] = c
}

// add puts the operators up to end of candidate i into the group. The group as
// it is then takes what is predicted, and its spans one after another the solo
// time more than before.
func (d *decision) add(i, end int, predicted models.Estimate, solo time.Duration) {
	c := &d.candidates[i]
	c.end = end
	d.group = append(d.group, i)
	d.spans = append(d.spans, c.upTo(end))
	d.steps = append(d.steps, d.progress)
	d.predicted = predicted
	d.solo += solo
}

// addWhole puts all operators of candidate i into the group as its first
// span.
func (d *decision) addWhole(i int) {
	c := &d.candidates[i]
	d.add(i, c.rest.End, c.solo, c.solo.Latency)
	d.limit = min(d.limit, c.due)
	if limit := d.s.backlog.routes.spared(d, c.batch, d.at); limit < forever {
		d.limit, d.strict = min(d.limit, limit), true
	}
}

// bound returns within what time a group counts as done.
func (d *decision) bound(e models.Estimate) time.Duration {
	if d.lax {
		return e.Latency
	}
	return e.Bound
}

// takeBack takes the span that was added last out of the group.
func (d *decision) takeBack() {
	last := len(d.group) - 1
	d.candidates[d.group[last]].end = 0
	d.group, d.spans = d.group[:last], d.spans[:last]
	d.progress, d.steps = d.steps[last], d.steps[:last]
}

// holds reports whether what was decided ahead may be carried out now, by what
// the predictor says now: all that was taken to be past its deadline is, what
// is to be dropped is hopeless, and the group keeps to its limit. News have
// overturned the plan before, and expire has where more deadlines passed.
func (d *decision) holds() bool {
	s := d.s
	if at, ok := s.backlog.wake(); d.unsure || ok && at <= d.at {
		return false
	}
	d.ask.clear()
	for _, o := range d.drops {
		d.ask.add(nil, o.rest)
	}
	if len(d.group) > 0 {
		d.ask.add(d.spans)
	}
	estimates := d.ask.take()
	for i, o := range d.drops {
		if s.backlog.now+estimates[i].Latency <= o.deadline {
			return false
		}
	}
	if len(d.group) == 0 {
		return true
	}
	first := &d.candidates[d.group[0]]
	d.predicted = repeated(estimates[len(d.drops)], first.rest.Times(len(first.members)))
	switch {
	case len(d.group) > 1 && d.predicted.Latency == 0, first.explores:
		return false
	case d.strict || len(d.group) > 1:
		return s.backlog.now+d.bound(d.predicted) <= d.limit
	case len(first.members) > 1 && first.batch == nil:
		return s.backlog.now+d.predicted.Latency <= d.limit
	}
	left := first.solo.Latency - d.solo // of what does not end with its only span
	return first.rank.Filler || s.backlog.now+d.predicted.Latency+left <= first.deadline
}

// candidate is the most urgent work of one service: a batch that has started,
// or one that is to be formed.
type candidate struct {
	service   *service
	batch     *batch // nil if it is to be formed
	head      *query // around which it is to be formed
	rank      rank
	rest      models.Span   // all operators that are left
	deadline  time.Duration // the latest of its members, or so much earlier as later has it
	later     time.Duration // what its batch takes after the stage that it is in
	members   []*query      // in gather order; only the head until merge
	postponed bool          // it is to be formed around a query that a triage has postponed
	most      int           // queries that may be merged into it, 0 for any number
	end       int           // where its span in the group ends, 0 if it is not in it

	// What settle finds out, and merge changes.
	settled  bool
	dropped  bool
	waits    bool            // for what is reserved before it
	solo     models.Estimate // the estimate of rest, alone, on the share that takes least
	menu     menu            // the same for each share of the device
	explores bool            // it runs although it is predicted to be late: alone, or not at all
	due      time.Duration   // the earliest deadline of its members that the rest, alone, would meet

	// What the overlap policy finds out.
	verdict verdict
	tried   trial
}

// trial is the last group that a candidate was turned down in, with all operators that
// are left of it.
type trial struct {
	models.Estimate               // without a latency where the bound alone decided; zero if there was no such group
	Headroom        time.Duration // what the bound had to keep to, 0 if nothing depended on that
	Apart           time.Duration // what the candidate after the group without it would take
}

// turnDown notes why all of a candidate does not get into the group as it is: with it
// the group would take so long, and had to end by a limit.
func (d *decision) turnDown(c *candidate, with models.Estimate, limit time.Duration) {
	c.verdict = unfit
	c.tried = trial{Estimate: with, Apart: d.predicted.Latency + c.solo.Latency}
	if limit < forever {
		c.tried.Headroom = limit - d.at
	}
}

// before orders candidates: by rank, but for those that are postponed, after
// which only best effort comes.
func (c *candidate) before(o *candidate) bool {
	if c.rank.Filler == o.rank.Filler && c.postponed != o.postponed {
		return o.postponed
	}
	return c.rank.before(&o.rank)
}

// candidate returns a waiting query as the head of a batch to be formed.
func (q *query) candidate(sv *service) candidate {
	return candidate{service: sv, head: q, rank: q.Rank, rest: q.span(sv.Operators), deadline: q.Deadline, postponed: sv.view.second}
}

// candidate returns a paused batch as it will go on.
func (b *batch) candidate() candidate {
	return candidate{service: b.service, batch: b, rank: b.Rank, rest: b.rest(), deadline: b.Deadline, later: b.Later()}
}

// upTo returns the span that ends before operator end.
func (c *candidate) upTo(end int) models.Span {
	s := c.rest
	s.End = end
	return s
}

// from returns what is left after the span that ends before an operator.
func (c *candidate) from(end int) models.Span {
	s := c.rest
	s.Start = end
	return s
}

// aim sets due for a rest that would end at a time.
func (c *candidate) aim(end time.Duration) {
	c.due = forever
	for _, q := range c.members {
		if deadline := q.Deadline - c.later; !q.Cancelled && deadline >= end {
			c.due = min(c.due, deadline)
		}
	}
}

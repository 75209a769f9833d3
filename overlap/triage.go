package overlap

import "time"

// Limits of a triage.
const (
	// triageScan is how many waiting queries a triage looks at, the most urgent
	// first. Those behind them count as in time.
	triageScan = 128

	// triageLeast is with how many waiting queries it begins: with fewer there
	// is nothing to choose.
	triageLeast = 2
)

// triage finds the waiting queries for which there is no time, by the rule of
// Moore, behind the batches that have started: see the package comment.
type triage struct {
	number uint64        // counts triages; a query remembers the one that postponed it
	taken  time.Duration // by the batches that have started and the queries kept so far
	level  int           // the priority that kept is of
	kept   heap[*query]  // the longest first
	lines  heap[line]    // the most urgent query first
}

// line is the waiting queries of a service from the first on, which is the most urgent.
type line struct {
	first *query
	view  *view
}

func newTriage() triage {
	return triage{kept: heap[*query]{
		before: func(a, b *query) bool { return a.Alone > b.Alone || a.Alone == b.Alone && b.Rank.before(&a.Rank) },
	}, lines: heap[line]{
		before: func(a, b line) bool { return a.first.Rank.before(&b.first.Rank) },
	}}
}

// sort finds out which queries are postponed in a decision.
func (t *triage) sort(d *decision) {
	s := d.s
	s.triages++
	t.number, t.taken, t.level = s.triages, 0, 0
	t.kept.items = t.kept.items[:0]
	waiting := 0
	for _, sv := range s.services {
		sv.view.triage = t.number
		if sv.sorted() {
			waiting += sv.queue.len()
		}
	}
	if waiting < triageLeast {
		return
	}
	t.taken = started(d)
	t.lineUp(s.services)
	for range min(waiting, triageScan) {
		q := t.next()
		if q == nil {
			break
		}
		t.add(q, d.at)
	}
	for _, sv := range s.services {
		sv.view.queue.start()
	}
}

// started returns how long the batches that have started still take, one after
// another.
func started(d *decision) (taken time.Duration) {
	d.ask.clear()
	for _, sv := range d.s.services {
		if !sv.sorted() {
			continue
		}
		for _, b := range sv.paused.items {
			if b.Deadline > d.at && !b.Rank.Filler {
				d.ask.add(nil, b.rest())
			}
		}
		if o := &sv.view; o.goesOn && !o.going.rank.Filler {
			d.ask.add(nil, o.going.rest)
		}
	}
	for _, e := range d.ask.take() {
		taken += e.Latency
	}
	return taken
}

// lineUp begins to visit the waiting queries of all services.
func (t *triage) lineUp(services []*service) {
	t.lines.items = t.lines.items[:0]
	for _, sv := range services {
		if !sv.sorted() {
			continue
		}
		if q, some := sv.view.query(); some {
			t.lines.push(line{q, &sv.view})
		}
	}
}

// next passes the most urgent waiting query of all services, and returns it, nil if
// there is none.
func (t *triage) next() *query {
	if t.lines.len() == 0 {
		return nil
	}
	l := &t.lines.items[0]
	q := l.first
	l.view.queue.pass()
	if behind, some := l.view.query(); some {
		l.first = behind
		t.lines.down(0)
	} else {
		t.lines.pop()
	}
	return q
}

// add takes in the next query in the order of ranks. What is not known to take
// any time is never late, nor is what was best effort when it arrived, and what is
// late even alone is there to be dropped.
func (t *triage) add(q *query, at time.Duration) {
	if q.Alone == 0 || q.Rank.Filler || at+q.Alone > q.Deadline {
		return
	}
	if q.Rank.Level != t.level {
		t.level, t.kept.items = q.Rank.Level, t.kept.items[:0]
	}
	t.taken += q.Alone
	t.kept.push(q)
	for t.kept.len() > 0 && at+t.taken > q.Deadline {
		longest := t.kept.pop()
		longest.postponed = t.number
		t.taken -= longest.Alone
	}
}

package loop

import (
	"net/netip"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// Limits of what a service does about queries that its workers die of.
const (
	// attackDeaths is how many workers must die of queries before any query is refused for it.
	// One is an accident.
	attackDeaths = 2

	// probationRests is how many times the outage after a death the suspects rest: all of them
	// together take at most 1/16 of the time of a service.
	probationRests = 16

	// mostProbation bounds the rest, which doubles with each death, unless the outage asks for
	// a longer one. So long after a rest without a death, all is forgotten.
	mostProbation = time.Minute

	// trialWait is when a client may ask again that was refused because another suspect runs.
	trialWait = time.Second

	// maxKnown is how many kinds of queries a service knows to be harmless: at least the latest
	// so many, and at most twice as many.
	maxKnown = 512
)

// querySort is what tells a query from those of others before it has run: its sender, and the
// shapes of its inputs.
type querySort struct {
	sender netip.Prefix
	shape  uint64
}

func sortOf(c *query.Call) querySort { return querySort{c.Sender, c.Shape} }

// probation protects the queries of a service from those that end its workers with other
// bytes each time, which the quarantine does not know. What it learns only ever delays:
//
// A sort of queries is known once one has been answered, and until a worker dies of one. After
// a death, unknown sorts run in no batch with others, so that a further death is no one else's.
// From the second death on what it came from rests: its sort, all unknown shapes of its sender
// if the shapes vary, or the shape from all unknown senders if these do. A rest follows from how long the service was without its worker,
// and doubles with each death. After it suspects run one at a time; one that is answered makes
// its sort known. Without anybody to protect, as where all queries are of one sort, none rests.
//
// It is a value: time is an argument.
type probation struct {
	known [2]map[querySort]struct{} // the younger ones first

	deaths  int       // of queries that ran alone, since all was forgotten
	merged  bool      // a worker died of a batch with others since then
	culprit querySort // of the last death
	senders bool      // the deaths are of several senders
	shapes  bool      // and shapes

	outage   time.Duration  // when the last began, 0 if it is over
	until    time.Duration  // when the rest ends
	innocent time.Duration  // when a query of another sort, which is known, last came, 0 for never
	trial    models.QueryID // the suspect that runs after a rest, 0 for none
}

// ruling is how a query that arrives is treated.
type ruling struct {
	alone bool          // it runs in no batch with others
	trial bool          // it is the only suspect that may run now
	wait  time.Duration // it is refused for so long, 0 if it is not
}

// judge returns how a query is to be treated.
func (p *probation) judge(now time.Duration, s querySort) ruling {
	p.forget(now)
	switch known := p.knows(s); {
	case known && s != p.culprit:
		p.innocent = now
		return ruling{}
	case p.deaths == 0 && !p.merged, known:
		return ruling{}
	case p.deaths < attackDeaths, !p.suspects(s), p.innocent == 0 || now-p.innocent > mostProbation:
		return ruling{alone: true}
	case now < p.until:
		return ruling{wait: p.until - now}
	case p.trial != 0:
		return ruling{wait: trialWait}
	}
	return ruling{alone: true, trial: true}
}

// suspects reports whether a sort is one that deaths came from.
func (p *probation) suspects(s querySort) bool {
	return (p.senders || s.sender == p.culprit.sender) && (p.shapes || s.shape == p.culprit.shape)
}

// forget forgets the deaths if there has been none for long.
func (p *probation) forget(now time.Duration) {
	if now-p.until > mostProbation {
		*p = probation{known: p.known}
	}
}

// answered records that a query got its answer.
func (p *probation) answered(id models.QueryID, s querySort, finished bool) {
	if id == p.trial {
		p.trial = 0
	}
	if finished {
		p.learn(s)
	}
}

// died records that a worker died of a query alone, which it began at a time.
func (p *probation) died(now, began time.Duration, s querySort) {
	p.forget(now)
	if p.knows(s) { // its sender knows how to become known: nothing that it did before counts
		for _, known := range p.known {
			for k := range known {
				if k.sender == s.sender {
					delete(known, k)
				}
			}
		}
	}
	if p.deaths == 0 {
		p.innocent = 0 // it may have been of this sort
	} else {
		p.senders = p.senders || s.sender != p.culprit.sender
		p.shapes = p.shapes || s.shape != p.culprit.shape
	}
	p.deaths++
	p.culprit, p.outage, p.until = s, began, now+mostProbation
}

// diedMerged records that a worker died of a batch, of which nobody can tell whose query it was.
func (p *probation) diedMerged(now time.Duration, sorts []querySort) {
	p.forget(now)
	p.merged, p.until = true, max(p.until, now)
	for _, s := range sorts {
		for _, known := range p.known {
			delete(known, s)
		}
	}
}

// back records that a worker of the service is ready, from which follows how long suspects rest.
func (p *probation) back(now time.Duration) {
	if p.outage == 0 {
		return
	}
	least := probationRests * (now - p.outage)
	rest := least
	for range min(p.deaths-attackDeaths, 10) {
		rest *= 2
	}
	if p.deaths < attackDeaths {
		rest = 0
	}
	p.until, p.outage = now+min(rest, max(least, mostProbation)), 0
}

// knows reports whether a sort is known to be harmless.
func (p *probation) knows(s querySort) bool {
	_, young := p.known[0][s]
	_, old := p.known[1][s]
	return young || old
}

// learn makes a sort known. The older half of them gives way when there are too many.
func (p *probation) learn(s querySort) {
	if _, young := p.known[0][s]; young {
		return
	}
	if p.known[0] == nil || len(p.known[0]) >= maxKnown {
		p.known[0], p.known[1] = map[querySort]struct{}{}, p.known[0]
	}
	p.known[0][s] = struct{}{}
}

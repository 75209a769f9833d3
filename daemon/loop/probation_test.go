package loop

import (
	"net/netip"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

func sortFrom(sender, shape int) querySort {
	return querySort{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(sender >> 8), byte(sender)}), 32), uint64(shape)}
}

// asker sends queries at a pace.
type asker struct {
	every    time.Duration
	from, to time.Duration
	query    func(i int) (s querySort, deadly bool)

	sent, served int
}

// ask lets clients ask a service whose worker takes so long to come back. A query that finds no
// worker is lost. It returns for how long there was none.
func ask(p *probation, outage time.Duration, askers ...*asker) (down time.Duration) {
	const tick = 10 * time.Millisecond
	var id models.QueryID
	back, end := time.Duration(-1), time.Duration(0)
	for _, a := range askers {
		end = max(end, a.to)
	}
	for now := tick; now < end; now += tick {
		if back >= 0 && now >= back {
			back = -1
			p.back(now)
		}
		if back >= 0 {
			down += tick
		}
		for _, a := range askers {
			if now < a.from || now >= a.to || now%a.every != 0 {
				continue
			}
			s, deadly := a.query(a.sent)
			a.sent++
			r := p.judge(now, s)
			if r.wait > 0 {
				continue
			}
			if id++; r.trial {
				p.trial = id
			}
			finished := back < 0 && !deadly
			if back < 0 && deadly {
				back = now + outage
				p.died(now, now, s)
			}
			if finished {
				a.served++
			}
			p.answered(id, s, finished)
		}
	}
	return down
}

// Attackers vary the bytes, the shape, the sender or both, send harmless queries between or
// before, and as many as they can. What others ask is answered but for at most 1/16 of the time
// and the first deaths, and a rest after the attack everything is, for the attacker as well.
func TestProbation(t *testing.T) {
	const attack, second = 5 * time.Minute, time.Second
	for name, attacker := range map[string]asker{
		"bytes":             {every: second / 2, query: func(int) (querySort, bool) { return sortFrom(1, 1), true }},
		"bytes, hammering":  {every: second / 100, query: func(int) (querySort, bool) { return sortFrom(1, 1), true }},
		"shapes":            {every: second / 2, query: func(i int) (querySort, bool) { return sortFrom(1, i), true }},
		"senders":           {every: second / 2, query: func(i int) (querySort, bool) { return sortFrom(10+i, 1), true }},
		"both, hammering":   {every: second / 100, query: func(i int) (querySort, bool) { return sortFrom(10+i, i), true }},
		"good ones between": {every: second / 10, query: func(i int) (querySort, bool) { return sortFrom(1, 1), i%2 == 1 }},
		"good ones before":  {every: second / 10, query: func(i int) (querySort, bool) { return sortFrom(1, i%200), i >= 200 }},
	} {
		for _, outage := range []time.Duration{300 * time.Millisecond, 5 * second} {
			innocent := func(s querySort) *asker {
				return &asker{every: 60 * time.Millisecond, to: attack, query: func(int) (querySort, bool) { return s, false }}
			}
			ofSender, ofShape := innocent(sortFrom(2, 1)), innocent(sortFrom(1, 1<<20))
			rest := max(mostProbation, probationRests*outage) + 2*outage
			later := &asker{every: second, from: attack + rest, to: attack + 2*rest, query: func(int) (querySort, bool) { return sortFrom(1, 1), false }}
			a := attacker
			a.from, a.to = second, attack
			down := ask(new(probation), outage, ofSender, ofShape, &a, later)
			if most := attack/probationRests + 4*outage; down == 0 || down > most {
				t.Errorf("%s, %v: there was no worker for %v, want at most %v", name, outage, down, most)
			}
			for of, x := range map[string]*asker{"sender": ofSender, "shape": ofShape} {
				least := 1 - 1.0/probationRests - 4*outage.Seconds()/attack.Seconds()
				if served := float64(x.served) / float64(x.sent); served < least && !(of == "shape" && name == "good ones before") {
					t.Errorf("%s, %v: of another %s's queries %.3f are answered, want %.3f", name, outage, of, served, least)
				}
			}
			if later.served < later.sent {
				t.Errorf("%s, %v: after the attack %d of %d queries of the attacker are answered", name, outage, later.served, later.sent)
			}
		}
	}
}

// One death is an accident, and where all queries are of one sort a rest would protect nobody.
func TestProbationRefusesNobodyInVain(t *testing.T) {
	p := new(probation)
	for n := range 20 {
		now := time.Duration(n+1) * time.Second
		p.died(now, now, sortFrom(1, 1))
		p.back(now + 1)
		if r := p.judge(now+1, sortFrom(1, 1)); r.wait > 0 || !r.alone {
			t.Fatalf("after %d deaths of the only sort: %+v", n+1, r)
		}
		p.answered(1, sortFrom(1, 1), true)
		if r := p.judge(now+1, sortFrom(1, 1)); r != (ruling{}) {
			t.Fatalf("a query of the sort was answered: %+v", r)
		}
	}
	p = new(probation)
	p.answered(1, sortFrom(2, 2), true)
	p.died(1, 1, sortFrom(1, 1))
	p.back(2)
	p.answered(2, sortFrom(2, 2), true)
	p.judge(2, sortFrom(2, 2))
	if r := p.judge(2, sortFrom(1, 1)); r.wait > 0 || !r.alone {
		t.Errorf("after the first death: %+v", r)
	}
	if r := p.judge(2, sortFrom(2, 2)); r.alone {
		t.Error("a known sort runs alone")
	}
	p.died(3, 3, sortFrom(1, 1))
	if r := p.judge(3, sortFrom(1, 1)); r.wait <= 0 {
		t.Error("after the second death it does not rest")
	}
	p.back(3)
	if a, b := p.judge(4, sortFrom(1, 1)), p.judge(4, sortFrom(3, 3)); !a.trial || b.trial || b.wait > 0 || !b.alone {
		t.Errorf("after the rest %+v, unknown to both %+v", a, b)
	}
	p.trial = 7
	if r := p.judge(4, sortFrom(1, 1)); r.wait != trialWait {
		t.Errorf("beside a trial: %+v", r)
	}
}

// Of a batch that a worker died of nobody knows who it was: all of them run alone until answered.
func TestProbationOfABatch(t *testing.T) {
	p, a, b := new(probation), sortFrom(1, 1), sortFrom(2, 1)
	p.answered(1, a, true)
	p.diedMerged(2, []querySort{a, b})
	for _, s := range []querySort{a, b} {
		if r := p.judge(3, s); !r.alone || r.wait > 0 {
			t.Errorf("%+v", r)
		}
		p.answered(1, s, true)
		if r := p.judge(3, s); r.alone {
			t.Errorf("answered: %+v", r)
		}
	}
}

// However many senders there are, what is known of them is bounded, and the latest are known.
func TestProbationIsBounded(t *testing.T) {
	p := new(probation)
	for n := range 5 * maxKnown {
		p.answered(1, sortFrom(n, 1), true)
		if len(p.known[0])+len(p.known[1]) > 2*maxKnown || !p.knows(sortFrom(0, 1)) && n < maxKnown {
			t.Fatalf("%d and %d sorts are known", len(p.known[0]), len(p.known[1]))
		}
	}
	if !p.knows(sortFrom(4*maxKnown+1, 1)) || p.knows(sortFrom(0, 1)) {
		t.Error("the wrong ones are forgotten")
	}
}

package overlap

import (
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// sorted draws queries in the order of their ranks, with the earliest deadline
// first.
func sorted(t *rapid.T, most int) []*query {
	list := make([]*query, rapid.IntRange(0, most).Draw(t, "queries"))
	for i := range list {
		list[i] = &query{queryState: queryState{
			Query: models.Query{ID: models.QueryID(i + 1), Deadline: time.Duration(rapid.IntRange(1, 60).Draw(t, "deadline"))},
			Takes: takes{Alone: time.Duration(rapid.IntRange(0, 15).Draw(t, "alone"))},
		}}
	}
	slices.SortStableFunc(list, func(a, b *query) int { return int(a.Deadline - b.Deadline) })
	return list
}

// late counts the queries of those in a set that would be late one after
// another.
func late(list []*query, in func(i int) bool, at time.Duration) (n int) {
	for i, q := range list {
		if !in(i) {
			continue
		}
		if at += q.Takes.Alone; q.Takes.Alone > 0 && at > q.Deadline {
			n++
		}
	}
	return n
}

// No choice of queries is larger than that of a triage, and all of its are in
// time. What nothing is known of counts as in time, and what is late even alone
// is left to be dropped.
func TestTriageIsTheBestChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, at := sorted(t, 9), time.Duration(rapid.IntRange(0, 5).Draw(t, "at"))
		started := time.Duration(rapid.IntRange(0, 10).Draw(t, "started"))
		tr := newTriage()
		tr.number = 7
		for _, q := range list {
			tr.add(q.job(new(service), &device{units: 1}, true), at)
		}
		tr.shed(at + started)
		hopeless := func(q *query) bool { return at+q.Takes.Alone > q.Deadline && q.Takes.Alone > 0 }
		kept := func(i int) bool { return list[i].postponed != 7 && !hopeless(list[i]) }
		if n := late(list, kept, at+started); n > 0 {
			t.Fatalf("%d of those that were kept are late", n)
		}
		count := 0
		for i, q := range list {
			if kept(i) {
				count++
			}
			if q.postponed == 7 && (hopeless(q) || q.Takes.Alone == 0) {
				t.Fatalf("query %d is postponed, but is late even alone or unknown: %v of %v", q.ID, q.Takes.Alone, q.Deadline)
			}
		}
		for set := range uint(1) << len(list) {
			if bits.OnesCount(set) > count && late(list, func(i int) bool { return set>>i&1 == 1 }, at+started) == 0 {
				t.Fatalf("set %b is in time and larger than %d", set, count)
			}
		}
	})
}

// Of those with the least priority the longest are postponed, whatever those
// with more take.
func TestTriageKeepsPriorities(t *testing.T) {
	queries := []*query{
		{queryState: queryState{Query: models.Query{ID: 1, Deadline: 100}, Rank: rank{Priority: 1}, Takes: takes{Alone: 60}}},
		{queryState: queryState{Query: models.Query{ID: 2, Deadline: 100}, Rank: rank{Priority: 2}, Takes: takes{Alone: 30}}},
		{queryState: queryState{Query: models.Query{ID: 3, Deadline: 100}, Rank: rank{Priority: 2}, Takes: takes{Alone: 20}}},
	}
	tr := newTriage()
	tr.number = 1
	for _, q := range queries {
		tr.add(q.job(new(service), &device{units: 1}, true), 0)
	}
	tr.shed(0)
	for i, want := range []uint64{0, 1, 0} {
		if queries[i].postponed != want {
			t.Errorf("query %d is postponed by triage %d, want %d", queries[i].ID, queries[i].postponed, want)
		}
	}
}

// However long the queue, a triage looks at the most urgent only.
func TestTriageIsBounded(t *testing.T) {
	config := goodConfig(1)
	config.Services[0].QueueLimit = 4 * triageScan
	config.Policy = "overlap"
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * triageScan {
		if err := s.arrive(0, models.Query{ID: models.QueryID(i + 1), Size: 1, Deadline: 50 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	s.draft.decide(s.backlog.host.devices[0], 0)
	postponed := 0
	for _, q := range s.backlog.services[0].queue.items {
		if q.postponed == s.triages {
			postponed++
		}
	}
	if postponed == 0 || postponed > triageScan {
		t.Errorf("%d queries are postponed, of %d that a triage looks at", postponed, triageScan)
	}
}

// What waits beside others that it can be merged with counts with less than it takes alone,
// the less the more there are, and a query that must run by itself with all of it.
func TestTriageCountsOnMerging(t *testing.T) {
	q := &query{queryState: queryState{Query: models.Query{Size: 1}, Takes: takes{Alone: 40, Full: 70}}}
	sv := &service{Service: models.Service{MaxBatch: 4}}
	for waiting, want := range []time.Duration{1: 40, 2: 33, 3: 30, 4: 29, 5: 29} { // halfway to 25, 20 and 17.5
		sv.queue.items = make([]*query, waiting)
		if got := q.job(sv, &device{units: 1}, true).alone; waiting > 0 && got != want {
			t.Errorf("one of %d counts with %d, want %d", waiting, got, want)
		}
	}
	q.Apart = true
	if got := q.job(sv, &device{units: 1}, true).alone; got != 40 {
		t.Errorf("one that is never merged counts with %d", got)
	}
}

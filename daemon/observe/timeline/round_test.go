package timeline

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// A group of two services tells what was seen, asked and chosen, and how it
// went.
func TestRound(t *testing.T) {
	s := newScheduled(t, 3)
	s.now = -20 * time.Millisecond
	s.arrive(2, 21*time.Millisecond) // hopeless, since it has waited
	s.now = 0
	s.arrive(0, 50*time.Millisecond)
	s.arrive(1, 80*time.Millisecond)
	r := s.begin()
	page := s.ring.Read(0, PageRounds, nil)
	if len(page.Rounds) != 0 || page.Running == nil || page.Running.Number != 1 || page.Running.End != 0 || page.Next != 0 {
		t.Fatalf("while it runs: %+v", page)
	}
	if got := page.Running.Spans[0].Status; got != "running" {
		t.Errorf("a span that runs is %s", got)
	}
	s.ring.finishOnDevice(time.Hour, &models.Outcome{Round: 2}, r.Group.Spans[1], time.Second) // of a round that does not run
	s.onDevice = 4 * time.Millisecond
	s.end(r)
	s.ring.finishOnDevice(time.Hour, &models.Outcome{Round: 1}, r.Group.Spans[1], time.Second) // too late
	page = s.ring.Read(0, PageRounds, page)
	if len(page.Rounds) != 1 || page.Running != nil || page.Next != 1 || page.More {
		t.Fatalf("once it ended: %+v", page)
	}
	got := page.Rounds[0]
	if got.Predicted != 10*time.Millisecond || got.Bound != 11*time.Millisecond || got.Took != 11*time.Millisecond || got.End != s.now {
		t.Errorf("times: %+v", got)
	}
	if got.Solo != 20*time.Millisecond || got.Deadline != 50*time.Millisecond || got.Headroom <= 0 || got.Asked.Groups == 0 || got.Asked.Calls == 0 {
		t.Errorf("decision: %+v", got)
	}
	if len(got.Spans) != 2 || len(got.Candidates) != 2 || len(got.Dropped) != 1 || got.Dropped[0].Service != 2 || got.More != 0 {
		t.Fatalf("lists: %+v", got)
	}
	if a, b := got.Spans[0].Device, got.Spans[1].Device; a != 4*time.Millisecond || b != 0 {
		t.Errorf("on the device: %v and %v", a, b)
	}
	first := got.Spans[0]
	if first.Service != 0 || first.Start != 0 || first.End != operators || first.Of != operators || first.Queries != 1 ||
		len(first.IDs) != 1 || first.IDs[0] != 2 || first.Deadline != 50*time.Millisecond || first.Status != "done" || first.Took != got.Took {
		t.Errorf("span: %+v", first)
	}
	if c := got.Candidates[0]; c.Place != 1 || c.End != operators || c.Headroom != 50*time.Millisecond || c.Solo != 10*time.Millisecond || c.Query != 2 {
		t.Errorf("candidate: %+v", c)
	}
}

// A rejected candidate has the numbers of the group that it would have formed. Other
// candidates have none.
func TestRoundHasWhatWasTurnedDown(t *testing.T) {
	const ms = time.Millisecond
	why := overlap.Explanation{Candidates: []overlap.Candidate{{Place: 1}, {Service: 1}}}
	why.Candidates[1].Tried.Estimate = models.Estimate{Latency: 16 * ms, Bound: 37 * ms}
	why.Candidates[1].Tried.Headroom, why.Candidates[1].Tried.Apart = 17*ms, 20*ms
	r := New(time.Now(), []models.Service{{Name: "a"}, {ID: 1, Name: "b"}})
	r.Observe(&observe.Event{Kind: observe.Dispatched, Round: &overlap.Round{Number: 1}, Why: &why, Services: []models.Service{{Name: "a"}, {ID: 1, Name: "b"}}})
	text, err := json.Marshal(r.Read(0, 1, nil).Running.Candidates)
	if err != nil || strings.Count(string(text), "tried") != 1 ||
		!strings.Contains(string(text), `"tried":{"predicted_ns":16000000,"bound_ns":37000000,"headroom_ns":17000000,"apart_ns":20000000}`) {
		t.Errorf("%v: %s", err, text)
	}
}

// What is over the limits of a round is counted, and lists are never null.
func TestRoundIsBounded(t *testing.T) {
	var r, to Round
	why := overlap.Explanation{}
	for range maxDropped + 5 {
		why.Dropped = append(why.Dropped, overlap.Candidate{})
	}
	r.begin(&overlap.Round{Number: 1}, &why, nil)
	if len(r.Dropped) != maxDropped || r.More != 5 {
		t.Errorf("%d and %d more", len(r.Dropped), r.More)
	}
	queries := make([]models.QueryID, maxQueries+9)
	r.addSpan(models.Span{End: 3}, 4, queries)
	if s := r.Spans[0]; s.Queries != maxQueries+9 || len(s.IDs) != maxQueries || s.Of != 4 {
		t.Errorf("%+v", s)
	}
	new(Round).copyTo(&to)
	text, err := json.Marshal(&to)
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%v: %s", err, text)
	}
}

// An outcome of a round that is not the one that runs changes nothing.
func TestForeignOutcome(t *testing.T) {
	s := newScheduled(t, 1)
	s.rounds(1)
	s.ring.finish(time.Hour, &models.Outcome{Round: 1})
	s.arrive(0, time.Second)
	s.begin()
	s.ring.finish(time.Hour, &models.Outcome{Round: 7})
	if p := s.ring.Read(0, PageRounds, nil); p.Rounds[0].End == time.Hour || p.Running == nil {
		t.Errorf("%+v", p)
	}
}

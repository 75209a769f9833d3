package metrics

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

const ms = time.Millisecond

// sumOf returns how many values a histogram has, and their sum.
func sumOf(h *distribution) (uint64, float64) {
	n, _ := h.cumulative()
	return n, h.sum
}

// group is a round of so many spans, and how it went.
type group struct {
	spans            int
	predicted, bound time.Duration
	solo             time.Duration
	deadline         time.Duration // of a query in it, 0 for none; the round begins at a second
	took, compared   time.Duration // compared is of the engine, where there is one span
	stopped          bool
}

// of has a Recorder see the round.
func (g group) run(r *Recorder) {
	round := &overlap.Round{Start: time.Second, Predicted: models.Estimate{Latency: g.predicted, Bound: g.bound}}
	round.Group.Spans = make([]models.Span, g.spans)
	var why overlap.Explanation
	why.Candidates = append(why.Candidates, overlap.Candidate{Deadline: 1}) // it waits
	if g.deadline != 0 {
		why.Candidates = append(why.Candidates, overlap.Candidate{Deadline: g.deadline, Place: 1}, overlap.Candidate{Deadline: time.Hour, Place: 2})
	}
	r.Observe(&observe.Event{Kind: observe.Dispatched, Round: round, Why: &why, Apart: observe.Apart{Spans: g.solo}})
	o := &executor.Outcome{Took: g.took, Spans: make([]executor.SpanOutcome, g.spans)}
	o.Spans[0].Took = g.compared
	if g.stopped {
		o.Spans[g.spans-1].Status = models.SpanStopped
	}
	r.Observe(&observe.Event{Kind: observe.Ended, Measured: o, Gain: observe.Gain{Merge: 3 * ms}})
}

func TestRecordOfGroups(t *testing.T) {
	pair := group{spans: 2, predicted: 10 * ms, bound: 12 * ms, solo: 16 * ms, deadline: time.Second + 50*ms}
	alone := group{spans: 1, predicted: 10 * ms, bound: 10 * ms, deadline: time.Second - ms}
	went := func(g group, took, compared time.Duration, stopped bool) group {
		g.took, g.compared, g.stopped = took, compared, stopped
		return g
	}
	for name, c := range map[string]struct {
		group    group
		gained   time.Duration
		lost     time.Duration
		exceeded uint64
		ratio    float64 // of the group, 0 for none
		solo     float64 // ratio of one span, 0 for none
		headroom float64
	}{
		"faster than apart": {went(pair, 11*ms, 0, false), 5 * ms, 0, 0, 1.1, 0, 0.05},
		"slower than apart": {went(pair, 20*ms, 0, false), 0, 4 * ms, 1, 2, 0, 0.05},
		"not to its end":    {went(pair, 20*ms, 0, true), 0, 0, 0, 0, 0, 0.05},
		"solo unknown":      {group{spans: 2, predicted: 10 * ms, bound: 12 * ms, took: 20 * ms}, 0, 0, 1, 2, 0, 0},
		"not predicted":     {group{spans: 2, solo: 16 * ms, took: 11 * ms}, 5 * ms, 0, 0, 0, 0, 0},
		"alone":             {went(alone, 11*ms, 9*ms, false), 0, 0, 0, 0, 0.9, 0},
		"alone and late":    {went(alone, 21*ms, 20*ms, false), 0, 0, 1, 0, 2, 0},
	} {
		r := NewRecorder(nil)
		c.group.run(r)
		if r.gained != c.gained || r.lost != c.lost || r.exceeded != c.exceeded {
			t.Errorf("%s: gained %v, lost %v, exceeded %d", name, r.gained, r.lost, r.exceeded)
		}
		if _, sum := sumOf(&r.groups.groupRatio); sum != c.ratio {
			t.Errorf("%s: ratio %v", name, sum)
		}
		if _, sum := sumOf(&r.groups.soloRatio); sum != c.solo {
			t.Errorf("%s: ratio of one span %v", name, sum)
		}
		if n, sum := sumOf(&r.groups.round); n != 1 || sum != c.group.took.Seconds() {
			t.Errorf("%s: %d rounds of %v s", name, n, sum)
		}
		if _, sum := sumOf(&r.groups.size); sum != float64(c.group.spans) {
			t.Errorf("%s: %v spans", name, sum)
		}
		if n, sum := sumOf(&r.groups.headroom); (n == 1) != (c.group.deadline != 0) || sum != c.headroom {
			t.Errorf("%s: %d headrooms of %v", name, n, sum)
		}
	}
}

// Idle is what lies between two rounds of one device, whatever runs on another.
func TestRecordOfIdleTime(t *testing.T) {
	r := NewRecorder(nil)
	for _, e := range []struct {
		device     int
		start, end time.Duration
	}{{0, 5 * ms, 10 * ms}, {1, 8 * ms, 30 * ms}, {0, 12 * ms, 20 * ms}, {0, 20 * ms, 25 * ms}, {1, 31 * ms, 32 * ms}} {
		round := &overlap.Round{Device: e.device, Start: e.start}
		r.Observe(&observe.Event{Kind: observe.Dispatched, Round: round, Why: new(overlap.Explanation)})
		r.Observe(&observe.Event{Kind: observe.Ended, At: e.end, Measured: &executor.Outcome{Device: e.device}})
	}
	if n, sum := sumOf(&r.groups.idle); n != 3 || math.Abs(sum-0.003) > 1e-9 {
		t.Errorf("%d rounds after %v s", n, sum)
	}
}

// A round that could not be sent is not counted as one.
func TestRecordOfARoundThatWasNotSent(t *testing.T) {
	r := NewRecorder(nil)
	r.Observe(&observe.Event{Kind: observe.Ended})
	if n, _ := sumOf(&r.groups.round); n != 0 {
		t.Errorf("%d rounds", n)
	}
}

func TestRecordOfQueries(t *testing.T) {
	r := NewRecorder([]string{"a", "b"})
	answer(r, 1, 30*ms, 10*ms, 20*ms)
	answer(r, 1, 30*ms, 0, 0) // without a target
	r.Observe(&observe.Event{Kind: observe.Answered, Answer: &overlap.Answer{Service: 1, Result: overlap.Dropped}})
	for i, want := range []uint64{0, 2} {
		if n, _ := sumOf(&r.services[i].latency); n != want {
			t.Errorf("service %d: %d latencies, want %d", i, n, want)
		}
	}
	if n, sum := sumOf(&r.services[1].target); n != 1 || sum != 1.5 {
		t.Errorf("%d of the target, %v", n, sum)
	}
	if n, sum := sumOf(&r.services[1].queue); n != 2 || sum != 0.01 {
		t.Errorf("%d waited for %v s", n, sum)
	}
}

// However services are added, removed and replaced, no series of a name decreases, none is
// counted twice, and a name that returns starts again from zero.
func TestSeriesFollowNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type line struct {
			name string
			n    uint64 // answers of all its services
		}
		r, first := NewRecorder([]string{"a"}), &line{name: "a"}
		lines := map[models.ServiceID]*line{0: first} // of services that are not gone
		serves := map[string]models.ServiceID{"a": 0}
		for next := models.ServiceID(1); next < 20; next++ {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
			if rapid.Bool().Draw(t, "set") {
				if before, there := serves[name]; there {
					lines[next] = lines[before]
				} else {
					lines[next] = &line{name: name}
				}
				_, there := serves[name]
				serves[name] = next
				r.Observe(&observe.Event{Kind: observe.Set, Service: &models.Service{ID: next, Name: name}, Fresh: !there})
			}
			for _, id := range slices.Sorted(maps.Keys(lines)) {
				of := lines[id]
				if rapid.Bool().Draw(t, "answers") {
					answer(r, id, ms, ms, ms)
					of.n++
				}
				if rapid.Bool().Draw(t, "stays") {
					continue
				}
				if serves[of.name] == id {
					delete(serves, of.name)
				}
				delete(lines, id)
				r.Observe(&observe.Event{Kind: observe.Dropped, Service: &models.Service{ID: id}})
			}
			r.Observe(&observe.Event{Kind: observe.Dropped, Service: &models.Service{ID: 99}}) // it never served
			for name, id := range serves {
				at := slices.IndexFunc(r.services, func(q *queries) bool { return q.name == name })
				if n, _ := sumOf(&r.services[at].latency); n != lines[id].n || r.series[id] != r.services[at] {
					t.Fatalf("%d of %s, want %d", n, name, lines[id].n)
				}
			}
		}
	})
}

// A copy tells the same, and stays as it is whatever happens to the original.
func TestRecordCopy(t *testing.T) {
	s := full(1)
	empty := text(t, s)
	first := s.recorder.copied()
	everything(s.recorder)
	s.recorder.set(&models.Service{ID: 1, Name: "another"}, true)
	if len(first.services) != 1 {
		t.Errorf("a copy follows its original: %d services", len(first.services))
	}
	if n, _ := sumOf(&first.services[0].latency); n != 1 || first.turns != 1 {
		t.Errorf("a copy follows its original: %d answers, %d turns", n, first.turns)
	}
	if _, same := apart(empty, text(t, s)); same {
		t.Error("nothing was copied")
	}
}

// everything happens to a record.
func everything(r *Recorder) {
	r.Observe(&observe.Event{Kind: observe.Woke})
	group{spans: 2, predicted: 10 * ms, bound: 12 * ms, solo: 16 * ms, deadline: time.Second + 50*ms, took: 14 * ms}.run(r)
	answer(r, 0, 30*ms, 10*ms, 20*ms)
	r.Observe(&observe.Event{Kind: observe.Rested, At: ms})
}

// happened is a group and an answer, as the scheduler goroutine sees them.
func happened() []observe.Event {
	round := &overlap.Round{Predicted: models.Estimate{Latency: 10 * ms, Bound: 12 * ms}}
	round.Group.Spans = make([]models.Span, 2)
	return []observe.Event{
		{Kind: observe.Woke},
		{Kind: observe.Dispatched, Round: round, Why: &overlap.Explanation{Candidates: []overlap.Candidate{{Deadline: time.Second, Place: 1}}}, Apart: observe.Apart{Spans: 16 * ms}},
		{Kind: observe.Ended, Gain: observe.Gain{Overlap: 2 * ms, Merge: 3 * ms}, Measured: &executor.Outcome{Took: 14 * ms, Spans: make([]executor.SpanOutcome, 2)}},
		{Kind: observe.Answered, Target: 20 * ms, Answer: &overlap.Answer{Result: overlap.Finished, At: 30 * ms}},
		{Kind: observe.Rested, At: ms},
	}
}

// The scheduler goroutine pays for no memory.
func TestRecordDoesNotAllocate(t *testing.T) {
	r, events := NewRecorder([]string{"a"}), happened()
	if n := testing.AllocsPerRun(100, func() {
		for i := range events {
			r.Observe(&events[i])
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

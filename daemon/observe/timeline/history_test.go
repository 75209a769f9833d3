package timeline

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// historyRig has a ring see rounds and queries end.
type historyRig struct{ *Ring }

func newHistoryRig() historyRig { return historyRig{New(time.Now(), []models.Service{{Name: "a"}})} }

func (r historyRig) round(at, took time.Duration, g observe.Gain) {
	r.Observe(&observe.Event{Kind: observe.Ended, At: at, Outcome: &models.Outcome{Took: took}, Gain: g})
}

func (r historyRig) query(at, latency time.Duration, result overlap.Result, reason overlap.Reason) {
	c := &query.Call{Service: query.NewService(0, "a"), Arrival: r.epoch.Add(at - latency)}
	c.Service.QoSTarget = 100 * time.Millisecond
	r.Observe(&observe.Event{Kind: observe.Answered, Call: c, Answer: &overlap.Answer{Result: result, Reason: reason, At: at}})
}

func (r historyRig) refusal(at time.Duration, err error) {
	r.Observe(&observe.Event{Kind: observe.Refused, At: at, Call: &query.Call{Service: query.NewService(0, "a")}, Err: err})
}

// A history has a value for each step, also of those in which nothing happened.
func TestHistory(t *testing.T) {
	r := newHistoryRig()
	const ms = time.Millisecond
	r.round(time.Second, 40*ms, observe.Gain{Overlap: 10 * ms, Merge: -2 * ms})
	r.round(4*time.Second, 40*ms, observe.Gain{Overlap: 5 * ms})
	r.query(2*time.Second, 50*ms, overlap.Finished, overlap.ReasonNone)
	r.query(2*time.Second, 150*ms, overlap.Finished, overlap.ReasonNone)
	r.query(2*time.Second, 150*ms, overlap.Cancelled, overlap.ReasonCancelled)
	r.round(11*time.Second, 70*ms, observe.Gain{Merge: 3 * ms})
	r.query(11*time.Second, 50*ms, overlap.Dropped, overlap.ReasonCannotFinish)
	r.query(12*time.Second, 50*ms, overlap.Failed, overlap.ReasonWorkerLost)
	r.refusal(13*time.Second, overlap.ErrQueueFull)
	r.refusal(13*time.Second, overlap.ErrQueueFull)

	r.Observe(&observe.Event{Kind: observe.TurnedAway, At: 14 * time.Second, Service: &models.Service{}, Turned: turnedAway(map[string]uint64{query.ReasonGivenUp: 5, query.ReasonQueueFull: 1})})
	h := r.historyUpTo(16 * time.Second)
	if h.First != 0 || h.Step != historyStep || !slices.Equal(h.Overlap, []time.Duration{15 * ms, 0, 0, 0}) || !slices.Equal(h.Merge, []time.Duration{-2 * ms, 0, 3 * ms, 0}) ||
		!slices.Equal(h.Busy, []time.Duration{80 * ms, 0, 70 * ms, 0}) || !slices.Equal(h.InTime, []uint64{1, 0, 0, 0}) {
		t.Errorf("%+v", h)
	}
	want := map[string][]uint64{"late": {1, 0, 0, 0}, "cannot_finish": {0, 0, 1, 0}, "worker_lost": {0, 0, 1, 0}, "queue_full": {0, 0, 3, 0}, "given_up": {0, 0, 5, 0}}
	if !maps.EqualFunc(h.Lost, want, slices.Equal) {
		t.Errorf("lost %v, want %v", h.Lost, want)
	}
	if s := h.Services[0]; len(h.Services) != 1 || s.Name != "a" || !slices.Equal(s.InTime, []uint64{1, 0, 0, 0}) || !slices.Equal(s.Lost, []uint64{1, 0, 10, 0}) ||
		!slices.Equal(s.Slowest, []time.Duration{150 * ms, 0, 0, 0}) {
		t.Errorf("of the service: %+v", s)
	}
	r.Observe(&observe.Event{Kind: observe.Dropped, Service: &models.Service{}})
	if h = r.historyUpTo(16 * time.Second); len(h.Services) != 0 || h.InTime[0] != 1 {
		t.Errorf("once the service is gone: %+v", h)
	}
}

// turnedAway returns counts by reason as an event has them.
func turnedAway(counts map[string]uint64) *[len(query.TurnedAwayFor)]uint64 {
	var list [len(query.TurnedAwayFor)]uint64
	for i, reason := range query.TurnedAwayFor {
		list[i] = counts[reason]
	}
	return &list
}

// What is older than the history is long is forgotten, and nothing of it shows in the
// step that has its place.
func TestHistoryForgets(t *testing.T) {
	r := newHistoryRig()
	for n := range int64(3 * historyPoints) {
		if n%historyPoints == 7 && n > historyPoints {
			continue // a quiet step where there was one before
		}
		r.round(time.Duration(n)*historyStep, time.Duration(n), observe.Gain{Overlap: 1})
		r.query(time.Duration(n)*historyStep, time.Hour, overlap.Finished, overlap.ReasonNone)
	}
	h := r.historyUpTo((3*historyPoints - 1) * historyStep)
	if h.First != 2*historyPoints || len(h.Busy) != historyPoints || len(h.Lost["late"]) != historyPoints {
		t.Fatalf("%d points from %d on", len(h.Busy), h.First)
	}
	for i := range h.Busy {
		want, lost := time.Duration(2*historyPoints+i), uint64(1)
		if i == 7 {
			want, lost = 0, 0
		}
		if h.Busy[i] != want || h.Lost["late"][i] != lost {
			t.Errorf("point %d: busy %d, late %d", i, h.Busy[i], h.Lost["late"][i])
		}
	}
	if quiet := r.historyUpTo(1000 * historyPoints * historyStep); len(quiet.Lost) != 0 || slices.Max(quiet.Busy) != 0 {
		t.Errorf("after a long rest: %+v", quiet)
	}
}

// What is gained now is that of the latest steps; the sum is of all.
func TestGainOfNow(t *testing.T) {
	r := newHistoryRig()
	if sum, overlapped, merged := r.Gained(0); sum != (observe.Gain{}) || overlapped != 0 || merged != 0 {
		t.Errorf("before anything: %v, %v, %v", sum, overlapped, merged)
	}
	for s := range time.Duration(60) {
		r.round(s*time.Second, time.Second, observe.Gain{Overlap: 300 * time.Millisecond, Merge: 100 * time.Millisecond})
	}
	sum, overlapped, merged := r.Gained(60 * time.Second)
	if sum.Overlap != 18*time.Second || sum.Merge != 6*time.Second || overlapped != 0.3 || merged != 0.1 {
		t.Errorf("%v, %v, %v", sum, overlapped, merged)
	}
	if sum, overlapped, _ = r.Gained(90 * time.Second); sum.Overlap != 18*time.Second || overlapped != 0 {
		t.Errorf("half a minute later: %v, %v", sum, overlapped)
	}
}

package overlap

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// A snapshot changes no decision: a scheduler that goes on after its own, and one that is restored
// from it, decide as one does of which none is ever taken.
func TestSnapshotChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin(t)
		take := func(*rapid.T) {
			if !w.b.Planned() {
				w.b.Snapshot()
			}
		}
		w.run(map[string]func(*rapid.T){"restore": w.restore, "snapshot": take, "snapshot ": take})
	})
}

// A scheduler that is replaced by its own snapshot goes on as the one would
// that was not.
func TestRestoredGoesOnAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin(t)
		w.run(map[string]func(*rapid.T){"restore": w.restore, "restore ": w.restore})
	})
}

// restore replaces the second scheduler, unless it has a plan.
func (w *twin) restore(*rapid.T) {
	if w.b.Planned() {
		return
	}
	before := w.b.Snapshot()
	text, err := json.Marshal(before)
	if err != nil {
		w.Fatal(err)
	}
	var k Snapshot
	if err := json.Unmarshal(text, &k); err != nil {
		w.Fatal(err)
	}
	calls := w.costs.calls
	s := newScheduler(w.config, w.b.backlog.policy)
	if err := s.restore(&k); err != nil {
		w.Fatal(err)
	}
	if w.costs.calls != calls {
		w.Fatal("the predictor was asked")
	}
	w.same("snapshot", before, s.Snapshot())
	w.b = s
}

// What was not taken yet is not lost.
func TestRestoreKeepsWhatEnded(t *testing.T) {
	s := paused(t)
	s.cancel(s.backlog.now, 1)
	if n, m := len(s.backlog.answers.fill), len(s.backlog.released.fill); n != 1 || m != 1 {
		t.Fatalf("%d answers and %d releases wait", n, m)
	}
	r := newScheduler(goodConfig(2), together{operators: 2})
	k := s.Snapshot()
	if err := r.restore(&k); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{s.backlog.answers.take(), s.backlog.released.take()}, []any{r.backlog.answers.take(), r.backlog.released.take()}); diff != "" {
		t.Error(diff)
	}
}

// paused returns a scheduler with a batch that waits for its next round, one
// query that waits in a queue and the round 2 that runs.
func paused(t *testing.T) *Scheduler {
	t.Helper()
	s := newScheduler(goodConfig(2), together{operators: 2})
	arrive := func(id models.QueryID, service models.ServiceID) {
		q := models.Query{ID: id, Service: service, Size: 1, Deadline: time.Hour}
		if err := s.arrive(0, q); err != nil {
			t.Fatal(err)
		}
	}
	arrive(1, 0)
	r, ok := s.next(0)
	if !ok {
		t.Fatal("no round")
	}
	if err := s.finish(1, models.Outcome{Round: r.Number, Spans: []models.SpanOutcome{{Span: models.Span{Batch: 1}, Reached: 2}}}); err != nil {
		t.Fatal(err)
	}
	if s.backlog.paused.len() != 1 {
		t.Fatal("nothing is paused")
	}
	s.backlog.services[0].up.clear(0) // so that it stays
	arrive(2, 1)
	if _, ok := s.next(1); !ok {
		t.Fatal("no round")
	}
	s.backlog.services[0].up.set(0)
	arrive(3, 1)
	return s
}

func TestRestoreRefuses(t *testing.T) {
	for name, spoil := range map[string]func(k *Snapshot){
		"services":          func(k *Snapshot) { k.Services = k.Services[:1] },
		"metrics":           func(k *Snapshot) { k.Metrics.Services = nil },
		"operators":         func(k *Snapshot) { k.Services[0].Operators = 0 },
		"service of query":  func(k *Snapshot) { k.Waiting[0].Query.Service = 2 },
		"size of query":     func(k *Snapshot) { k.Waiting[0].Query.Size = 0 },
		"query twice":       func(k *Snapshot) { k.Waiting = append(k.Waiting, k.Waiting[0]) },
		"query in batch":    func(k *Snapshot) { k.Waiting[0].Query.ID = 1 },
		"queue":             func(k *Snapshot) { k.Services[1].Queue = nil },
		"foreign queue":     func(k *Snapshot) { k.Services[0].Queue = k.Services[1].Queue },
		"queued twice":      func(k *Snapshot) { k.Services[1].Queue = append(k.Services[1].Queue, 3) },
		"batch ID":          func(k *Snapshot) { k.LastBatch = 1 },
		"batch twice":       func(k *Snapshot) { k.Batches[1].ID = 1 },
		"service of batch":  func(k *Snapshot) { k.Batches[0].Service = -1 },
		"no members":        func(k *Snapshot) { k.Batches[0].Members = nil },
		"member's service":  func(k *Snapshot) { k.Batches[0].Members[0].Query.Service = 1 },
		"position":          func(k *Snapshot) { k.Batches[0].Next = 1 << 30 },
		"size of batch":     func(k *Snapshot) { k.Batches[0].Size = 1 << 20 },
		"paused nowhere":    func(k *Snapshot) { k.Services[0].Paused = nil },
		"paused elsewhere":  func(k *Snapshot) { k.Services[1].Paused, k.Services[0].Paused = k.Services[0].Paused, nil },
		"runs and waits":    func(k *Snapshot) { k.Services[1].Paused = k.Running },
		"round of spans":    func(k *Snapshot) { k.Round.Spans = nil },
		"queries of spans":  func(k *Snapshot) { k.Round.Queries = nil },
		"running unknown":   func(k *Snapshot) { k.Running[0] = 7 },
		"running elsewhere": func(k *Snapshot) { k.Round.Spans[0].Start++ },
		"running idle":      func(k *Snapshot) { k.Busy = false },
		"busy without":      func(k *Snapshot) { k.Running, k.Round.Spans, k.Round.Queries = nil, nil, nil },
		"no name":           func(k *Snapshot) { k.Services = append(k.Services, serviceSnapshot{}) },
		"too many":          func(k *Snapshot) { k.Services = make([]serviceSnapshot, MaxServices+1) },
		"runs and overruns": func(k *Snapshot) { k.Batches[1].Overrun.End = 4 },
		"overrun elsewhere": func(k *Snapshot) { k.Batches[0].Overrun.End = 1 << 30 },
		"answered in queue": func(k *Snapshot) { k.Waiting[0].Answered = true },
		"removed":           func(k *Snapshot) { k.Services[0].Removed = true },
		"removed with work": func(k *Snapshot) { k.Services[1] = serviceSnapshot{Removed: true} },
		"removed, metrics": func(k *Snapshot) {
			k.Services = append(k.Services, serviceSnapshot{Removed: true})
			k.Metrics.Services = append(k.Metrics.Services, ServiceMetrics{Arrived: 1})
		},
		"explored": func(k *Snapshot) { k.Services[0].Exploration.Shapes = make([]explored, maxExplored+1) },
	} {
		config := goodConfig(2)
		k := paused(t).Snapshot()
		if _, err := Restore(config, k); err != nil {
			t.Fatalf("unspoiled: %v", err)
		}
		spoil(&k)
		_, err := Restore(config, k)
		if err == nil || !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestSnapshotKnowsEveryField fails when state is added that a snapshot does
// not hold. Whoever adds a field adds it to the snapshot, or says here why
// not.
func TestSnapshotKnowsEveryField(t *testing.T) {
	for _, c := range []struct {
		of    any
		known map[string]string // how each field is kept
	}{
		{Scheduler{}, map[string]string{
			"backlog": "by its fields", "rounds": "the latest Round",
			"draft": "scratch, or a plan", "planned": "there must be no plan", "last": "for Explain only",
			"explained": "scratch", "triages": "only told apart from others", "metrics": "Metrics",
		}},
		{backlog{}, map[string]string{
			"policy": "Config", "host": "by its fields", "roundTime": "Config", "maxRetries": "Config", "lastID": "LastBatch",
			"now": "Now", "draining": "Draining", "services": "Services", "queries": "rebuilt",
			"waiting": "Waiting", "ranked": "counted again", "paused": "Batches", "pool": "memory only",
			"answers": "Answers", "released": "Released", "stops": "Stops",
			"families": "made of Services", "selector": "Config", "moves": "Moves", "transits": "by its fields", "routes": "by its fields",
		}},
		{transits{}, map[string]string{"piped": "Services", "onWay": "Batches", "blocked": "by Batches"}},
		{routes{}, map[string]string{"s": "itself", "tables": "Estimates, and by Batches", "members": "scratch"}},
		{host{}, map[string]string{"devices": "the first and Further", "overruns": "by Batches", "idle": "by Busy", "holding": "by Batches"}},
		{device{}, map[string]string{
			"index": "its position", "kind": "Config", "alone": "Config", "predict": "Config, and scratch", "paused": "by Batches",
			"units": "Config", "shares": "Config", "free": "by Running and Batches", "slots": "the first and Slots", "crowd": "Crowd, of several units",
		}},
		{slot{}, map[string]string{"busy": "Busy", "round": "Round", "running": "Running"}},
		{replica{}, map[string]string{"paused": "Paused", "walk": "scratch", "exploration": "Exploration"}},
		{service{}, map[string]string{
			"Service": "whole", "serviceState": "whole", "family": "made of Services", "removed": "Removed", "queue": "Queue", "up": "Down", "busy": "by Batches", "replicas": "the first and Replicas",
			"full": "made of Service", "metrics": "Metrics", "view": "scratch", "line": "Intent and Travel",
		}},
		{query{}, map[string]string{
			"queryState": "whole", "postponed": "of one decision",
			"batch": "by being a member", "queuePos": "by Queue", "expiryPos": "by Waiting",
		}},
		{batch{}, map[string]string{
			"id": "ID", "service": "Service", "device": "Device", "members": "Members", "batchState": "whole", "running": "by Running", "postponed": "of one decision",
			"pausedPos": "by Paused", "expiryPos": "by Batches",
		}},
		{Metrics{}, map[string]string{"Rounds": "Rounds", "Busy": "Busy", "Plans": "Plans", "Services": "by service"}},
	} {
		typ := reflect.TypeOf(c.of)
		for i := range typ.NumField() {
			if name := typ.Field(i).Name; c.known[name] == "" {
				t.Errorf("%v.%s: is it in the snapshot, and does Restore set it?", typ, name)
			}
			delete(c.known, typ.Field(i).Name)
		}
		for name := range c.known {
			t.Errorf("%v has no field %s any more", typ, name)
		}
	}
}

func TestSnapshotOfNewScheduler(t *testing.T) {
	config := goodConfig(2)
	config.Policy = "edf"
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	k := s.Snapshot()
	if k.Now != math.MinInt64 {
		t.Errorf("its time is %v", k.Now)
	}
	r, err := Restore(config, k)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(k, r.Snapshot(), exported); diff != "" {
		t.Error(diff)
	}
}

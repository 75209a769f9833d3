package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// routed is a configuration of three devices, with a service that has pipelines and one
// that has none.
func routed(policy string, seed uint64) overlap.Config {
	c := testConfig(policy, 2, 2*seed+1)
	c.Units = nil
	c.Devices, c.Links = append(c.Devices, c.Devices[0], &learner{seed: seed + 1}), []int{0, 0, 1}
	c.Alone = []bool{false, true, false}
	for i := range c.Services {
		c.Services[i].QoSTarget, c.Services[i].MaxBatch = 200*time.Millisecond, 4
	}
	c.Services[0].Operators = 6
	c.Services[0].Pipelines = []models.Pipeline{
		{Batch: 4, Stages: []models.Stage{{End: 2, Devices: []int{0, 1}, Move: time.Millisecond}, {End: 6, Devices: []int{2}}}},
		{Batch: 2, Stages: []models.Stage{{End: 4, Devices: []int{2}, Move: time.Millisecond / 2}, {End: 6, Devices: []int{0}}}},
	}
	return c
}

// herd drives a scheduler of several devices at random.
type herd struct {
	s      *Tee
	rand   *rand.Rand
	now    time.Duration
	id     models.QueryID
	rounds [3]*overlap.Round
	moves  []overlap.Move
	moved  int
}

func (h *herd) step(c *overlap.Config) {
	h.now += time.Duration(h.rand.IntN(2000)) * time.Microsecond
	switch n := h.rand.IntN(100); {
	case n < 30:
		h.id++
		h.event(overlap.Event{Kind: overlap.Arrive, Query: models.Query{
			ID: h.id, Service: models.ServiceID(h.rand.IntN(2)), Size: 1 + h.rand.IntN(2),
			Arrival: h.now, Deadline: h.now + time.Duration(30+h.rand.IntN(200))*time.Millisecond,
		}})
	case n < 70:
		h.finish(h.rand.IntN(3))
	case n < 90 && len(h.moves) == 0:
	case n < 90:
		status := []models.Status{models.SpanDone, models.SpanDone, models.SpanDone, models.SpanLost}[h.rand.IntN(4)]
		i := h.rand.IntN(len(h.moves))
		m := h.moves[i]
		h.moves = slices.Delete(h.moves, i, i+1)
		h.event(overlap.Event{Kind: overlap.Moved, Move: m, Took: time.Duration(h.rand.IntN(9)) * time.Millisecond, Status: status})
		h.moved++
	case n < 91:
		h.event(overlap.Event{Kind: overlap.Down, Device: h.rand.IntN(3)})
	case n < 96:
		h.event(overlap.Event{Kind: overlap.Up, Device: h.rand.IntN(3)})
	case n < 97:
		m := c.Services[0]
		m.Pipelines = m.Pipelines[h.rand.IntN(1+len(m.Pipelines)/2):]
		h.event(overlap.Event{Kind: overlap.Change, Definition: m})
	case n < 98:
		h.event(overlap.Event{Kind: overlap.Cancel, Query: models.Query{ID: h.id - models.QueryID(h.rand.IntN(5))}})
	}
	for more := true; more; {
		r := h.s.Ready(h.now)
		if h.moves = append(h.moves, r.Moves...); r.Round != nil {
			round := *r.Round
			h.rounds[r.Round.Device] = &round
		}
		more = r.Wake <= h.now
	}
	h.s.Advance(h.now)
}

// event passes on what has happened, which may have been impossible.
func (h *herd) event(e overlap.Event) { _ = h.s.Step(h.now, &e) }

func (h *herd) finish(device int) {
	r := h.rounds[device]
	if r == nil {
		return
	}
	h.rounds[device] = nil
	o := models.Outcome{Round: r.Number, Device: device, Took: r.Predicted.Latency * time.Duration(80+h.rand.IntN(40)) / 100}
	for _, s := range r.Spans {
		o.Spans = append(o.Spans, models.SpanOutcome{Span: s, Reached: s.End, Took: o.Took})
	}
	h.now = max(h.now, r.Start+o.Took)
	h.event(overlap.Event{Kind: overlap.Finish, Outcome: o})
}

// A replay makes the reservations and the moves of pipelines again, in every file of a log.
func TestReplayOfPipelines(t *testing.T) {
	for _, policy := range []string{"overlap", "edf", "reactive", "abacus"} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s-%d", policy, seed), func(t *testing.T) {
				if moved := replayPool(t, routed(policy, seed), seed); moved < 30 {
					t.Errorf("%d batches were moved", moved)
				}
			})
		}
	}
}

// In a pool without pipelines a device that gets nothing may overturn the plan for another one.
func TestReplayOfAPool(t *testing.T) {
	for seed := range uint64(6) {
		c := routed("overlap", seed)
		c.Services[0].Pipelines = nil
		replayPool(t, c, seed)
	}
}

func replayPool(t *testing.T, c overlap.Config, seed uint64) (moved int) {
	t.Helper()
	o := quick()
	o.MaxFileBytes, o.MaxFiles = 1<<14, 1000
	s, w, dir := begin(t, c, o, createFile)
	h := &herd{s: s, rand: rand.New(rand.NewPCG(seed, 3))}
	for range 1500 {
		h.step(&c)
		w.keepUp()
	}
	if err := s.Scheduler.Check(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	logs, rounds := replayAll(t, dir), uint64(0)
	for _, l := range logs {
		rounds += l.Rounds
	}
	if len(logs) < 2 || rounds == 0 {
		t.Errorf("%d files, %d rounds", len(logs), rounds)
	}
	return h.moved
}

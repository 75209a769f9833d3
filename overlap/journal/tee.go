package journal

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Tee drives a scheduler and records every event that it passes on and what comes of it. One
// goroutine uses it, as it would use the scheduler.
type Tee struct {
	// Scheduler is for questions that change nothing.
	Scheduler *overlap.Scheduler

	sink sink

	// now is the latest time seen, as the scheduler takes it.
	now time.Duration

	// record is the last one, and what follows is its memory.
	record   record
	event    overlap.Event
	asked    asking
	text     json.RawMessage // asked, as the record refers to it
	variants []string
	answers  []answer
	why      overlap.Explanation
}

// sink takes records.
type sink interface {
	// begin is called before a scheduler, whose latest time is now, is given an event.
	begin(now time.Duration, s *overlap.Scheduler)

	// record takes the record of what was done. It keeps no part of it.
	record(r *record)
}

// New returns an idle scheduler that is recorded to w, which belongs to it from then on, or
// every fault of the configuration.
func New(config overlap.Config, w *Writer, header Header) (*Tee, error) {
	w.use(header, config)
	return newTee(config, w)
}

func newTee(config overlap.Config, to sink) (t *Tee, err error) {
	t = &Tee{sink: to, now: math.MinInt64}
	t.listen(&config)
	t.Scheduler, err = overlap.New(config)
	return t, err
}

// listen puts recorders in the places of the predictors and the selector of a configuration.
// Devices that had one predictor still do.
func (t *Tee) listen(c *overlap.Config) {
	all := make([]overlap.Predictor, len(c.Devices))
	for i, p := range c.Devices {
		if like := slices.Index(c.Devices[:i], p); like >= 0 {
			all[i] = all[like]
		} else if p != nil {
			all[i] = &predicting{p, t}
		}
	}
	c.Devices = all
	if c.Selector != nil {
		c.Selector = selecting{c.Selector, t}
	}
}

// predicting is a predictor whose questions and answers are recorded.
type predicting struct {
	overlap.Predictor
	by *Tee
}

// Predict implements overlap.Predictor.
func (p *predicting) Predict(groups []models.Group, estimates []models.Estimate) {
	p.Predictor.Predict(groups, estimates)
	p.by.asked.call(groups, estimates)
}

// selecting is a selector whose answers are recorded.
type selecting struct {
	overlap.Selector
	by *Tee
}

// Select implements overlap.Selector.
func (x selecting) Select(of string, waiting int, slack time.Duration) (variant string) {
	variant = x.Selector.Select(of, waiting, slack)
	x.by.variants = append(x.by.variants, variant)
	return variant
}

// Step is that of overlap.Scheduler.
func (t *Tee) Step(now time.Duration, e *overlap.Event) error {
	t.begin(now)
	err := t.Scheduler.Step(t.now, e)
	t.event = brought(e)
	t.record = record{Type: e.Kind.String(), Event: &t.event, Failure: failureName(err)}
	t.end()
	return err
}

// Ready is that of overlap.Scheduler. It is recorded unless it has changed nothing but the time,
// which later records hold.
func (t *Tee) Ready(now time.Duration) overlap.Ready {
	planned := t.Scheduler.Planned()
	t.begin(now)
	r := t.Scheduler.Ready(t.now)
	if r.Round == nil && !r.Ended() && !t.any() && planned == t.Scheduler.Planned() && !t.Scheduler.Routed() {
		return r
	}
	t.record = record{Type: typeReady, Round: r.Round, Stops: r.Stops, Answers: t.ended(r.Answers), Released: r.Released, Moves: r.Moves}
	if r.Round != nil {
		t.why = t.Scheduler.Explain()
		if t.record.Explanation = &t.why; !r.Round.Planned {
			t.why.For = 0 // which is the start of the round
		}
	}
	t.end()
	return r
}

// Advance is that of overlap.Scheduler. It is recorded if it asked for something, without which
// it decides nothing.
func (t *Tee) Advance(now time.Duration) {
	t.begin(now)
	if t.Scheduler.Advance(t.now); t.any() {
		t.record = record{Type: typeAdvance}
		t.end()
	}
}

func (t *Tee) begin(now time.Duration) {
	t.sink.begin(t.now, t.Scheduler)
	t.now = max(t.now, now)
	t.asked, t.variants = append(t.asked[:0], '['), t.variants[:0]
}

// any reports whether the predictor or the selector was asked.
func (t *Tee) any() bool { return len(t.asked) > 1 || len(t.variants) > 0 }

// end completes the record and hands it over.
func (t *Tee) end() {
	if t.record.At, t.record.Variants = t.now, t.variants; len(t.asked) > 1 {
		t.asked = append(t.asked, ']')
		t.text = json.RawMessage(t.asked)
		t.record.Asked = &t.text
	}
	t.sink.record(&t.record)
}

func (t *Tee) ended(answers []overlap.Answer) []answer {
	t.answers = t.answers[:0]
	for i := range answers {
		a := answer{ID: answers[i].Query, Result: answers[i].Result.String()}
		if why := answers[i].Reason; why != overlap.ReasonNone {
			a.Reason = why.String()
		}
		t.answers = append(t.answers, a)
	}
	return t.answers
}

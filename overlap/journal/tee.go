package journal

import (
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Tee drives a scheduler and records every event that it passes on and what the scheduler makes of
// it. One goroutine uses it, as it would use the scheduler.
type Tee struct {
	// Scheduler is for questions that change nothing.
	Scheduler *overlap.Scheduler

	log *Writer // nil in a replay, which reads record

	// now is the latest time seen, as the scheduler takes it.
	now time.Duration

	// record is the last one, and what follows is its memory.
	record   Record
	asked    asking
	variants []string
	answers  []answer
	why      overlap.Explanation
}

// New returns an idle scheduler that is recorded to w, which belongs to it from then on, or
// every fault of the configuration. Of the header, the caller sets Version, Commit, Device and Epoch.
func New(config overlap.Config, w *Writer, header Header) (t *Tee, err error) {
	t = &Tee{log: w, now: math.MinInt64}
	w.use(header, config)
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
	t.end(Record{Type: e.Kind.String(), Event: e, Failure: failure(err)})
	return err
}

// Ready is that of overlap.Scheduler. It is recorded unless it has changed nothing but the time,
// which later records hold.
func (t *Tee) Ready(now time.Duration) overlap.Ready {
	planned := t.Scheduler.Planned()
	t.begin(now)
	y := t.Scheduler.Ready(t.now)
	if y.Round == nil && !y.Ended() && !t.any() && planned == t.Scheduler.Planned() && !t.Scheduler.Routed() {
		return y
	}
	r := Record{Type: typeReady, Round: y.Round, Stops: y.Stops, Answers: t.ended(y.Answers), Released: y.Released, Moves: y.Moves}
	if y.Round != nil {
		t.why = t.Scheduler.Explain()
		if r.Explanation = &t.why; !y.Round.Planned {
			t.why.For = 0 // which is the start of the round
		}
	}
	t.end(r)
	return y
}

// Advance is that of overlap.Scheduler. It is recorded if it asked for something, without which
// it decides nothing.
func (t *Tee) Advance(now time.Duration) {
	t.begin(now)
	if t.Scheduler.Advance(t.now); t.any() {
		t.end(Record{Type: typeAdvance})
	}
}

func (t *Tee) begin(now time.Duration) {
	if t.log != nil {
		t.log.begin(t.Scheduler)
	}
	t.now = max(t.now, now)
	t.asked, t.variants = append(t.asked[:0], '['), t.variants[:0]
}

// any reports whether the predictor or the selector was asked.
func (t *Tee) any() bool { return len(t.asked) > 1 || len(t.variants) > 0 }

// end completes the record and hands it over.
func (t *Tee) end(r Record) {
	if r.At, r.Variants = t.now, t.variants; len(t.asked) > 1 {
		r.Asked = &t.asked
	}
	if t.record = r; t.log != nil {
		t.log.record(&t.record)
	}
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

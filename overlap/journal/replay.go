package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// ReplayOptions is what of a log is replayed.
type ReplayOptions struct {
	From, To uint64 // rounds to report, 0 for no bound; the replay ends after To
	Policy   string // refused with ErrPolicy unless it is that of the log, "" for any

	// Each is called for every round to report once it is over, with the report
	// so far.
	Each func(*Report, *Round)
}

// Replay gives a scheduler the events of a log and compares what it decides
// with what is in the log, up to the first difference, which is part of the
// report. Messages call the log by the name.
func Replay(name string, log io.Reader, o ReplayOptions) (*Report, error) {
	in, err := newReader(name, log)
	if err != nil {
		return nil, err
	}
	c := in.head.Config.Config
	if o.Policy != "" && o.Policy != c.Policy {
		return nil, fmt.Errorf("%s was recorded with policy %.80q, not %.80q: %w", name, c.Policy, o.Policy, ErrPolicy)
	}
	p := &replay{options: o, in: in, config: c, report: newReport(&in.head)}
	for !p.over {
		rec, err := in.read()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		if err := p.take(rec); err != nil {
			return nil, err
		}
	}
	p.end(nil)
	p.report.Torn = in.torn
	p.report.finish()
	return p.report, nil
}

// replay is a scheduler and the log that drives it.
type replay struct {
	options   ReplayOptions
	in        *reader
	config    overlap.Config
	tee       *Tee
	decided   capture
	predictor answering
	selector  selected
	report    *Report
	over      bool

	// round is the one that runs, nil if it was not seen from its start. ended is the one that
	// has ended last, until it is reported.
	round, ended *Round

	// plan is what was asked for the last plan, and planning the time that it took.
	plan     [][]question
	planning time.Duration
}

// take replays one record.
func (p *replay) take(r *record) error {
	switch r.Type {
	case typeCheckpoint:
		return p.restore(r)
	case typeGap:
		p.report.Gaps++
		p.report.Lost += r.Lost
		return nil
	}
	p.report.event(r.At)
	p.predictor.recorded, p.selector = slices.Concat(r.calls...), r.Variants
	p.decided.last = &record{Type: r.Type, At: r.At} // if it is left out
	start := time.Now()
	ready := p.drive(r)
	took := time.Since(start)
	if d := compare(r, p.decided.last); d != nil {
		p.report.Difference, p.over = d, true
		if p.round != nil {
			d.Round = p.round.Number
		}
		return nil
	}
	p.account(r, &ready, took)
	return nil
}

func (p *replay) restore(r *record) error {
	t, c := &Tee{sink: &p.decided, now: r.State.Now}, p.config
	var err error
	if c.Devices, err = p.devices(); err != nil {
		return p.in.fault(ErrCheckpoint, err.Error())
	}
	if p.in.head.Config.Selects {
		c.Selector = &p.selector
	}
	t.listen(&c)
	if t.Scheduler, err = overlap.Restore(c, *r.State); err != nil {
		return p.in.fault(ErrCheckpoint, err.Error())
	}
	p.end(nil)
	p.tee, p.round = t, nil
	for _, m := range r.State.Definitions() {
		p.report.service(m)
	}
	p.report.Checkpoints++
	return nil
}

// devices returns what predicts the devices, by what is recorded.
func (p *replay) devices() (all []overlap.Predictor, err error) {
	kinds := p.in.head.Config.Devices
	if len(kinds) == 0 {
		kinds = []int{0}
	}
	for i, like := range kinds {
		if like < 0 || like > i {
			return nil, fmt.Errorf("device %d is like device %d, which does not come before it", i, like)
		}
		all = append(all, &device{&p.predictor})
		all[i] = all[like]
	}
	return all, nil
}

// drive gives the scheduler an event, or asks it what to do. The record that the tee makes holds
// the outcome.
func (p *replay) drive(r *record) (ready overlap.Ready) {
	switch r.Type {
	case typeReady:
		return p.tee.Ready(r.At)
	case typeAdvance:
		p.tee.Advance(r.At)
	default:
		_ = p.tee.Step(r.At, r.Event)
	}
	return ready
}

// account adds a record that was reproduced to the report.
func (p *replay) account(r *record, ready *overlap.Ready, took time.Duration) {
	switch {
	case r.Kind == overlap.Add && r.Failure == "":
		p.report.service(r.Definition)
	case r.Kind == overlap.Arrive && r.Failure == "":
		p.report.Arrived++
	case r.Kind == overlap.Finish && p.round != nil && r.Outcome.Round == p.round.Number:
		p.end(nil)
		p.ended, p.round = p.round, nil
		p.ended.Outcome, p.ended.Finished = r.Outcome, r.At
	case r.Type == typeAdvance:
		p.plan, p.planning = r.calls, took
	case r.Type == typeReady && r.Round == nil:
		p.end(ready.Answers)
	case r.Type == typeReady:
		if p.end(nil); p.over {
			return
		}
		p.round = &Round{
			Round: *r.Round, Why: *r.Explanation, Line: r.line, At: r.At, Calls: r.calls, Decision: took, Dropped: slices.Clone(ready.Answers),
		}
		if p.round.Planned {
			p.round.Calls = append(p.plan, p.round.Calls...)
			p.round.Decision += p.planning
		}
	}
	for i := range ready.Answers {
		p.report.answer(&ready.Answers[i])
	}
}

// end reports the round that has ended, if there is one, with the answers that were given then.
func (p *replay) end(answers []overlap.Answer) {
	round, o := p.ended, &p.options
	if round == nil {
		return
	}
	p.ended, round.Answers = nil, slices.Clone(answers)
	if o.From <= round.Number && (o.To == 0 || round.Number <= o.To) {
		p.report.round(round)
		if o.Each != nil {
			o.Each(p.report, round)
		}
	}
	p.over = p.over || o.To != 0 && round.Number >= o.To
}

// capture is a sink that lends the last record.
type capture struct{ last *record }

func (c *capture) begin(time.Duration, *overlap.Scheduler) {}
func (c *capture) record(r *record)                        { c.last = r }

// device is the predictor of one device, told apart from those of others.
type device struct{ *answering }

// answering is a predictor that answers what it answered when the log was
// recorded. What it was not asked then it does not know; that it is asked shows
// in the record.
type answering struct{ recorded []question } // of the event that is replayed

// Predict implements overlap.Predictor.
func (a *answering) Predict(groups []models.Group, estimates []models.Estimate) {
	for i := range groups {
		estimates[i] = models.Estimate{}
		if len(a.recorded) > 0 && slices.EqualFunc(a.recorded[0].Group.Spans, groups[i].Spans, alike) {
			estimates[i] = a.recorded[0].Estimate
			a.recorded = a.recorded[1:]
		} else {
			a.recorded = nil
		}
	}
}

// selected is a selector that answers what it answered when the log was recorded.
type selected []string

// Select implements overlap.Selector.
func (a *selected) Select(string, int, time.Duration) (variant string) {
	if len(*a) > 0 {
		variant, *a = (*a)[0], (*a)[1:]
	}
	return variant
}

// difference is where a replay decided otherwise than the log has it.
type difference struct {
	Line  int           `json:"line"`
	Event string        `json:"event"`
	At    time.Duration `json:"at_ns"`
	// Round is the one that was running, 0 for none.
	Round uint64 `json:"round,omitempty"`
	// Field is the key of the first field that differs, What that in words.
	Field   string `json:"field"`
	What    string `json:"what"`
	Logged  string `json:"logged"`
	Decided string `json:"decided"`
}

// differences are the fields that hold what was decided, in the order in which they are compared,
// and what they are called.
var differences = []struct{ key, what string }{
	{"p", "what the predictor was asked"}, {"v", "the variants that were selected"}, {"c", "the candidates"},
	{"solo", "the isolated latency of the group"}, {"limit", "the time that the group had to respect"}, {"planned", "whether the round was planned"},
	{"for", "the time that the round was decided for"}, {"number", "the round"}, {"predicted", "the predicted time"}, {"g", "the group"},
	{"q", "the queries of the group"}, {"stop", "the batches to stop"}, {"err", "the refusal"}, {"a", "the queries that ended"},
	{"r", "the batches that were released"}, {"m", "the batches that move"},
}

// nothing stands for a field that a log or a replay leaves out.
const nothing = "nothing"

// compare returns the first difference between a record and the one that a scheduler made of the
// same event now, or nil. What was decided comes before what the event brought.
func compare(logged, decided *record) *difference {
	var was bytes.Buffer
	is := newLines()
	if is.put(decided) == nil && json.Compact(&was, logged.text) == nil && bytes.Equal(bytes.TrimSuffix(is.text.Bytes(), []byte("\n")), was.Bytes()) {
		return nil
	}
	a, b := members(was.Bytes()), members(is.text.Bytes())
	differs := func(key, what string) *difference {
		d := &difference{
			Line: logged.line, Event: logged.Type, At: logged.At, Field: key, What: what,
			Logged: cmp.Or(string(a[key]), nothing), Decided: cmp.Or(string(b[key]), nothing),
		}
		if d.Logged == d.Decided {
			return nil
		}
		if key == "p" {
			d.Logged, d.Decided = apart(questionTexts(d.Logged), questionTexts(d.Decided))
		}
		return d
	}
	for _, f := range differences {
		if d := differs(f.key, f.what); d != nil {
			return d
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if d := differs(key, "the event itself"); d != nil {
			return d
		}
	}
	return nil
}

// members returns the fields of a record by their keys, those of its round among them.
func members(text []byte) (all map[string]json.RawMessage) {
	var round map[string]json.RawMessage
	_ = json.Unmarshal(text, &all)
	_ = json.Unmarshal(all["round"], &round) // none
	delete(all, "round")
	maps.Copy(all, round)
	return all
}

// questionTexts returns what the predictor was asked, each group with its place.
func questionTexts(asked string) (texts []string) {
	var calls [][]json.RawMessage
	_ = strict([]byte(asked), &calls) // none, if nothing was asked
	for i, call := range calls {
		for j, group := range call {
			texts = append(texts, fmt.Sprintf("call %d, group %d: %s", i+1, j+1, group))
		}
	}
	return texts
}

// apart returns the first items of two lists that are not the same.
func apart(a, b []string) (string, string) {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	a, b = append(a, nothing), append(b, nothing)
	return a[i], b[i]
}

package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
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
	p := &replay{options: o, in: in, config: c, kinds: in.head.Config.Devices, report: newReport(&in.head)}
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
	p.report.Torn = in.torn
	p.report.finish()
	return p.report, nil
}

// replay is a scheduler and the log that drives it.
type replay struct {
	options   ReplayOptions
	in        *reader
	config    overlap.Config
	kinds     []int // of the devices
	s         *Scheduler
	decided   capture
	predictor answering
	selector  selected
	round     *Round        // the one that runs, nil if it was not seen from its start
	plan      [][]question  // what the last plan was made from
	planning  time.Duration // how long that took
	report    *Report
	over      bool
}

// take replays one record.
func (p *replay) take(r *record) error {
	switch r.Event {
	case eventCheckpoint:
		return p.restore(r)
	case eventGap:
		p.report.Gaps++
		p.report.Lost += r.Lost
		return nil
	}
	p.report.event(r.At)
	p.predictor.recorded, p.selector = slices.Concat(r.calls...), r.Variants
	p.decided.last = &record{Event: r.Event, At: r.At} // if it is left out
	start := time.Now()
	p.drive(r)
	took := time.Since(start)
	if d := compare(r, p.decided.last); d != nil {
		p.report.Difference, p.over = d, true
		if p.round != nil {
			d.Round = p.round.Number
		}
		return nil
	}
	answers := p.s.Answers()
	p.s.Released()
	p.s.Stops()
	p.s.Moves()
	p.account(r, answers, took)
	return nil
}

func (p *replay) restore(r *record) error {
	s := &Scheduler{sink: &p.decided, now: r.State.Now}
	var err error
	if p.config.Devices, err = p.devices(); err != nil {
		return p.in.fault(ErrCheckpoint, err.Error())
	}
	p.config.Devices, p.config.Selector = s.listen(p.config.Devices), nil
	if p.in.head.Config.Selects {
		p.config.Selector = s.listenTo(&p.selector)
	}
	if s.Scheduler, err = overlap.Restore(p.config, *r.State); err != nil {
		return p.in.fault(ErrCheckpoint, err.Error())
	}
	s.count()
	p.s, p.round = s, nil
	for _, m := range r.State.Definitions() {
		p.report.service(m)
		s.routed = s.routed || len(m.Pipelines) > 0
	}
	p.report.Checkpoints++
	return nil
}

// devices returns what predicts the devices, by what is recorded.
func (p *replay) devices() (all []overlap.Predictor, err error) {
	if len(p.kinds) == 0 {
		return []overlap.Predictor{&device{&p.predictor}}, nil
	}
	for i, like := range p.kinds {
		switch {
		case like == i:
			all = append(all, &device{&p.predictor})
		case like >= 0 && like < i:
			all = append(all, all[like])
		default:
			return nil, fmt.Errorf("device %d is like device %d, which does not come before it", i, like)
		}
	}
	return all, nil
}

// drive gives the scheduler an event. What it returns is in the record
// that it makes.
func (p *replay) drive(r *record) {
	switch r.Event {
	case eventArrive:
		_ = p.s.Arrive(r.At, r.query())
	case eventNext:
		p.s.Next(r.At)
	case eventPlan:
		p.s.Plan(r.At)
	case eventFinish:
		_ = p.s.Finish(r.At, r.outcome())
	case eventMoved:
		m, status := r.moved()
		_ = p.s.Moved(r.At, m, r.Took, status)
	case eventCancel:
		p.s.Cancel(r.At, r.ID)
	case eventDown:
		p.s.Down(r.At, r.Service, r.Device)
	case eventUp:
		p.s.Up(r.At, r.Service, r.Device)
	case eventLoad:
		_ = p.s.Load(r.At, *r.Defined)
	case eventAdd:
		_ = p.s.Add(r.At, *r.Defined)
	case eventChange:
		_ = p.s.Change(r.At, *r.Defined)
	case eventRemove:
		_ = p.s.Remove(r.At, r.Service)
	case eventDrain:
		p.s.Drain(r.At)
	}
}

// account takes a record that was reproduced into the report.
func (p *replay) account(r *record, answers []overlap.Answer, took time.Duration) {
	switch {
	case r.Event == eventAdd && r.Failure == "":
		p.report.service(*r.Defined)
	case r.Event == eventPlan:
		p.plan, p.planning = r.calls, took
	case r.Event == eventNext && r.Round != 0:
		p.round = newRound(r, answers, took)
		if p.round.Planned {
			p.round.Calls = append(p.plan, p.round.Calls...)
			p.round.Decision += p.planning
		}
	case r.Event == eventFinish && p.round != nil && r.Round == p.round.Number:
		p.round.Outcome, p.round.Finished, p.round.Answers = r.outcome(), r.At, slices.Clone(answers)
		p.end()
	}
	for i := range answers {
		p.report.answer(&answers[i])
	}
	if r.Event == eventArrive && r.Failure == "" {
		p.report.Arrived++
	}
}

// end reports the round that is over.
func (p *replay) end() {
	round := p.round
	p.round = nil
	o := &p.options
	if o.From <= round.Number && (o.To == 0 || round.Number <= o.To) {
		p.report.round(round)
		if o.Each != nil {
			o.Each(p.report, round)
		}
	}
	p.over = o.To != 0 && round.Number >= o.To
}

// capture is a sink that lends the last record.
type capture struct{ last *record }

func (c *capture) begin(time.Duration, *overlap.Scheduler) bool { return true }
func (c *capture) record(r *record)                             { c.last = r }

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

// nothing stands for a field that a log or a replay leaves out.
const nothing = "nothing"

// compare returns the first difference between a record and the one that a
// scheduler made of the same event now, or nil. What was decided comes before
// what the event brought.
func compare(logged, decided *record) *difference {
	var same line
	if same.put(decided) == nil && bytes.Equal(bytes.TrimSuffix(same, []byte("\n")), logged.text) {
		return nil
	}
	d := &difference{Line: logged.line, Event: string(logged.Event), At: logged.At}
	was, is := reflect.ValueOf(logged).Elem(), reflect.ValueOf(decided).Elem()
	for _, decisions := range []bool{true, false} {
		for i := range was.NumField() {
			tag := was.Type().Field(i).Tag
			what := tag.Get("what")
			if d.Field, _, _ = strings.Cut(tag.Get("json"), ","); d.Field == "" || decisions != (what != "") {
				continue
			}
			d.What = cmp.Or(what, "the event itself")
			if d.Logged, d.Decided = text(was.Field(i)), text(is.Field(i)); d.Logged == d.Decided {
				continue
			}
			if d.Field == "p" {
				d.Logged, d.Decided = apart(questionTexts(d.Logged), questionTexts(d.Decided))
			}
			return d
		}
	}
	return nil
}

// text returns a field as it stands in a log.
func text(v reflect.Value) string {
	if zero(v) {
		return nothing
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return string(b)
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

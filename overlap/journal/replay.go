package journal

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Log is a log that was replayed, or the part of it so far.
type Log struct {
	Header
	Records, Rounds uint64
	Torn            bool // the last line has no end, and was left out
}

// Difference is the error of a scheduler that decided otherwise than a log has it.
type Difference struct {
	Line   int           `json:"line"`
	Column int           `json:"column"`
	Event  string        `json:"event"`
	At     time.Duration `json:"at_ns"`

	// Logged and Decided are what the line has around the column, and what it would have now.
	Logged  string `json:"logged"`
	Decided string `json:"decided"`
}

func (d *Difference) Error() string {
	return fmt.Sprintf("line %d, column %d: %s at %v\n  logged:  %s\n  decided: %s", d.Line, d.Column, d.Event, d.At, d.Logged, d.Decided)
}

// Replay gives a scheduler the events of a log and compares what it decides with what is in the
// log. The first difference is an error, of type [*Difference]. Errors call the log by the name.
// Each record that came out as it was is passed to each, which returns whether to go on.
func Replay(name string, in io.Reader, each func(*Log, *Record) bool) (l *Log, err error) {
	r := newReader(name, in)
	l = &Log{}
	if l.Header, err = r.header(); err != nil {
		return nil, err
	}
	p, err := newReplay(&l.Header)
	if err != nil {
		return nil, r.fault(fmt.Errorf("impossible state: %w", err), damaged)
	}
	for {
		logged, text, err := r.record()
		if l.Torn = r.torn; err == io.EOF {
			return l, nil
		} else if err != nil {
			return nil, err
		}
		p.drive(logged)
		if d := p.compare(logged, text); d != nil {
			return l, d
		}
		if l.Records++; logged.Round != nil {
			l.Rounds++
		}
		if !each(l, logged) {
			return l, nil
		}
	}
}

// replay is a scheduler that a log drives.
type replay struct {
	tee       *Tee
	predictor answering
	selector  selected
	line      *lines // scratch of compare
}

// newReplay returns the scheduler as it was when a file began.
func newReplay(h *Header) (*replay, error) {
	p := &replay{tee: &Tee{now: h.State.Now}, line: newLines()}
	c, devices := h.Config.Config, map[int]overlap.Predictor{}
	for _, i := range h.Config.Devices {
		if devices[i] == nil {
			devices[i] = &device{&p.predictor}
		}
		c.Devices = append(c.Devices, devices[i])
	}
	if h.Config.Selects {
		c.Selector = &p.selector
	}
	p.tee.listen(&c)
	var err error
	p.tee.Scheduler, err = overlap.Restore(c, *h.State)
	return p, err
}

// drive repeats the event or call of a record. The tee then holds a record of the result.
func (p *replay) drive(r *Record) {
	p.predictor.recorded, p.selector = slices.Concat(r.Calls...), r.Variants
	p.tee.record = Record{Type: r.Type, At: r.At} // unless another is made
	switch r.Type {
	case typeReady:
		r.Ended = slices.Clone(p.tee.Ready(r.At).Answers)
	case typeAdvance:
		p.tee.Advance(r.At)
	default:
		_ = p.tee.Step(r.At, r.Event)
	}
}

// compare returns the first difference between a record and the one that was made now, or nil. What
// was asked comes before what was decided from it.
func (p *replay) compare(logged *Record, was []byte) error {
	p.line.Reset()
	_ = p.line.encoder.Encode(&p.tee.record)
	is := bytes.TrimSuffix(p.line.Bytes(), []byte("\n"))
	if bytes.Equal(was, is) {
		return nil
	}
	at := 0
	for at < min(len(was), len(is)) && was[at] == is[at] {
		at++
	}
	return &Difference{
		Line: logged.Line, Column: at + 1, Event: logged.Type, At: logged.At, Logged: around(was, at), Decided: around(is, at),
	}
}

// around returns a part of a line with its last key before a position.
func around(text []byte, at int) string {
	const before, after = 60, 100
	key := bytes.LastIndex(text[:min(at+1, len(text))], []byte(`,"`)) + 1
	head := ""
	if name, _, ok := bytes.Cut(text[key:], []byte(":")); ok && at-key > before {
		head, key = string(name)+": …", at-before
	}
	return head + string(text[key:min(at+after, len(text))])
}

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

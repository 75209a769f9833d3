package journal

import (
	"encoding/json"
	"strconv"

	"github.com/overlapd/overlapd/models"
)

// line is a record as it is written: JSON, appended by hand because most of what
// a decision log costs is spent here. TestLine holds it to what encoding/json
// makes of the same record.
type line []byte

// put appends a record and the end of its line. It fails if the state of a
// checkpoint cannot be written.
func (l *line) put(r *record) error {
	*l = append(*l, `{"e":"`...)
	*l = append(*l, r.Event...)
	*l = append(*l, '"')
	if r.Event == eventGap {
		l.uint(`,"lost":`, r.Lost)
		if err := l.json(`,"why":`, r.Why); err != nil {
			return err
		}
		*l = append(*l, "}\n"...)
		return nil
	}
	l.int(`,"t":`, int64(r.At))
	switch r.Event {
	case eventArrive:
		l.query(r)
	case eventFinish:
		l.outcome(r)
	case eventCancel:
		l.uint(`,"id":`, uint64(r.ID))
	case eventDown, eventUp, eventRemove:
		l.int(`,"sv":`, int64(r.Service))
	case eventLoad, eventAdd, eventChange:
		if err := l.json(`,"service":`, r.Defined); err != nil {
			return err
		}
	case eventCheckpoint:
		if err := l.json(`,"state":`, r.State); err != nil {
			return err
		}
	}
	if len(r.Asked) > 0 {
		*l = append(append(*l, `,"p":`...), r.Asked...)
	}
	if r.Event == eventNext && r.Round != 0 {
		l.round(r)
	}
	l.some(`,"stop":`, int64(r.Stop))
	l.some(`,"running":`, int64(r.Running))
	l.word(`,"err":`, r.Failure)
	l.ended(r)
	*l = append(*l, "}\n"...)
	return nil
}

// The methods below take the text before a value with its key, such as
// `,"sv":`.

func (l *line) int(before string, v int64) {
	*l = strconv.AppendInt(append(*l, before...), v, 10)
}

func (l *line) uint(before string, v uint64) {
	*l = strconv.AppendUint(append(*l, before...), v, 10)
}

// some writes a number unless it is 0.
func (l *line) some(before string, v int64) {
	if v != 0 {
		l.int(before, v)
	}
}

// word writes a text that needs no escaping, unless it is empty.
func (l *line) word(before, v string) {
	if v != "" {
		*l = append(append(*l, before...), '"')
		*l = append(append(*l, v...), '"')
	}
}

func (l *line) json(before string, v any) error {
	text, err := json.Marshal(v)
	*l = append(append(*l, before...), text...)
	return err
}

// item starts an item of an array, after its bracket or another item.
func (l *line) item() {
	if (*l)[len(*l)-1] != '[' {
		*l = append(*l, ',')
	}
}

func (l *line) query(r *record) {
	l.uint(`,"id":`, uint64(r.ID))
	l.int(`,"sv":`, int64(r.Service))
	l.int(`,"n":`, int64(r.Size))
	l.some(`,"seq":`, int64(r.SeqLen))
	if r.Shape != 0 {
		*l = append(*l, `,"shape":"`...)
		*l = strconv.AppendUint(*l, uint64(r.Shape), 16)
		*l = append(*l, '"')
	}
	l.int(`,"arrived":`, int64(r.Arrived))
	l.int(`,"deadline":`, int64(r.Deadline))
	l.some(`,"priority":`, int64(r.Priority))
}

func (l *line) outcome(r *record) {
	l.uint(`,"round":`, r.Round)
	l.int(`,"took":`, int64(r.Took))
	*l = append(*l, `,"s":[`...)
	for i := range r.Spans {
		s := &r.Spans[i]
		l.item()
		l.uint(`{"b":`, uint64(s.Batch))
		l.word(`,"as":`, s.Status)
		l.int(`,"to":`, int64(s.To))
		l.int(`,"took":`, int64(s.Took))
		*l = append(*l, '}')
	}
	*l = append(*l, ']')
}

func (l *line) round(r *record) {
	*l = append(*l, `,"c":[`...)
	for i := range r.Candidates {
		c := &r.Candidates[i]
		l.item()
		l.int(`{"sv":`, int64(c.Service))
		l.some(`,"b":`, int64(c.Batch))
		l.uint(`,"id":`, uint64(c.ID))
		l.int(`,"headroom":`, int64(c.Headroom))
		l.some(`,"from":`, int64(c.From))
		l.int(`,"n":`, int64(c.Size))
		l.some(`,"seq":`, int64(c.SeqLen))
		l.some(`,"solo":`, int64(c.Solo))
		l.some(`,"place":`, int64(c.Place))
		*l = append(*l, '}')
	}
	*l = append(*l, ']')
	l.some(`,"solo":`, int64(r.Solo))
	l.some(`,"limit":`, int64(r.Limit))
	if r.Planned != nil {
		l.int(`,"planned":`, int64(*r.Planned))
	}
	l.uint(`,"round":`, r.Round)
	l.int(`,"predicted":`, int64(r.Predicted))
	l.int(`,"bound":`, int64(r.Bound))
	*l = append(*l, `,"g":[`...)
	for i := range r.Group {
		g := &r.Group[i]
		l.item()
		l.int(`{"sv":`, int64(g.Service))
		l.uint(`,"b":`, uint64(g.Batch))
		l.some(`,"from":`, int64(g.From))
		l.int(`,"to":`, int64(g.To))
		l.int(`,"n":`, int64(g.Size))
		l.some(`,"seq":`, int64(g.SeqLen))
		*l = append(*l, `,"q":[`...)
		for _, id := range g.Queries {
			l.item()
			*l = strconv.AppendUint(*l, uint64(id), 10)
		}
		*l = append(*l, "]}"...)
	}
	*l = append(*l, ']')
}

func (l *line) ended(r *record) {
	if len(r.Answers) > 0 {
		*l = append(*l, `,"a":[`...)
		for i := range r.Answers {
			a := &r.Answers[i]
			l.item()
			l.uint(`{"id":`, uint64(a.ID))
			l.word(`,"as":`, a.Result)
			l.word(`,"why":`, a.Reason)
			*l = append(*l, '}')
		}
		*l = append(*l, ']')
	}
	if len(r.Released) > 0 {
		*l = append(*l, `,"r":[`...)
		for _, x := range r.Released {
			l.item()
			l.int(`{"sv":`, int64(x.Service))
			l.uint(`,"b":`, uint64(x.Batch))
			*l = append(*l, '}')
		}
		*l = append(*l, ']')
	}
}

// call appends a call of the predictor, see question.
func (l *line) call(groups []models.Group, estimates []models.Estimate) {
	l.item()
	*l = append(*l, '[')
	var last []models.Span
	for i := range groups {
		spans := groups[i].Spans
		same := 0
		for same < min(len(last), len(spans)) && alike(last[same], spans[same]) {
			same++
		}
		l.item()
		*l = append(*l, '[')
		l.numbers(int64(same), int64(estimates[i].Latency), int64(estimates[i].Bound))
		for _, s := range spans[same:] {
			l.numbers(int64(s.Service), int64(s.Start), int64(s.End), int64(s.Size), int64(s.SeqLen))
		}
		*l = append(*l, ']')
		last = spans
	}
	*l = append(*l, ']')
}

func (l *line) numbers(values ...int64) {
	for _, v := range values {
		l.item()
		*l = strconv.AppendInt(*l, v, 10)
	}
}

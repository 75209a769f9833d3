package journal

import (
	"strconv"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// line is one record as it is being written. Its memory is used again for the
// next one.
type line struct{ buf []byte }

func (l *line) begin(event event, at time.Duration) {
	l.buf = append(l.buf[:0], `{"e":"`...)
	l.buf = append(l.buf, event...)
	l.buf = append(l.buf, `","t":`...)
	l.buf = strconv.AppendInt(l.buf, int64(at), 10)
}

func (l *line) end() { l.buf = append(l.buf, "}\n"...) }

// The methods below take the text before a value with its key, such as
// `,"sv":`.

func (l *line) text(text string) { l.buf = append(l.buf, text...) }

func (l *line) int(before string, v int64) {
	l.buf = append(l.buf, before...)
	l.buf = strconv.AppendInt(l.buf, v, 10)
}

// some writes a number unless it is 0.
func (l *line) some(before string, v int64) {
	if v != 0 {
		l.int(before, v)
	}
}

func (l *line) uint(before string, v uint64) {
	l.buf = append(l.buf, before...)
	l.buf = strconv.AppendUint(l.buf, v, 10)
}

// word writes a text that needs no escaping, unless it is empty.
func (l *line) word(before, v string) {
	if v != "" {
		l.buf = append(l.buf, before...)
		l.buf = append(l.buf, '"')
		l.buf = append(l.buf, v...)
		l.buf = append(l.buf, '"')
	}
}

// hex writes a hash, which many readers of JSON could not hold as a number.
func (l *line) hex(before string, v uint64) {
	if v != 0 {
		l.buf = append(l.buf, before...)
		l.buf = append(l.buf, '"')
		l.buf = strconv.AppendUint(l.buf, v, 16)
		l.buf = append(l.buf, '"')
	}
}

// item starts an item of an array, after its bracket or another item.
func (l *line) item() {
	if l.buf[len(l.buf)-1] != '[' {
		l.buf = append(l.buf, ',')
	}
}

func (l *line) query(q *models.Query) {
	l.uint(`,"id":`, uint64(q.ID))
	l.int(`,"sv":`, int64(q.Service))
	l.int(`,"n":`, int64(q.Size))
	l.some(`,"seq":`, int64(q.SeqLen))
	l.hex(`,"shape":`, q.Shape)
	l.int(`,"arrived":`, int64(q.Arrival))
	l.int(`,"deadline":`, int64(q.Deadline))
	l.some(`,"priority":`, int64(q.Priority))
}

// explanation writes what was behind a round: the candidates, the most urgent
// first, and what the group had to keep to.
func (l *line) explanation(e *overlap.Explanation) {
	l.text(`,"c":[`)
	for i := range e.Candidates {
		c := &e.Candidates[i]
		l.item()
		l.int(`{"sv":`, int64(c.Service))
		l.some(`,"b":`, int64(c.Batch))
		l.uint(`,"id":`, uint64(c.Query))
		l.int(`,"headroom":`, int64(c.Headroom))
		l.some(`,"from":`, int64(c.Start))
		l.int(`,"n":`, int64(c.Size))
		l.some(`,"seq":`, int64(c.SeqLen))
		l.some(`,"solo":`, int64(c.Solo.Latency))
		l.some(`,"place":`, int64(c.Place))
		l.text("}")
	}
	l.text("]")
	l.some(`,"solo":`, int64(e.Solo))
	l.some(`,"limit":`, int64(e.Headroom))
	if e.Planned {
		l.int(`,"planned":`, int64(e.For))
	}
}

func (l *line) round(r *overlap.Round) {
	l.uint(`,"round":`, r.Number)
	l.int(`,"predicted":`, int64(r.Predicted.Latency))
	l.int(`,"bound":`, int64(r.Predicted.Bound))
	l.text(`,"g":[`)
	for i := range r.Group.Spans {
		s := &r.Group.Spans[i]
		l.item()
		l.int(`{"sv":`, int64(s.Service))
		l.uint(`,"b":`, uint64(s.Batch))
		l.some(`,"from":`, int64(s.Start))
		l.int(`,"to":`, int64(s.End))
		l.int(`,"n":`, int64(s.Size))
		l.some(`,"seq":`, int64(s.SeqLen))
		l.text(`,"q":[`)
		for _, id := range r.Queries(i) {
			l.item()
			l.buf = strconv.AppendUint(l.buf, uint64(id), 10)
		}
		l.text("]")
		l.text("}")
	}
	l.text("]")
}

func (l *line) outcome(o *overlap.Outcome) {
	l.uint(`,"round":`, o.Round)
	l.int(`,"took":`, int64(o.Took))
	l.text(`,"s":[`)
	for i := range o.Spans {
		s := &o.Spans[i]
		l.item()
		l.uint(`{"b":`, uint64(s.Batch))
		l.word(`,"as":`, statusName(s.Status))
		l.int(`,"to":`, int64(s.Reached))
		l.int(`,"took":`, int64(s.Took))
		l.text("}")
	}
	l.text("]")
}

func (l *line) answers(answers []overlap.Answer) {
	if len(answers) == 0 {
		return
	}
	l.text(`,"a":[`)
	for i := range answers {
		a := &answers[i]
		l.item()
		l.uint(`{"id":`, uint64(a.Query))
		l.word(`,"as":`, a.Result.String())
		if a.Reason != overlap.ReasonNone {
			l.word(`,"why":`, a.Reason.String())
		}
		l.text("}")
	}
	l.text("]")
}

func (l *line) released(released []overlap.Release) {
	if len(released) == 0 {
		return
	}
	l.text(`,"r":[`)
	for _, r := range released {
		l.item()
		l.int(`{"sv":`, int64(r.Service))
		l.uint(`,"b":`, uint64(r.Batch))
		l.text("}")
	}
	l.text("]")
}

// question appends a call of the predictor: for each group how many of its
// spans are those of the group before it, the estimate, and the other spans.
func (l *line) question(groups []models.Group, estimates []models.Estimate) {
	l.item()
	l.text("[")
	var last []models.Span
	for i := range groups {
		spans := groups[i].Spans
		same := 0
		for same < min(len(last), len(spans)) && alike(last[same], spans[same]) {
			same++
		}
		l.item()
		l.text("[")
		l.numbers(int64(same), int64(estimates[i].Latency), int64(estimates[i].Bound))
		for _, s := range spans[same:] {
			l.numbers(int64(s.Service), int64(s.Start), int64(s.End), int64(s.Size), int64(s.SeqLen))
		}
		l.text("]")
		last = spans
	}
	l.text("]")
}

func (l *line) numbers(values ...int64) {
	for _, v := range values {
		l.item()
		l.buf = strconv.AppendInt(l.buf, v, 10)
	}
}

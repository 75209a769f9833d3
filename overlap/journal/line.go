package journal

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// lines is a text of JSON values, each on a line of its own.
type lines struct {
	text    bytes.Buffer
	encoder *json.Encoder
}

func newLines() *lines {
	l := &lines{}
	l.encoder = json.NewEncoder(&l.text)
	l.encoder.SetEscapeHTML(false)
	return l
}

// put appends a line. If it fails, as it can for the state of a checkpoint, nothing is appended.
func (l *lines) put(v any) error { return l.encoder.Encode(v) }

// brought returns the part of an event that its kind reads: a caller may use one value for all its
// events.
func brought(e *overlap.Event) (b overlap.Event) {
	switch b.Kind = e.Kind; e.Kind {
	case overlap.Arrive, overlap.Cancel:
		b.Query = e.Query
	case overlap.Finish:
		b.Outcome = e.Outcome
	case overlap.Moved:
		b.Move, b.Took, b.Status = e.Move, e.Took, e.Status
	case overlap.Down, overlap.Up:
		b.Service, b.Device = e.Service, e.Device
	case overlap.Load, overlap.Add, overlap.Change:
		b.Definition = e.Definition
	case overlap.Remove:
		b.Service = e.Service
	}
	return b
}

// asking is what the predictor was asked, as a record has it, without the last bracket: see
// question.
type asking []byte

// call appends a call of the predictor.
func (l *asking) call(groups []models.Group, estimates []models.Estimate) {
	l.next('[')
	*l = append(*l, '[')
	var last []models.Span
	for i := range groups {
		spans := groups[i].Spans
		same := 0
		for same < min(len(last), len(spans)) && alike(last[same], spans[same]) {
			same++
		}
		l.next('[')
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

func (l *asking) numbers(values ...int64) {
	for _, v := range values {
		l.next('[')
		*l = strconv.AppendInt(*l, v, 10)
	}
}

// next appends a comma, unless what follows is the first behind a bracket.
func (l *asking) next(bracket byte) {
	if (*l)[len(*l)-1] != bracket {
		*l = append(*l, ',')
	}
}

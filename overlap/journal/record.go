package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// The types of records besides the kinds of events.
const (
	typeReady   = "ready"
	typeAdvance = "advance"
)

// Record is one line of a log: an event, or a call of Ready or Advance, with what the scheduler
// asked and what it returned. It is the same when it is written, read and compared.
type Record struct {
	Type string        `json:"e"`
	At   time.Duration `json:"t"`
	*overlap.Event

	// Asked is what the predictor was asked. Variants are what the selector answered, in the order
	// in which it was asked.
	Asked    *asking  `json:"p,omitempty"`
	Variants []string `json:"v,omitempty"`

	// Failure is set if Step rejected the event, see failure.
	Failure string `json:"err,omitempty"`

	// What Ready returned, and why it chose the round.
	*overlap.Explanation
	Round    *overlap.Round `json:"round,omitempty"`
	Stops    []overlap.Held `json:"stop,omitempty"`
	Answers  []answer       `json:"a,omitempty"`
	Released []overlap.Held `json:"r,omitempty"`
	Moves    []overlap.Move `json:"m,omitempty"`

	// Of a record that was replayed: its line, what it asked, and all that is known of its answers.
	Line  int              `json:"-"`
	Calls [][]question     `json:"-"`
	Ended []overlap.Answer `json:"-"`
}

// answer is the part of an overlap.Answer that does not follow from other records.
type answer struct {
	ID     models.QueryID `json:"id"`
	Result string         `json:"as"`
	Reason string         `json:"why,omitempty"`
}

// failure returns the reason behind an error of Step, as answers have it, or "rejected" if it is the
// caller's fault.
func failure(err error) string {
	switch why := overlap.ReasonOf(err); {
	case err == nil:
		return ""
	case why == overlap.ReasonNone:
		return "rejected"
	default:
		return why.String()
	}
}

// maxNumber bounds sizes and lengths, so that sums of them are numbers too.
const maxNumber = math.MaxInt32

// complete checks a record that was read, sets the kind of its event, and decodes its questions.
func (r *Record) complete() (err error) {
	for k := overlap.Arrive; k.String() != "unknown"; k++ {
		if r.Type == k.String() {
			r.Kind = k
		}
	}
	if r.Kind == 0 && r.Type != typeReady && r.Type != typeAdvance {
		return fmt.Errorf("unknown event %q", r.Type)
	}
	for _, n := range []int{r.Query.Size, r.Query.SeqLen, r.Query.Priority} {
		if n < -maxNumber || n > maxNumber {
			return fmt.Errorf("%d is out of range", n)
		}
	}
	if r.Asked != nil {
		r.Calls, err = r.Asked.decode()
	}
	return err
}

// asking is the text of what the predictor was asked, without the last bracket: a list of calls. A
// call is a list of questions, and a question is a list of numbers: how many of its spans are those
// of the question before it, the latency and the bound, and then the six numbers of each other span.
type asking []byte

const (
	questionNumbers = 3 // spans of the question before, latency, bound
	spanNumbers     = 6 // service, start, end, size, sequence length, share
)

// question is a group that the predictor was asked about, and its answer.
type question struct {
	Group    models.Group // without batches, which a predictor does not know
	Estimate models.Estimate
}

// call appends a call of the predictor.
func (a *asking) call(groups []models.Group, estimates []models.Estimate) {
	a.open()
	var last []models.Span
	for i := range groups {
		spans := groups[i].Spans
		same := 0
		for same < min(len(last), len(spans)) && alike(last[same], spans[same]) {
			same++
		}
		a.open()
		a.numbers(int64(same), int64(estimates[i].Latency), int64(estimates[i].Bound))
		for _, s := range spans[same:] {
			a.numbers(int64(s.Service), int64(s.Start), int64(s.End), int64(s.Size), int64(s.SeqLen), int64(s.Share))
		}
		*a = append(*a, ']')
		last = spans
	}
	*a = append(*a, ']')
}

func (a *asking) open() {
	a.comma()
	*a = append(*a, '[')
}

func (a *asking) numbers(values ...int64) {
	for _, v := range values {
		a.comma()
		*a = strconv.AppendInt(*a, v, 10)
	}
}

// comma separates what follows from what is before it in the same list.
func (a *asking) comma() {
	if (*a)[len(*a)-1] != '[' {
		*a = append(*a, ',')
	}
}

// MarshalJSON implements json.Marshaler.
func (a *asking) MarshalJSON() ([]byte, error) { return append(*a, ']'), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (a *asking) UnmarshalJSON(text []byte) error {
	*a = bytes.Clone(text[:len(text)-1])
	return nil
}

// decode returns the calls.
func (a *asking) decode() ([][]question, error) {
	var numbers [][][]int64
	if err := json.Unmarshal(append(*a, ']'), &numbers); err != nil {
		return nil, err
	}
	calls := make([][]question, len(numbers))
	for i, call := range numbers {
		var last []models.Span
		for _, n := range call {
			q, err := decodeQuestion(n, last)
			if err != nil {
				return nil, err
			}
			calls[i], last = append(calls[i], q), q.Group.Spans
		}
	}
	return calls, nil
}

// decodeQuestion decodes one question, which follows one about the spans of last.
func decodeQuestion(n []int64, last []models.Span) (q question, err error) {
	if len(n) < questionNumbers || (len(n)-questionNumbers)%spanNumbers != 0 || n[0] < 0 || n[0] > int64(len(last)) {
		return q, fmt.Errorf("a question of %d numbers", len(n))
	}
	q.Estimate = models.Estimate{Latency: time.Duration(n[1]), Bound: time.Duration(n[2])}
	q.Group.Spans = append(q.Group.Spans, last[:n[0]]...)
	for s := n[questionNumbers:]; len(s) > 0; s = s[spanNumbers:] {
		q.Group.Spans = append(q.Group.Spans, models.Span{Service: models.ServiceID(s[0]), Start: int(s[1]), End: int(s[2]), Size: int(s[3]), SeqLen: int(s[4]), Share: int(s[5])})
	}
	if spans := len(q.Group.Spans); spans > overlap.MaxServices {
		return q, fmt.Errorf("a question about %d spans", spans)
	}
	return q, nil
}

// alike reports whether two spans are the same in a log, which has no batches of what was
// asked.
func alike(a, b models.Span) bool {
	a.Batch, b.Batch = 0, 0
	return a == b
}

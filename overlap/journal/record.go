package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// The types of records besides the kinds of events.
const (
	typeReady      = "ready"
	typeAdvance    = "advance"
	typeCheckpoint = "checkpoint"
	typeGap        = "gap"
)

// record is one line of a log: an event, or a call of Ready or Advance, with what the scheduler
// asked and what came of it. It is the same when it is written, read and compared.
type record struct {
	Type string        `json:"e"`
	At   time.Duration `json:"t"`
	*overlap.Event

	// Asked is what the predictor was asked, see question. Variants are what the selector
	// answered, in the order in which it was asked.
	Asked    *json.RawMessage `json:"p,omitempty"`
	Variants []string         `json:"v,omitempty"`

	// Failure is why Step refused the event.
	Failure string `json:"err,omitempty"`

	// What Ready returned, and why it chose the round.
	*overlap.Explanation
	Round    *overlap.Round `json:"round,omitempty"`
	Stops    []overlap.Held `json:"stop,omitempty"`
	Answers  []answer       `json:"a,omitempty"`
	Released []overlap.Held `json:"r,omitempty"`
	Moves    []overlap.Move `json:"m,omitempty"`

	// State is what a checkpoint holds; Lost and Why are what a gap does.
	State *overlap.Snapshot `json:"state,omitempty"`
	Lost  uint64            `json:"lost,omitempty"`
	Why   string            `json:"why,omitempty"`

	// Of a record that was read: the number of its line, its text, which is valid until the next
	// record is read, and Asked.
	line  int
	text  []byte
	calls [][]question
}

// answer is the part of an overlap.Answer that does not follow from other records.
type answer struct {
	ID     models.QueryID `json:"id"`
	Result string         `json:"as"`
	Reason string         `json:"why,omitempty"`
}

// failures are the errors that the scheduler's methods return, by the names
// they have in the log.
var failures = []struct {
	err  error
	name string
}{
	{overlap.ErrQueueFull, "queue_full"},
	{overlap.ErrExpired, "expired"},
	{overlap.ErrDraining, "draining"},
	{overlap.ErrBadQuery, "bad_query"},
	{overlap.ErrDuplicateQuery, "duplicate_query"},
	{overlap.ErrUnknownService, "unknown_service"},
	{overlap.ErrUnknownRound, "unknown_round"},
	{overlap.ErrBadOutcome, "bad_outcome"},
	{overlap.ErrServiceBusy, "service_busy"},
	{overlap.ErrServiceID, "service_id"},
	{overlap.ErrTooManyServices, "too_many_services"},
	{overlap.ErrOtherModel, "other_model"},
	{overlap.ErrBadService, "bad_service"},
}

// failureName returns the name of an error, "" for none.
func failureName(err error) string {
	if err == nil {
		return ""
	}
	for i := range failures {
		if errors.Is(err, failures[i].err) {
			return failures[i].name
		}
	}
	return "refused"
}

// maxNumber bounds sizes and lengths, so that sums of them are numbers too.
const maxNumber = math.MaxInt32

// validate reports the first thing that cannot be. It sets the kind of an event, and decodes what
// was asked.
func (r *record) validate() (err error) {
	for k := overlap.Arrive; k <= overlap.Drain; k++ {
		if r.Type == k.String() {
			r.Kind = k
		}
	}
	switch r.Type {
	case typeReady, typeAdvance, typeCheckpoint, typeGap:
	default:
		if r.Kind == 0 {
			return fmt.Errorf("unknown event %q", r.Type)
		}
	}
	for _, n := range []int{r.Query.Size, r.Query.SeqLen, r.Query.Priority} {
		if n < -maxNumber || n > maxNumber {
			return fmt.Errorf("%d is out of range", n)
		}
	}
	if (r.Type == typeCheckpoint) != (r.State != nil) {
		return fmt.Errorf("not what belongs to %q", r.Type)
	}
	r.calls, err = questions(r.Asked)
	return err
}

// question is a group that the predictor was asked about, and its answer. In a
// log, a call of the predictor is a list of questions, and a question is a list
// of numbers: how many of its spans are those of the question before it, the
// latency and the bound, and then the five numbers of each other span.
type question struct {
	Group    models.Group // without batches, which a predictor does not know
	Estimate models.Estimate
}

const (
	questionNumbers = 3 // spans of the question before, latency, bound
	spanNumbers     = 5 // service, start, end, size, sequence length
)

// questions decodes the calls of the predictor.
func questions(text *json.RawMessage) ([][]question, error) {
	if text == nil {
		return nil, nil
	}
	var numbers [][][]int64
	if err := strict(*text, &numbers); err != nil {
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
		q.Group.Spans = append(q.Group.Spans, models.Span{Service: models.ServiceID(s[0]), Start: int(s[1]), End: int(s[2]), Size: int(s[3]), SeqLen: int(s[4])})
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

// strict decodes one JSON value that has no unknown fields and nothing behind
// it.
func strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("more than one value")
	}
	return nil
}

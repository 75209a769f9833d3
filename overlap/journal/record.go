package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// event is the kind of a record.
type event string

const (
	eventArrive     event = "arrive"
	eventNext       event = "next"
	eventPlan       event = "plan"
	eventFinish     event = "finish"
	eventMoved      event = "moved"
	eventCancel     event = "cancel"
	eventDown       event = "down"
	eventUp         event = "up"
	eventLoad       event = "load"
	eventAdd        event = "add"
	eventChange     event = "change"
	eventRemove     event = "remove"
	eventDrain      event = "drain"
	eventCheckpoint event = "checkpoint"
	eventGap        event = "gap"
)

// record is one line of a log: an event, what the scheduler learned by it, what the
// scheduler asked and what it decided. It is the same when it is written, read
// and compared: which fields an event has stands in layouts, and how a difference
// in what was decided is called in the tags.
type record struct {
	Event event         `json:"e"`
	At    time.Duration `json:"t"`

	// What the event brings.
	ID       models.QueryID   `json:"id,omitempty"`
	Service  models.ServiceID `json:"sv,omitempty"`
	Size     int              `json:"n,omitempty"`
	SeqLen   int              `json:"seq,omitempty"`
	Shape    shapeHash        `json:"shape,omitempty"`
	Arrived  time.Duration    `json:"arrived,omitempty"`
	Deadline time.Duration    `json:"deadline,omitempty"`
	Priority int              `json:"priority,omitempty"`
	Accuracy float64          `json:"accuracy,omitempty"`
	Fixed    int              `json:"fixed,omitempty"`
	Alone    int              `json:"alone,omitempty"`
	Defined  *models.Service  `json:"service,omitempty"`
	Took     time.Duration    `json:"took,omitempty"`
	Latency  time.Duration    `json:"latency,omitempty"`
	Spans    []spanRecord     `json:"s,omitempty"`
	Device   int              `json:"dev,omitempty"`
	Batch    models.BatchID   `json:"b,omitempty"`
	To       int              `json:"to,omitempty"`
	Status   string           `json:"as,omitempty"`

	// What it asked the predictor, see question; nil for nothing.
	Asked json.RawMessage `json:"p,omitempty" what:"what the predictor was asked"`

	// Variants are what the selector answered, in the order in which it was asked.
	Variants []string `json:"v,omitempty" what:"the variants that were selected"`

	// What it decided. Round is decided by next, and the one that finish ends.
	Candidates []candidateRecord `json:"c,omitempty" what:"the candidates"`
	Solo       time.Duration     `json:"solo,omitempty" what:"the solo time of the group"`
	Limit      time.Duration     `json:"limit,omitempty" what:"what the group had to keep to"`
	Planned    *time.Duration    `json:"planned,omitempty" what:"the time of the plan"`
	Round      uint64            `json:"round,omitempty" what:"the round"`
	Predicted  time.Duration     `json:"predicted,omitempty" what:"the predicted time"`
	Bound      time.Duration     `json:"bound,omitempty" what:"the bound of the predicted time"`
	Group      []groupRecord     `json:"g,omitempty" what:"the group"`
	Stop       models.BatchID    `json:"stop,omitempty" what:"the batch to stop"`
	Running    int               `json:"running,omitempty" what:"whether the batch runs"`
	Failure    string            `json:"err,omitempty" what:"the refusal"`
	Answers    []answerRecord    `json:"a,omitempty" what:"the queries that ended"`
	Released   []releaseRecord   `json:"r,omitempty" what:"the batches that were released"`
	Moves      []moveRecord      `json:"m,omitempty" what:"the batches that move"`

	// State is what a checkpoint holds; Lost and Why are what a gap does.
	State *overlap.Snapshot `json:"state,omitempty"`
	Lost  uint64            `json:"lost,omitempty"`
	Why   string            `json:"why,omitempty"`

	line    int          // where it was read
	text    []byte       // as it was read, valid until the next record is
	calls   [][]question // Asked, where it was read
	planned time.Duration
}

type candidateRecord struct {
	Service  models.ServiceID `json:"sv"`
	Batch    models.BatchID   `json:"b,omitempty"`
	ID       models.QueryID   `json:"id"`
	Headroom time.Duration    `json:"headroom"`
	From     int              `json:"from,omitempty"`
	Size     int              `json:"n"`
	SeqLen   int              `json:"seq,omitempty"`
	Solo     time.Duration    `json:"solo,omitempty"`
	Place    int              `json:"place,omitempty"`
}

type groupRecord struct {
	Service models.ServiceID `json:"sv"`
	Batch   models.BatchID   `json:"b"`
	From    int              `json:"from,omitempty"`
	To      int              `json:"to"`
	Size    int              `json:"n"`
	SeqLen  int              `json:"seq,omitempty"`
	Queries []models.QueryID `json:"q"`
}

type spanRecord struct {
	Batch  models.BatchID `json:"b"`
	Status string         `json:"as"`
	To     int            `json:"to"`
	Took   time.Duration  `json:"took"`
}

type answerRecord struct {
	ID     models.QueryID `json:"id"`
	Result string         `json:"as"`
	Reason string         `json:"why,omitempty"`
}

type releaseRecord struct {
	Service models.ServiceID `json:"sv"`
	Batch   models.BatchID   `json:"b"`
	Device  int              `json:"dev,omitempty"`
}

type moveRecord struct {
	Service models.ServiceID `json:"sv"`
	Batch   models.BatchID   `json:"b"`
	Device  int              `json:"dev,omitempty"`
	To      int              `json:"to,omitempty"`
	From    int              `json:"from"`
	Size    int              `json:"n"`
}

// shapeHash is written as hexadecimal text, since many readers of JSON cannot
// hold 64 bits as a number.
type shapeHash uint64

// MarshalText implements encoding.TextMarshaler.
func (h shapeHash) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(h), 16), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *shapeHash) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fmt.Errorf("shape %q is not a hash", text)
	}
	*h = shapeHash(v)
	return nil
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

// statusNamed returns the status of this name, also of one that cannot be: a
// scheduler may be given one, and takes it for a failure.
func statusNamed(name string) (models.Status, bool) {
	for s := models.SpanDone; s <= models.SpanOverrun; s++ {
		if s.String() == name {
			return s, true
		}
	}
	const impossible = models.SpanOverrun + 1
	return impossible, name == impossible.String()
}

// clear makes an empty record of an event, in the memory of the one before.
func (r *record) clear(e event, at time.Duration) {
	*r = record{
		Event: e, At: at,
		Spans: r.Spans[:0], Candidates: r.Candidates[:0], Group: r.Group[:0], Answers: r.Answers[:0], Released: r.Released[:0],
		Variants: r.Variants[:0], Moves: r.Moves[:0],
	}
}

func (r *record) tellQuery(q *models.Query) {
	r.ID, r.Service, r.Size, r.SeqLen, r.Shape = q.ID, q.Service, q.Size, q.SeqLen, shapeHash(q.Shape)
	r.Arrived, r.Deadline, r.Priority, r.Accuracy = q.Arrival, q.Deadline, q.Priority, q.Accuracy
	if q.Fixed {
		r.Fixed = 1
	}
	if q.Alone {
		r.Alone = 1
	}
}

func (r *record) tellOutcome(o *models.Outcome) {
	r.Round, r.Device, r.Took, r.Latency = o.Round, o.Device, o.Took, o.Latency
	for i := range o.Spans {
		s := &o.Spans[i]
		r.Spans = append(r.Spans, spanRecord{s.Span.Batch, s.Status.String(), s.Reached, s.Took})
	}
}

// decide takes in a round and what was behind it: the candidates, the most
// urgent first, and what the group had to keep to.
func (r *record) decide(round *overlap.Round, e *overlap.Explanation) {
	for i := range e.Candidates {
		c := &e.Candidates[i]
		r.Candidates = append(r.Candidates, candidateRecord{
			c.Service, c.Batch, c.Query, c.Headroom, c.Start, c.Size, c.SeqLen, c.Solo.Latency, c.Place,
		})
	}
	r.Solo, r.Limit = e.Solo, e.Headroom
	if e.Planned {
		r.planned = e.For
		r.Planned = &r.planned
	}
	r.Round, r.Device, r.Predicted, r.Bound = round.Number, round.Device, round.Predicted.Latency, round.Predicted.Bound
	for i := range round.Group.Spans {
		s := &round.Group.Spans[i]
		r.Group = append(r.Group, groupRecord{s.Service, s.Batch, s.Start, s.End, s.Size, s.SeqLen, round.Queries[i]})
	}
}

// ended takes in what ended with the event.
func (r *record) ended(answers []overlap.Answer, released, stops []overlap.Held, moves []overlap.Move) {
	for i := range answers {
		a := &answers[i]
		ended := answerRecord{ID: a.Query, Result: a.Result.String()}
		if a.Reason != overlap.ReasonNone {
			ended.Reason = a.Reason.String()
		}
		r.Answers = append(r.Answers, ended)
	}
	for _, x := range stops {
		r.Stop = x.Batch // an event stops one at most
	}
	for _, x := range released {
		r.Released = append(r.Released, releaseRecord(x))
	}
	for _, m := range moves {
		r.Moves = append(r.Moves, moveRecord{m.Service, m.Batch, m.Device, m.To, m.Operator, m.Size})
	}
}

// maxNumber bounds sizes, lengths and positions, so that sums of them are
// numbers too.
const maxNumber = math.MaxInt32

// validate reports the first thing that cannot be, and decodes what was asked.
func (r *record) validate() (err error) {
	if layouts[r.Event] == nil || r.Event == chosen {
		return fmt.Errorf("unknown event %q", r.Event)
	}
	for _, n := range []int{r.Size, r.SeqLen, r.Priority} {
		if n < -maxNumber || n > maxNumber {
			return fmt.Errorf("%d is out of range", n)
		}
	}
	for _, s := range r.Spans {
		if _, ok := statusNamed(s.Status); !ok {
			return fmt.Errorf("status %q", s.Status)
		}
	}
	if _, ok := statusNamed(r.Status); !ok && r.Event == eventMoved {
		return fmt.Errorf("status %q", r.Status)
	}
	has := func(key string) bool {
		return slices.ContainsFunc(r.layout(), func(f field) bool { return f.key == key })
	}
	if has("service") != (r.Defined != nil) || has("state") != (r.State != nil) {
		return fmt.Errorf("not what belongs to %q", r.Event)
	}
	r.calls, err = questions(r.Asked)
	return err
}

// query returns the query of an arrival.
func (r *record) query() models.Query {
	return models.Query{
		ID: r.ID, Service: r.Service, Size: r.Size, SeqLen: r.SeqLen, Shape: uint64(r.Shape),
		Arrival: r.Arrived, Deadline: r.Deadline, Priority: r.Priority, Accuracy: r.Accuracy, Fixed: r.Fixed != 0,
		Alone: r.Alone != 0,
	}
}

// outcome returns how a round went.
func (r *record) outcome() models.Outcome {
	o := models.Outcome{Round: r.Round, Device: r.Device, Took: r.Took, Latency: r.Latency}
	for _, s := range r.Spans {
		status, _ := statusNamed(s.Status)
		o.Spans = append(o.Spans, models.SpanOutcome{Span: models.Span{Batch: s.Batch}, Status: status, Reached: s.To, Took: s.Took})
	}
	return o
}

// moved returns the move that has ended, and how.
func (r *record) moved() (overlap.Move, models.Status) {
	status, _ := statusNamed(r.Status)
	return overlap.Move{Held: overlap.Held{Service: r.Service, Batch: r.Batch, Device: r.Device}, To: r.To}, status
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
	spanNumbers     = 5 // service, start, end, size, less than 0 of a series, sequence length
)

// questions decodes the calls of the predictor.
func questions(text json.RawMessage) ([][]question, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var numbers [][][]int64
	if err := strict(text, &numbers); err != nil {
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
		span := models.Span{Service: models.ServiceID(s[0]), Start: int(s[1]), End: int(s[2]), Size: int(s[3]), SeqLen: int(s[4])}
		if span.Size < 0 {
			span.Size, span.Series = -span.Size, true
		}
		q.Group.Spans = append(q.Group.Spans, span)
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

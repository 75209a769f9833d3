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

// record is a line of a log. Which fields it has depends on its event.
type record struct {
	Event event         `json:"e"`
	At    time.Duration `json:"t"`

	// What the scheduler was told.
	ID       models.QueryID   `json:"id"`
	Service  models.ServiceID `json:"sv"`
	Size     int              `json:"n"`
	SeqLen   int              `json:"seq"`
	Shape    string           `json:"shape"`
	Arrived  time.Duration    `json:"arrived"`
	Deadline time.Duration    `json:"deadline"`
	Priority int              `json:"priority"`
	Defined  *models.Service  `json:"service"`
	Took     time.Duration    `json:"took"`
	Spans    []spanRecord     `json:"s"`

	// What it asked and decided.
	Asked      [][][]int64       `json:"p"`
	Candidates []candidateRecord `json:"c"`
	Solo       time.Duration     `json:"solo"`
	Limit      time.Duration     `json:"limit"`
	Planned    *time.Duration    `json:"planned"`
	Round      uint64            `json:"round"` // of finish it is told
	Predicted  time.Duration     `json:"predicted"`
	Bound      time.Duration     `json:"bound"`
	Group      []groupRecord     `json:"g"`
	Stop       models.BatchID    `json:"stop"`
	Running    int               `json:"running"`
	Failure    string            `json:"err"`
	Answers    []answerRecord    `json:"a"`
	Released   []releaseRecord   `json:"r"`

	State *overlap.Snapshot `json:"state"` // of a checkpoint

	Lost uint64 `json:"lost"` // of a gap
	Why  string `json:"why"`

	line int
	text []byte // valid until the next record is read
}

type candidateRecord struct {
	Service  models.ServiceID `json:"sv"`
	Batch    models.BatchID   `json:"b"`
	ID       models.QueryID   `json:"id"`
	Headroom time.Duration    `json:"headroom"`
	From     int              `json:"from"`
	Size     int              `json:"n"`
	SeqLen   int              `json:"seq"`
	Solo     time.Duration    `json:"solo"`
	Place    int              `json:"place"`
}

type groupRecord struct {
	Service models.ServiceID `json:"sv"`
	Batch   models.BatchID   `json:"b"`
	From    int              `json:"from"`
	To      int              `json:"to"`
	Size    int              `json:"n"`
	SeqLen  int              `json:"seq"`
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
	Reason string         `json:"why"`
}

type releaseRecord struct {
	Service models.ServiceID `json:"sv"`
	Batch   models.BatchID   `json:"b"`
}

// maxNumber bounds sizes, lengths and positions, so that sums of them are
// numbers too.
const maxNumber = math.MaxInt32

// validate reports the first number that cannot be, of a log with the given
// number of services.
func (r *record) validate(services int) error {
	if (r.Service < 0 || int(r.Service) >= services) && r.Event != eventArrive {
		return fmt.Errorf("service %d of %d", r.Service, services)
	}
	for _, n := range []int{r.Size, r.SeqLen, r.Priority} {
		if n < -maxNumber || n > maxNumber {
			return fmt.Errorf("%d is out of range", n)
		}
	}
	if _, err := r.shape(); err != nil {
		return fmt.Errorf("shape %q is not a hash", r.Shape)
	}
	for _, s := range r.Spans {
		if _, ok := statusNamed(s.Status); !ok {
			return fmt.Errorf("status %q", s.Status)
		}
	}
	if r.Event.defines() != (r.Defined != nil) || (r.Event == eventCheckpoint) != (r.State != nil) {
		return fmt.Errorf("not what belongs to %q", r.Event)
	}
	for _, call := range r.Asked {
		if _, err := questions(nil, call); err != nil {
			return err
		}
	}
	switch r.Event {
	case eventArrive, eventNext, eventPlan, eventFinish, eventCancel, eventDown, eventUp, eventLoad, eventAdd, eventChange, eventRemove, eventDrain, eventCheckpoint, eventGap:
		return nil
	}
	return fmt.Errorf("unknown event %q", r.Event)
}

// services returns how many services there are after the event, of so many.
func (r *record) services(before int) int {
	switch {
	case r.Event == eventCheckpoint:
		return len(r.State.Services)
	case r.Event == eventAdd && r.Failure == "" && r.Defined.ID == models.ServiceID(before):
		return before + 1
	}
	return before
}

func (r *record) shape() (uint64, error) {
	if r.Shape == "" {
		return 0, nil
	}
	return strconv.ParseUint(r.Shape, 16, 64)
}

// query returns the query of an arrival.
func (r *record) query() models.Query {
	shape, err := r.shape()
	if err != nil {
		panic(err) // it was validated
	}
	return models.Query{
		ID: r.ID, Service: r.Service, Size: r.Size, SeqLen: r.SeqLen, Shape: shape,
		Arrival: r.Arrived, Deadline: r.Deadline, Priority: r.Priority,
	}
}

// calls returns what the predictor was asked, call by call.
func (r *record) calls() [][]Question {
	var calls [][]Question
	for _, call := range r.Asked {
		qs, err := questions(nil, call)
		if err != nil {
			panic(err) // it was validated
		}
		calls = append(calls, qs)
	}
	return calls
}

// outcome returns how a round went.
func (r *record) outcome() overlap.Outcome {
	o := overlap.Outcome{Round: r.Round, Took: r.Took}
	for _, s := range r.Spans {
		status, _ := statusNamed(s.Status)
		o.Spans = append(o.Spans, overlap.SpanOutcome{Batch: s.Batch, Status: status, Reached: s.To, Took: s.Took})
	}
	return o
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

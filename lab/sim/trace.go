package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/overlapd/overlapd/internal/perfetto"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Rows of a device in a trace. The row of a service is serviceRow plus its position.
const (
	roundRow   = 1
	serviceRow = 2
)

// trace writes a timeline. known holds the devices that it has already named.
type trace struct {
	w        *perfetto.Writer
	services []Service
	known    map[int]bool
}

// Trace makes a run of the scenario write its timeline to w in the Chrome trace event
// format, which Perfetto displays. Each device has a row of rounds with their predicted
// ends, and for each service a row of spans, queries and deadlines. Call close after the
// run. It ends the trace and returns the first error in writing it, but does not close w.
func Trace(sc *Scenario, w io.Writer) (close func() error) {
	t := &trace{perfetto.NewWriter(w), sc.Services, map[int]bool{}}
	sc.Observer = observer{Round: t.round, Answer: t.answer, Move: t.move, worker: t.worker}
	return t.w.Close
}

// introduce names a device and its rows when it first appears.
func (t *trace) introduce(device int) {
	if t.known[device] {
		return
	}
	t.known[device] = true
	t.w.NameDevice(process(device), fmt.Sprintf("simulated device %d", device))
	t.w.NameRow(process(device), roundRow, "rounds")
	for i := range t.services {
		t.w.NameRow(process(device), serviceRow+i, t.services[i].Name)
	}
}

// process returns the process ID of a device in the trace. It is not 0, because viewers use
// 0 for the idle process.
func process(device int) int { return device + 1 }

// round writes a round and its spans.
func (t *trace) round(r *Round) {
	t.introduce(r.Device)
	lasted := r.End - r.Start
	t.w.Slice(perfetto.Event{
		Name: fmt.Sprintf("round %d", r.Number), Kind: "round", At: r.Start, Device: process(r.Device), Row: roundRow,
		Args: map[string]any{
			"spans": len(r.Spans), "took_us": perfetto.Micros(r.Took), "planned": r.Planned,
			"predicted_us": perfetto.Micros(r.Predicted.Latency), "bound_us": perfetto.Micros(r.Predicted.Bound),
		},
	}, lasted)
	if r.Predicted.Latency > 0 {
		t.instant("predicted end", r.Start+r.Predicted.Latency, r.Device, roundRow, map[string]any{"round": r.Number})
	}
	for i, s := range r.Spans {
		t.w.Slice(perfetto.Event{
			Name: fmt.Sprintf("batch %d [%d,%d)", s.Batch, s.Start, s.End), Kind: "span", At: r.Start,
			Device: process(r.Device), Row: serviceRow + int(s.Service),
			Args: map[string]any{"size": s.Size, "seq_len": s.SeqLen, "queries": r.Queries[i], "status": r.Outcome.Spans[i].Status.String(), "round": r.Number},
		}, lasted)
	}
}

// answer writes a query and its deadline.
func (t *trace) answer(a *Answer) {
	t.introduce(a.Device)
	row, name := serviceRow+int(a.Query.Service), fmt.Sprintf("query %d", a.Number+1)
	id := fmt.Sprint(a.Number + 1)
	how := a.Ended.Result.String()
	switch {
	case a.Ended.Result == overlap.Finished && !a.InTime:
		how = "late"
	case a.Ended.Result == overlap.Dropped, a.Ended.Result == overlap.Failed:
		how += ": " + a.Ended.Reason.String()
		t.instant(name+" "+how, a.Ended.At, a.Device, row, nil)
	}
	t.w.Range(perfetto.Event{Name: name, Kind: "query", At: a.Query.At, Device: process(a.Device), Row: row,
		Args: map[string]any{"size": a.Query.Size, "seq_len": a.Query.SeqLen, "result": how}}, id, a.Ended.At)
	t.instant("deadline of "+name, a.Due, a.Device, row, map[string]any{"result": how})
}

// move writes a move.
func (t *trace) move(m *Moved) {
	t.introduce(m.Device)
	t.w.Range(perfetto.Event{Name: fmt.Sprintf("batch %d to device %d", m.Batch, m.To), Kind: "move", At: m.Asked, Device: process(m.Device), Row: serviceRow + int(m.Service),
		Args: map[string]any{"operator": m.Operator, "size": m.Size, "waited_us": perfetto.Micros(m.Start - m.Asked), "status": m.Status.String()}},
		fmt.Sprintf("move %d", m.Batch), m.End)
}

// worker writes that a worker was lost or is ready.
func (t *trace) worker(device int, service models.ServiceID, at time.Duration, ready bool) {
	t.introduce(device)
	name := "worker lost"
	if ready {
		name = "worker ready"
	}
	t.instant(name, at, device, serviceRow+int(service), nil)
}

// instant writes an event without a duration.
func (t *trace) instant(name string, at time.Duration, device, row int, args map[string]any) {
	t.w.Instant(perfetto.Event{Name: name, Kind: "instant", At: at, Device: process(device), Row: row, Args: args})
}

// observer holds functions that are called when something happens. A nil function is not
// called. Arguments are valid only until the function returns.
type observer struct {
	// Arrive is called before the scheduler receives the query.
	Arrive func(*Query)

	Round  func(*Round)
	Answer func(*Answer)
	Move   func(*Moved)

	// late is called when an overrun has ended.
	late func(device int, o *models.SpanOutcome)

	// worker is called when a service's worker is lost or is ready again.
	worker func(device int, service models.ServiceID, at time.Duration, ready bool)
}

// Round describes a round that is over.
type Round struct {
	Device int
	Number uint64

	// Chosen is when the scheduler chose the round, and Start when it was sent. The device
	// worked on the group for Took.
	Chosen time.Duration
	Start  time.Duration
	End    time.Duration
	Took   time.Duration

	Predicted models.Estimate
	Planned   bool

	// Decision is the real time that the scheduler took to choose the round. Since the
	// previous round it has called the predictor Calls times, for Groups groups.
	Decision time.Duration
	Calls    int
	Groups   int

	// Spans ran for Queries, which are listed by span. The ID of a query is its position
	// plus one.
	Spans   []models.Span
	Queries [][]models.QueryID
	Outcome models.Outcome
}

// Moved describes a move of a batch. It was requested at Asked, waited for the links until
// Start, and ended at End. Status says whether the batch arrived or was lost.
type Moved struct {
	overlap.Move
	Asked  time.Duration
	Start  time.Duration
	End    time.Duration
	Status models.Status
}

// Answer describes how the query at position Number ended. If it was rejected, Refuse is
// the reason, and only the result, the reason and the time of Ended are set.
type Answer struct {
	Device int
	Number int
	Query  Query

	// Due is the deadline.
	Due time.Duration

	Ended  overlap.Answer
	Refuse error
	InTime bool
}

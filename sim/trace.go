package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/perfetto"
)

// Rows of a device in a trace. The row of a service is its position and
// serviceRow.
const (
	roundRow   = 1
	serviceRow = 2
)

// trace is a timeline that is being written, of devices that are known to it once they
// were named.
type trace struct {
	w        *perfetto.Writer
	services []Service
	known    map[int]bool
}

// Trace has a run of the scenario write its timeline in the Chrome trace event
// format, which Perfetto shows: for each device a row of rounds, with the end that
// was predicted, and a row of spans for each service, with its deadlines, and the
// queries. When the run is over, close ends the trace and returns the first error of
// writing it. It does not close w.
func Trace(sc *Scenario, w io.Writer) (close func() error) {
	t := &trace{perfetto.NewWriter(w), sc.Services, map[int]bool{}}
	sc.Observer = observer{Round: t.round, Answer: t.answer, Move: t.move, worker: t.worker}
	return t.w.Close
}

// introduce names a device and its rows.
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

// process returns what stands for a device: viewers take 0 for the idle process.
func process(device int) int { return device + 1 }

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

func (t *trace) move(m *Moved) {
	t.introduce(m.Device)
	t.w.Range(perfetto.Event{Name: fmt.Sprintf("batch %d to device %d", m.Batch, m.To), Kind: "move", At: m.Asked, Device: process(m.Device), Row: serviceRow + int(m.Service),
		Args: map[string]any{"operator": m.Operator, "size": m.Size, "waited_us": perfetto.Micros(m.Start - m.Asked), "status": m.Status.String()}},
		fmt.Sprintf("move %d", m.Batch), m.End)
}

func (t *trace) worker(device int, service models.ServiceID, at time.Duration, ready bool) {
	t.introduce(device)
	name := "worker lost"
	if ready {
		name = "worker ready"
	}
	t.instant(name, at, device, serviceRow+int(service), nil)
}

func (t *trace) instant(name string, at time.Duration, device, row int, args map[string]any) {
	t.w.Instant(perfetto.Event{Name: name, Kind: "instant", At: at, Device: process(device), Row: row, Args: args})
}

// observer is called when something happens. Functions that are nil are not called,
// and what the others are given is valid until they return.
type observer struct {
	Arrive func(*Query) // before the scheduler has it
	Round  func(*Round)
	Answer func(*Answer)
	Move   func(*Moved)

	// late is called when a span has ended that its round did not wait for.
	late func(device int, o *models.SpanOutcome)

	// worker is called when a worker of a service was lost, or is ready again.
	worker func(device int, service models.ServiceID, at time.Duration, ready bool)
}

// Round is a round that is over.
type Round struct {
	Device int
	Number uint64

	// The scheduler gave the round out when it was Chosen. It was sent at Start, and
	// the device worked on the group for Took.
	Chosen time.Duration
	Start  time.Duration
	End    time.Duration
	Took   time.Duration

	Predicted models.Estimate
	Planned   bool

	// Decision is what the scheduler took for the round, by the processor's clock.
	// Since the round before it called the predictor Calls times, about Groups.
	Decision time.Duration
	Calls    int
	Groups   int

	// Spans ran for Queries, by span. The ID of a query is one more than its
	// position.
	Spans   []models.Span
	Queries [][]models.QueryID
	Outcome models.Outcome
}

// Moved is a batch that was moved from one device to another. It was asked for, waited for
// the links of both until its start, and was there at its end, or lost.
type Moved struct {
	overlap.Move
	Asked  time.Duration
	Start  time.Duration
	End    time.Duration
	Status models.Status
}

// Answer is how a query ended: the one at position Number, which came to a device.
// Refuse is why it was not accepted; of Ended only result, reason and time are set then.
type Answer struct {
	Device int
	Number int
	Query  Query
	Due    time.Duration // the deadline
	Ended  overlap.Answer
	Refuse error
	InTime bool
}

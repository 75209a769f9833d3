package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/perfetto"
)

// Rows of a device in a trace. The row of a service is its position and
// serviceRow.
const (
	roundRow   = 1
	serviceRow = 2
)

// Trace writes the timeline of a run in the Chrome trace event format, which
// Perfetto shows: for each device a row of rounds, with the end that was
// predicted, and a row of spans for each service, with its deadlines, and the
// queries.
type Trace struct {
	w     *perfetto.Writer
	names []string // of services
	known map[int]bool
}

// NewTrace begins a trace. Its Observer goes into the scenario, and Close ends
// it.
func NewTrace(w io.Writer, services []Service) *Trace {
	t := &Trace{w: perfetto.NewWriter(w), known: map[int]bool{}}
	for i := range services {
		t.names = append(t.names, services[i].Name)
	}
	return t
}

// Observer returns what writes the trace.
func (t *Trace) Observer() Observer {
	return Observer{Round: t.round, Answer: t.answer, Worker: t.worker}
}

// Close ends the trace and returns the first error of writing it. It does not
// close what it writes to.
func (t *Trace) Close() error { return t.w.Close() }

// introduce names a device and its rows.
func (t *Trace) introduce(device int) {
	if t.known[device] {
		return
	}
	t.known[device] = true
	label := fmt.Sprintf("simulated device %d", device)
	if device < 0 {
		label = "no device"
	}
	t.w.NameDevice(process(device), label)
	t.w.NameRow(process(device), roundRow, "rounds")
	for i, service := range t.names {
		t.w.NameRow(process(device), serviceRow+i, service)
	}
}

// process returns what stands for a device: viewers take 0 for the idle process,
// and none below it. The first is that of no device, which is -1.
func process(device int) int { return device + 2 }

func (t *Trace) round(r *Round) {
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

func (t *Trace) answer(a *Answer) {
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

func (t *Trace) worker(e *Worker) {
	t.introduce(e.Device)
	name := "worker lost"
	if e.Ready {
		name = "worker ready"
	}
	t.instant(name, e.At, e.Device, serviceRow+int(e.Service), nil)
}

func (t *Trace) instant(name string, at time.Duration, device, row int, args map[string]any) {
	t.w.Instant(perfetto.Event{Name: name, Kind: "instant", At: at, Device: process(device), Row: row, Args: args})
}

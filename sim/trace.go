package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/overlapd/overlapd/overlap"
)

// maxTraceEvents limits the events of a trace. What comes later is left out.
const maxTraceEvents = 2_000_000

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
	w      *bufio.Writer
	err    error
	events int
	names  []string // of services
	known  map[int]bool
}

// traceEvent is one event. Times are in microseconds.
type traceEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	At    float64        `json:"ts"`
	Dur   *float64       `json:"dur,omitempty"`
	ID    string         `json:"id,omitempty"`
	Scope string         `json:"s,omitempty"`
	Dev   int            `json:"pid"`
	Row   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// NewTrace begins a trace. Its Observer goes into the scenario, and Close ends
// it.
func NewTrace(w io.Writer, services []Service) *Trace {
	t := &Trace{w: bufio.NewWriter(w), known: map[int]bool{}}
	for i := range services {
		t.names = append(t.names, services[i].Name)
	}
	_, t.err = t.w.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	return t
}

// Observer returns what writes the trace.
func (t *Trace) Observer() Observer {
	return Observer{Round: t.round, Answer: t.answer, Worker: t.worker}
}

// Close ends the trace and returns the first error of writing it. It does not
// close what it writes to.
func (t *Trace) Close() error {
	if t.err == nil {
		_, t.err = t.w.WriteString("\n]}\n")
	}
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.err
}

func (t *Trace) write(e traceEvent) {
	if t.err != nil || t.events >= maxTraceEvents {
		return
	}
	data, err := json.Marshal(e)
	if err != nil {
		t.err = err
		return
	}
	separator := ",\n"
	if t.events == 0 {
		separator = "\n"
	}
	t.events++
	if _, t.err = t.w.WriteString(separator); t.err == nil {
		_, t.err = t.w.Write(data)
	}
}

// introduce names a device and its rows.
func (t *Trace) introduce(device int) {
	if t.known[device] {
		return
	}
	t.known[device] = true
	name := func(what, name string, row int) {
		t.write(traceEvent{Name: what, Phase: "M", Dev: device, Row: row, Args: map[string]any{"name": name}})
	}
	label := fmt.Sprintf("simulated device %d", device)
	if device < 0 {
		label = "no device"
	}
	name("process_name", label, 0)
	name("thread_name", "rounds", roundRow)
	for i, service := range t.names {
		name("thread_name", service, serviceRow+i)
	}
}

func (t *Trace) round(r *Round) {
	t.introduce(r.Device)
	lasted := micros(r.End - r.Start)
	t.write(traceEvent{
		Name: fmt.Sprintf("round %d", r.Number), Cat: "round", Phase: "X", At: micros(r.Start), Dur: &lasted, Dev: r.Device, Row: roundRow,
		Args: map[string]any{
			"spans": len(r.Spans), "took_us": micros(r.Took), "planned": r.Planned,
			"predicted_us": micros(r.Predicted.Latency), "bound_us": micros(r.Predicted.Bound),
		},
	})
	if r.Predicted.Latency > 0 {
		t.instant("predicted end", r.Start+r.Predicted.Latency, r.Device, roundRow, map[string]any{"round": r.Number})
	}
	for i, s := range r.Spans {
		t.write(traceEvent{
			Name: fmt.Sprintf("batch %d [%d,%d)", s.Batch, s.Start, s.End), Cat: "span", Phase: "X", At: micros(r.Start), Dur: &lasted,
			Dev: r.Device, Row: serviceRow + int(s.Service),
			Args: map[string]any{"size": s.Size, "seq_len": s.SeqLen, "queries": r.Queries[i], "status": r.Outcome.Spans[i].Status.String(), "round": r.Number},
		})
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
	t.write(traceEvent{Name: name, Cat: "query", Phase: "b", At: micros(a.Query.At), ID: id, Dev: a.Device, Row: row,
		Args: map[string]any{"size": a.Query.Size, "seq_len": a.Query.SeqLen, "result": how}})
	t.write(traceEvent{Name: name, Cat: "query", Phase: "e", At: micros(a.Ended.At), ID: id, Dev: a.Device, Row: row})
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
	t.write(traceEvent{Name: name, Cat: "instant", Phase: "i", At: micros(at), Scope: "t", Dev: device, Row: row, Args: args})
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

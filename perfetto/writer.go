package perfetto

import (
	"bufio"
	"encoding/json"
	"io"
	"time"
)

// MaxEvents limits the events of a file. What comes later is left out.
const MaxEvents = 2_000_000

// The phases of events that are used here.
const (
	phaseName     = "M"
	phaseComplete = "X"
	phaseInstant  = "i"
	phaseBegin    = "b"
	phaseEnd      = "e"
	phaseFlow     = "s"
	phaseFlowEnd  = "f"
)

// Event is one event. Who writes it calls the groups of rows devices.
type Event struct {
	Name   string
	Kind   string // such as "span"; a viewer can filter by it
	At     time.Duration
	Device int
	Row    int
	Args   map[string]any
}

// line is an event as it stands in a file. Times are in microseconds.
type line struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	At    float64        `json:"ts"`
	Dur   *float64       `json:"dur,omitempty"`
	ID    string         `json:"id,omitempty"`
	Scope string         `json:"s,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Dev   int            `json:"pid"`
	Row   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// Writer writes one file. Its first error stays and is returned by Close.
type Writer struct {
	w      *bufio.Writer
	err    error
	events int
}

// NewWriter begins a file.
func NewWriter(w io.Writer) *Writer {
	t := &Writer{w: bufio.NewWriter(w)}
	_, t.err = t.w.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	return t
}

// Close ends the file and returns the first error of writing it. It does not
// close what it writes to.
func (t *Writer) Close() error {
	if t.err == nil {
		_, t.err = t.w.WriteString("\n]}\n")
	}
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.err
}

// NameDevice names a group of rows.
func (t *Writer) NameDevice(device int, name string) { t.name("process_name", device, 0, name) }

// NameRow names a row.
func (t *Writer) NameRow(device, row int, name string) { t.name("thread_name", device, row, name) }

func (t *Writer) name(what string, device, row int, name string) {
	t.write(line{Name: what, Phase: phaseName, Dev: device, Row: row, Args: map[string]any{"name": name}})
}

// Slice writes what lasted for some time.
func (t *Writer) Slice(e Event, lasted time.Duration) {
	l := lineOf(&e, phaseComplete)
	micros := Micros(lasted)
	l.Dur = &micros
	t.write(l)
}

// Instant writes what happened at a moment.
func (t *Writer) Instant(e Event) {
	l := lineOf(&e, phaseInstant)
	l.Scope = "t"
	t.write(l)
}

// Range writes what may overlap with others in its row, from begin to end. The
// ID is that of no other range of its kind.
func (t *Writer) Range(e Event, id string, end time.Duration) {
	l := lineOf(&e, phaseBegin)
	l.ID = id
	t.write(l)
	e.At, e.Args = end, nil
	l = lineOf(&e, phaseEnd)
	l.ID = id
	t.write(l)
}

// Flow writes an arrow between the slices that last at two moments. The ID is
// that of no other arrow of its kind.
func (t *Writer) Flow(from, to Event, id string) {
	from.Args, to.Args = nil, nil
	l := lineOf(&from, phaseFlow)
	l.ID = id
	t.write(l)
	to.Name, to.Kind = from.Name, from.Kind // or viewers do not see that they belong together
	l = lineOf(&to, phaseFlowEnd)
	l.ID, l.Bind = id, "e"
	t.write(l)
}

func lineOf(e *Event, phase string) line {
	return line{Name: e.Name, Cat: e.Kind, Phase: phase, At: Micros(e.At), Dev: e.Device, Row: e.Row, Args: e.Args}
}

func (t *Writer) write(l line) {
	if t.err != nil || t.events >= MaxEvents {
		return
	}
	data, err := json.Marshal(l)
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

// Micros returns a time in the unit of the format, for arguments.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

package perfetto

import (
	"bufio"
	"encoding/json"
	"io"
	"math"
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

// Event is one event. Who writes it calls the groups of rows devices; viewers
// take the number 0 for the idle process, so they count from 1.
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

// NameRow names a row. Viewers show rows in the order of their numbers.
func (t *Writer) NameRow(device, row int, name string) {
	t.name("thread_name", device, row, name)
	t.write(line{Name: "thread_sort_index", Phase: phaseName, Dev: device, Row: row, Args: map[string]any{"sort_index": row}})
}

func (t *Writer) name(what string, device, row int, name string) {
	t.write(line{Name: what, Phase: phaseName, Dev: device, Row: row, Args: map[string]any{"name": name}})
}

// Slice writes what lasted for some time.
func (t *Writer) Slice(e Event, lasted time.Duration) {
	l := lineOf(&e, phaseComplete)
	micros := stamp(lasted)
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
	if t.events > MaxEvents-2 {
		return // half of it is worse than nothing
	}
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
	if t.events > MaxEvents-2 {
		return
	}
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
	return line{Name: e.Name, Cat: e.Kind, Phase: phase, At: stamp(e.At), Dev: e.Device, Row: e.Row, Args: e.Args}
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

// stamp returns a time in the unit of the format. Perfetto multiplies it by 1000
// and drops what is behind the point: it must not lose a nanosecond by that, or
// one slice would begin before the last one has ended, and be left out. After
// 2^53 ns, 104 days, that may happen all the same.
func stamp(d time.Duration) float64 {
	micros := Micros(d)
	if time.Duration(micros*1000) < d {
		micros = math.Nextafter(micros, math.Inf(1))
	}
	return micros
}

// Micros returns a time in the unit of the format, for arguments.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Package perfetto writes timelines in the Chrome trace event format, which Perfetto
// (ui.perfetto.dev) and Chrome display. A [Writer] writes [Event]s one at a time. The package
// knows only the format; the simulator and overlapd trace decide what the events mean.
package perfetto

import (
	"bufio"
	"encoding/json"
	"io"
	"math"
	"time"
)

// MaxEvents limits the events in a file, because viewers load all of it into memory. Later
// events are dropped.
const MaxEvents = 2_000_000

// Event is one event. Device numbers a group of rows from 1, because viewers take 0 for the idle
// process. Viewers can filter by Kind, for example "span".
type Event struct {
	Name   string
	Kind   string
	At     time.Duration
	Device int
	Row    int
	Args   map[string]any
}

// line is the JSON form of an event. Times are in microseconds.
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

// Writer writes one file. It keeps the first error, which Close returns.
type Writer struct {
	w      *bufio.Writer
	err    error
	events int
}

// NewWriter returns a Writer and writes the beginning of the file.
func NewWriter(w io.Writer) *Writer {
	t := &Writer{w: bufio.NewWriter(w)}
	_, t.err = t.w.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	return t
}

// Close ends the file and returns the first error of writing it. It does not close the
// underlying writer.
func (t *Writer) Close() error {
	if t.err == nil {
		_, t.err = t.w.WriteString("\n]}\n")
	}
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.err
}

// NameDevice sets the name of a group of rows.
func (t *Writer) NameDevice(device int, name string) { t.name("process_name", device, 0, name) }

// NameRow sets the name of a row. Viewers sort rows by their numbers.
func (t *Writer) NameRow(device, row int, name string) {
	t.name("thread_name", device, row, name)
	t.write(line{Name: "thread_sort_index", Phase: "M", Dev: device, Row: row, Args: map[string]any{"sort_index": row}})
}

// name writes a metadata event, which has no time.
func (t *Writer) name(what string, device, row int, name string) {
	t.write(line{Name: what, Phase: "M", Dev: device, Row: row, Args: map[string]any{"name": name}})
}

// Slice writes an event with a duration. Slices of one row must be nested or disjoint.
func (t *Writer) Slice(e Event, lasted time.Duration) {
	micros := stamp(lasted)
	t.event(e, line{Phase: "X", Dur: &micros})
}

// Instant writes an event without a duration.
func (t *Writer) Instant(e Event) { t.event(e, line{Phase: "i", Scope: "t"}) }

// Range writes an event that lasts until end. Unlike slices, ranges of one row may overlap. id
// must be unique among the ranges of a kind.
func (t *Writer) Range(e Event, id string, end time.Duration) {
	to := e
	to.At, to.Args = end, nil
	t.pair(e, to, line{Phase: "b", ID: id}, line{Phase: "e", ID: id})
}

// Flow writes an arrow between the slices that enclose two events. id must be unique among the
// arrows of a kind.
func (t *Writer) Flow(from, to Event, id string) {
	from.Args, to.Args = nil, nil
	// Viewers match the two ends by name and kind.
	to.Name, to.Kind = from.Name, from.Kind
	t.pair(from, to, line{Phase: "s", ID: id}, line{Phase: "f", ID: id, Bind: "e"})
}

// pair writes both events or neither: viewers extend an event without an end to the end of the
// file.
func (t *Writer) pair(from, to Event, begin, end line) {
	if t.events <= MaxEvents-2 {
		t.event(from, begin)
		t.event(to, end)
	}
}

// event writes an event together with the other fields of its line.
func (t *Writer) event(e Event, l line) {
	l.Name, l.Cat, l.At, l.Dev, l.Row, l.Args = e.Name, e.Kind, stamp(e.At), e.Device, e.Row, e.Args
	t.write(l)
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

// stamp returns a time in microseconds. Perfetto multiplies it by 1000 and truncates the result.
// If that lost a nanosecond, a slice would begin before the previous one has ended and would be
// dropped, so stamp rounds up where needed. Beyond 2^53 ns (104 days) a nanosecond may still be
// lost.
func stamp(d time.Duration) float64 {
	micros := Micros(d)
	if time.Duration(micros*1000) < d {
		micros = math.Nextafter(micros, math.Inf(1))
	}
	return micros
}

// Micros returns a time in microseconds, the unit of the format, for use in Args.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

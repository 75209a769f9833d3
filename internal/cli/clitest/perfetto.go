package clitest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// maxTraceFaults is how many faults of a trace are told.
const maxTraceFaults = 20

// traceEvent is an event as a viewer reads it.
type traceEvent struct {
	Name  *string
	Cat   string
	Ph    string
	Ts    *float64
	Dur   *float64
	Pid   *int64
	Tid   *int64
	ID    string
	S, Bp string
	Args  map[string]any

	at, end int64 // nanoseconds, cut as Perfetto cuts them
}

// TraceFaults checks a trace by the rules by which Perfetto takes or leaves out
// events: it sorts them by time, those of one time as they stand in the file;
// slices of a row must lie within each other or apart; an arrow begins and ends
// in a slice that lasts; ranges with one ID end in the opposite order.
func TraceFaults(data []byte) []string {
	var file struct{ TraceEvents []*traceEvent }
	if err := json.Unmarshal(data, &file); err != nil {
		return []string{err.Error()}
	}
	c := traceChecker{
		open: map[[2]int64][]*traceEvent{}, ranges: map[string][]*traceEvent{}, arrows: map[string]string{},
		rows: map[[2]int64]bool{}, named: map[[2]int64]bool{}, devices: map[int64]bool{},
	}
	var whole []*traceEvent
	for i, e := range file.TraceEvents {
		if fault := e.read(); fault != "" {
			c.fault("event %d: %s", i, fault)
			continue
		}
		whole = append(whole, e)
	}
	slices.SortStableFunc(whole, func(a, b *traceEvent) int { return cmp.Compare(a.at, b.at) })
	for _, e := range whole {
		c.take(e)
	}
	c.atEnd()
	return c.faults
}

// read finds what each event must have, and its times.
func (e *traceEvent) read() string {
	switch {
	case e.Name == nil || *e.Name == "":
		return "no name"
	case len(e.Ph) != 1 || !strings.Contains("MXibesf", e.Ph):
		return fmt.Sprintf("phase %q", e.Ph)
	case e.Ts == nil || *e.Ts < 0:
		return "no time"
	case e.Pid == nil || *e.Pid < 1 || e.Tid == nil || *e.Tid < 0:
		return "no process, or that of the idle one; or no thread"
	case e.Ph == "X" && (e.Dur == nil || *e.Dur < 0):
		return "no duration"
	case e.Ph == "i" && e.S != "t":
		return "an instant of no row"
	}
	for name, value := range e.Args {
		if value == nil {
			return "argument " + name + " is null"
		}
	}
	e.at = int64(*e.Ts * 1000)
	if e.end = e.at; e.Dur != nil {
		e.end += int64(*e.Dur * 1000)
	}
	return ""
}

type traceChecker struct {
	faults  []string
	open    map[[2]int64][]*traceEvent // slices that last, of a row, the inner ones last
	ranges  map[string][]*traceEvent
	arrows  map[string]string // the last phase of each
	rows    map[[2]int64]bool // that have an event
	named   map[[2]int64]bool
	devices map[int64]bool // that have a name
}

func (c *traceChecker) fault(format string, args ...any) {
	if len(c.faults) < maxTraceFaults {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
}

func (c *traceChecker) take(e *traceEvent) {
	row := [2]int64{*e.Pid, *e.Tid}
	if e.Ph == "M" {
		c.name(e, row)
		return
	}
	c.rows[row] = true
	lasting := c.open[row]
	for len(lasting) > 0 && lasting[len(lasting)-1].end <= e.at {
		lasting = lasting[:len(lasting)-1]
	}
	switch e.Ph {
	case "X":
		if n := len(lasting); n > 0 && lasting[n-1].end < e.end {
			c.fault("slice %q at %d overlaps with %q and is not within it", *e.Name, e.at, *lasting[n-1].Name)
		}
		lasting = append(lasting, e)
	case "s", "f":
		c.arrow(e, len(lasting) > 0)
	case "b", "e":
		c.between(e)
	}
	c.open[row] = lasting
}

func (c *traceChecker) name(e *traceEvent, row [2]int64) {
	name, _ := e.Args["name"].(string)
	switch *e.Name {
	case "process_name":
		c.devices[row[0]] = name != ""
	case "thread_name":
		c.named[row] = name != ""
	case "thread_sort_index":
		if _, ok := e.Args["sort_index"].(float64); !ok {
			c.fault("row %v has no sort_index", row)
		}
	default:
		c.fault("metadata %q", *e.Name)
	}
}

func (c *traceChecker) arrow(e *traceEvent, within bool) {
	key := e.Cat + " " + *e.Name + " " + e.ID
	if _, err := strconv.ParseUint(e.ID, 16, 64); err != nil {
		c.fault("arrow %s: the ID is no number: %v", key, err)
	}
	if want := map[string]string{"s": "", "f": "s"}[e.Ph]; c.arrows[key] != want {
		c.fault("arrow %s: %s comes after %q", key, e.Ph, c.arrows[key])
	}
	if e.Ph == "f" && e.Bp != "e" {
		c.fault("arrow %s ends in what comes next", key)
	}
	if !within {
		c.fault("arrow %s: nothing lasts where its %s is, at %d", key, e.Ph, e.at)
	}
	c.arrows[key] = e.Ph
}

func (c *traceChecker) between(e *traceEvent) {
	key := e.Cat + " " + e.ID
	begun := c.ranges[key]
	switch n := len(begun); {
	case e.ID == "":
		c.fault("range %q has no ID", *e.Name)
	case e.Ph == "b":
		c.ranges[key] = append(begun, e)
	case n == 0 || *begun[n-1].Name != *e.Name:
		c.fault("range %s: %q ends and did not begin last", key, *e.Name)
	default:
		c.ranges[key] = begun[:n-1]
	}
}

func (c *traceChecker) atEnd() {
	for key, begun := range c.ranges {
		if len(begun) > 0 {
			c.fault("range %s never ends", key)
		}
	}
	for key, phase := range c.arrows {
		if phase != "f" {
			c.fault("arrow %s goes nowhere", key)
		}
	}
	for row := range c.rows {
		if !c.named[row] || !c.devices[row[0]] {
			c.fault("row %v or its process has no name", row)
		}
	}
}

// checkTrace checks a trace in a script.
func checkTrace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: perfetto FILE")
	}
	if faults := TraceFaults([]byte(ts.ReadFile(args[0]))); len(faults) > 0 {
		ts.Fatalf("Perfetto would leave out something:\n%s", strings.Join(faults, "\n"))
	}
}

package clitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/perfetto"
)

func TestLook(t *testing.T) {
	var object any
	if err := json.Unmarshal([]byte(`{"a":[{"b":"x"},2],"c":null}`), &object); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"a[0].b": "x", "a[1]": "2", "c": "null"} {
		if got, err := look(object, path); err != nil || text(got) != want {
			t.Errorf("%s: got %v, %v, want %s", path, got, err, want)
		}
	}
	for _, path := range []string{"b", "a[2]", "a.b", "a[1].b", "c.d"} {
		if got, err := look(object, path); !errors.Is(err, errNoValue) {
			t.Errorf("%s: got %v, %v", path, got, err)
		}
	}
}

// What the rules are for: each fault is found.
func TestTraceFaults(t *testing.T) {
	const names = `{"name":"process_name","ph":"M","ts":0,"pid":1,"tid":0,"args":{"name":"d"}},` +
		`{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":1,"args":{"name":"r"}},`
	slice := func(at, dur float64) string {
		return fmt.Sprintf(`{"name":"x","ph":"X","ts":%v,"dur":%v,"pid":1,"tid":1}`, at, dur)
	}
	one := func(ph, more string) string {
		return fmt.Sprintf(`{"name":"x","cat":"c","ph":%q,"pid":1,"tid":1,%s}`, ph, more)
	}
	for events, want := range map[string]string{
		slice(1, 2) + "," + slice(3, 1) + "," + slice(3, 0.5):           "",
		slice(1, 2) + "," + slice(2, 2):                                 "overlaps",
		one("X", `"ts":1`):                                              "no duration",
		one("X", `"ts":-1,"dur":1`):                                     "no time",
		one("Z", `"ts":1`):                                              "phase",
		one("i", `"ts":1`):                                              "instant of no row",
		one("i", `"ts":1,"s":"t","args":{"a":null}`):                    "null",
		`{"ph":"i","ts":1}`:                                             "no name",
		`{"name":"x","ph":"i","ts":1,"s":"t","tid":1}`:                  "no process",
		`{"name":"x","ph":"i","ts":1,"s":"t","pid":1,"tid":7}`:          "has no name",
		`{"name":"x","ph":"M","ts":1,"pid":1,"tid":7}`:                  "metadata",
		one("b", `"ts":1,"id":"1"`) + "," + one("e", `"ts":1,"id":"1"`): "",
		one("b", `"ts":1,"id":"1"`):                                     "never ends",
		one("b", `"ts":1`):                                              "no ID",
		one("e", `"ts":1,"id":"1"`):                                     "did not begin",
		slice(1, 2) + "," + one("s", `"ts":1,"id":"1"`) + "," + one("f", `"ts":2,"id":"1","bp":"e"`): "",
		slice(1, 2) + "," + one("s", `"ts":1,"id":"1"`):                                              "nowhere",
		slice(1, 2) + "," + one("f", `"ts":1,"id":"1","bp":"e"`):                                     "comes after",
		slice(1, 2) + "," + one("s", `"ts":1,"id":"1"`) + "," + one("f", `"ts":2,"id":"1"`):          "what comes next",
		slice(1, 2) + "," + one("s", `"ts":3,"id":"1"`) + "," + one("f", `"ts":3,"id":"1","bp":"e"`): "nothing lasts",
		slice(1, 2) + "," + one("s", `"ts":1,"id":"g"`) + "," + one("f", `"ts":2,"id":"g","bp":"e"`): "no number",
		"}": "invalid",
	} {
		got := strings.Join(TraceFaults([]byte(`{"traceEvents":[`+names+events+`]}`)), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", events, got, want)
		}
	}
}

// TestTraceFile checks the trace that $OVERLAPD_TRACE names.
func TestTraceFile(t *testing.T) {
	path := os.Getenv("OVERLAPD_TRACE")
	if path == "" {
		t.Skip("OVERLAPD_TRACE names no trace")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range TraceFaults(data) {
		t.Error(fault)
	}
}

// Perfetto cuts times to nanoseconds: slices that end when the next begins must
// not overlap then.
func TestTracesAreExact(t *testing.T) {
	var out strings.Builder
	w := perfetto.NewWriter(&out)
	w.NameDevice(1, "d")
	w.NameRow(1, 1, "r")
	at := time.Millisecond
	for i := range 10_000 {
		if i%20 == 0 {
			at += at / 28 // up to weeks
		}
		lasts := time.Duration(1_000_003*i%7_919 + 1)
		w.Slice(perfetto.Event{Name: "s", At: at, Device: 1, Row: 1}, lasts)
		at += lasts
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, fault := range TraceFaults([]byte(out.String())) {
		t.Error(fault)
	}
}

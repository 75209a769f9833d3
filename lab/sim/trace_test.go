package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

func TestTrace(t *testing.T) {
	sc := plainScenario(Query{}, Query{}, Query{})
	var out bytes.Buffer
	closeTrace := Trace(&sc, &out)
	run(t, sc)
	if err := closeTrace(); err != nil {
		t.Fatal(err)
	}
	var file struct {
		TraceEvents []struct {
			Name, Ph string
			Ts, Dur  float64
			Tid      int
		}
	}
	if err := json.Unmarshal(out.Bytes(), &file); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	counts := map[string]int{}
	for _, e := range file.TraceEvents {
		counts[e.Ph]++
		if e.Name == "round 2" && (e.Ts != 10_000 || e.Dur != 10_000 || e.Tid != roundRow) {
			t.Errorf("the second round is %+v", e)
		}
	}
	// Three names and the places of two rows; two rounds with a span each; three queries from begin to
	// end; their deadlines, two predicted ends, and one that was dropped.
	if counts["M"] != 5 || counts["X"] != 4 || counts["b"] != 3 || counts["e"] != 3 || counts["i"] != 6 {
		t.Errorf("events by phase %v", counts)
	}
}

// full is a file that takes nothing.
type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestTraceTellsOfErrors(t *testing.T) {
	sc := busyScenario("edf")
	closeTrace := Trace(&sc, full{})
	run(t, sc)
	if err := closeTrace(); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// begun returns a run before its first step.
func begun(t *testing.T, sc Scenario) *world {
	t.Helper()
	w, err := newWorld(&sc)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestSecondAnswerIsAFault, and one to nobody, or from another device.
func TestSecondAnswerIsAFault(t *testing.T) {
	w := begun(t, plainScenario(Query{}, Query{}))
	n := w.nodes[0]
	if err := n.control.arrive(0); err != nil || w.with[0] != 0 {
		t.Fatalf("the query was refused: %v", err)
	}
	answer := func(id models.QueryID) error {
		return w.answered(n.control, &overlap.Answer{Query: id, Result: overlap.Finished})
	}
	for _, id := range []models.QueryID{0, 2, 3} {
		if err := answer(id); !errors.Is(err, ErrInvariant) {
			t.Errorf("query %d, which is not on the device, is answered: %v", id, err)
		}
	}
	if err := answer(1); err != nil || w.left != 1 {
		t.Errorf("%v, %d are left", err, w.left)
	}
	if err := answer(1); !errors.Is(err, ErrInvariant) || w.left != 1 {
		t.Errorf("a second answer: %v, %d are left", err, w.left)
	}
}

// TestWaitingForEverIsAFault: nothing is to come, and a query is not answered.
func TestWaitingForEverIsAFault(t *testing.T) {
	w := begun(t, plainScenario(Query{}))
	w.arriving = 1
	if err := w.step(); !errors.Is(err, ErrInvariant) || !strings.Contains(err.Error(), "1 queries are never answered") {
		t.Errorf("%v", err)
	}
}

// TestLostWorkerRunsNothing: to start a span of it is a fault of the scheduler.
func TestLostWorkerRunsNothing(t *testing.T) {
	w := begun(t, plainScenario(Query{}))
	n := w.nodes[0]
	n.down[0] = true // and the scheduler is not told
	if err := n.control.arrive(0); err != nil {
		t.Fatal(err)
	}
	if err := n.control.decide(); !errors.Is(err, ErrInvariant) || !strings.Contains(err.Error(), "whose worker is lost") {
		t.Errorf("%v", err)
	}
}

// TestTraceOfTroubles traces workers that are lost and return, failures and late answers.
func TestTraceOfTroubles(t *testing.T) {
	sc := busyScenario("edf")
	sc.Queries, sc.Devices, sc.Dispatch, sc.Knows = 400, 2, Pool, KnowsNothing
	sc.Arrivals.QPS = 300
	sc.Faults = faults{Every: 100 * ms, Restart: 20 * ms, Failing: 0.1}
	sc.Clients = clients{Leaving: 0.3}
	var out bytes.Buffer
	closeTrace := Trace(&sc, &out)
	r := run(t, sc)
	if err := closeTrace(); err != nil || r.Failed == 0 || r.Late == 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	var file struct {
		TraceEvents []struct {
			Name, Ph string
			Pid      int
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(out.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	lost, ready, open, late := 0, 0, 0, 0
	names := map[int]string{}
	for _, e := range file.TraceEvents {
		switch {
		case e.Name == "worker lost":
			lost++
		case e.Name == "worker ready":
			ready++
		case e.Ph == "b":
			open++
			if e.Args["result"] == "late" {
				late++
			}
		case e.Ph == "e":
			open--
		case e.Name == "process_name":
			names[e.Pid] = e.Args["name"].(string)
		}
	}
	if lost == 0 || ready > lost || lost-ready > 2*len(sc.Services) {
		t.Errorf("%d workers are lost, %d back", lost, ready)
	}
	if open != 0 || late != r.Late {
		t.Errorf("%d queries have no end; %d are late, want %d", open, late, r.Late)
	}
	if names[process(0)] != "simulated device 0" || names[process(1)] != "simulated device 1" {
		t.Errorf("devices %v", names)
	}
}

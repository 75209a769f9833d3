package planning

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/internal/cli/clitest"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/advice"
)

// Advice takes the times of operators from the state file, of the device that the
// groups were measured on.
func TestAdviseTakesOperatorTimes(t *testing.T) {
	dir := t.TempDir()
	file, err := daemon.OpenState(dir, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &training.Dataset{Device: "here", Models: []training.Model{{Name: "a", Operators: 2}, {Name: "b", Operators: 2}}}
	for i := range 12 {
		d.Rows = append(d.Rows, training.Row{
			Group:  models.Group{Spans: []models.Span{{Service: 0, Start: i % 2, End: 2, Size: 1}, {Service: 1, End: 2, Size: 1}}},
			Median: float64(5000 + i), Mean: 5000, Std: 10,
		})
	}
	store := file.Datasets()
	if err := store.Append(d); err != nil {
		t.Fatal(err)
	}
	if err := store.PutOperators("here", d.Models[0], training.OperatorTimes{Size: 1, Repeats: 3, Micros: []float64{1000, 3000}}); err != nil {
		t.Fatal(err)
	}
	if err := store.PutOperators("there", d.Models[1], training.OperatorTimes{Size: 1, Repeats: 3, Micros: []float64{1, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	var a advice.Advice
	if err := json.Unmarshal([]byte(clitest.Run(t, adviseCommand(), "--state", dir, "--json")), &a); err != nil {
		t.Fatal(err)
	}
	for _, s := range a.Solo {
		switch s.Model {
		case "a":
			if s.Source != advice.SoloProfiled || s.Micros < 3999 || s.Micros > 4001 {
				t.Errorf("a takes %v µs, %s", s.Micros, s.Source)
			}
		case "b":
			if s.Source != advice.SoloInferred {
				t.Errorf("b takes what was measured elsewhere: %v µs, %s", s.Micros, s.Source)
			}
		}
	}
	if len(a.Solo) != 2 {
		t.Errorf("%d solo times", len(a.Solo))
	}
}

func TestTargetsOfAdvice(t *testing.T) {
	list := []advice.Service{{Name: "a"}, {Name: "b"}}
	if err := takeTargets(list, []string{"b=75ms"}); err != nil || list[0].Target != 0 || list[1].Target != 75*time.Millisecond {
		t.Errorf("got %v, the list is %+v", err, list)
	}
	for target, want := range map[string]string{"c=1s": `there is no service "c"`, "a": "write NAME=DURATION, such as a=75ms", "a=0s": "write NAME=DURATION", "a=-1s": "write NAME=DURATION", "a=75": "write NAME=DURATION"} {
		if err := takeTargets(list, []string{target}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", target, err, want)
		}
	}
}

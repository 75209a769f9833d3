package planning

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

// twoWays returns a plan of a service with two pipelines over three devices.
func twoWays() *Placement {
	return &Placement{
		Format: placementKind.Format, Kind: kindPipeline, Objective: 30, Bound: 31, Solver: heuristic,
		Devices: []Device{{Name: "big", Class: "A", Speed: 1}, {Name: "small", Class: "B", Speed: 1}, {Name: "tiny", Class: "B", Speed: 1}},
		Services: []Service{{
			Name: "a", Rate: 1, Hash: "abc", Operators: 10, Devices: []string{"big", "small", "tiny"},
			Pipelines: []Pipeline{
				{Batch: 4, Rate: 20, Latency: 30, Stages: []Stage{
					{Start: 0, End: 7, Class: "A", Devices: []string{"big"}, Share: 1, Time: 10, Move: 250},
					{Start: 7, End: 10, Class: "B", Devices: []string{"tiny"}, Share: 1, Time: 20},
				}},
				{Batch: 1, Rate: 10, Latency: 90, Stages: []Stage{{Start: 0, End: 10, Class: "B", Devices: []string{"small"}, Share: 1, Time: 90}}},
			},
		}},
	}
}

func TestRoutes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	if err := twoWays().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	plan, err := ReadPlacement(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &plan.Services[0]
	want := []models.Pipeline{
		{Batch: 4, Stages: []models.Stage{{End: 7, Devices: []int{2}, Move: 250 * time.Microsecond}, {End: 10, Devices: []int{0}}}},
		{Batch: 1, Stages: []models.Stage{{End: 10, Devices: []int{1}}}},
	}
	routes, err := s.Routes([]string{"tiny", "small", "big"}, "abc", 10)
	if diff := cmp.Diff(want, routes); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if _, err := s.Routes([]string{"big", "small", "tiny"}, "", 10); err != nil {
		t.Errorf("a model of which no hash is known: %v", err)
	}
	divided := twoWays().Services[0]
	divided.Pipelines[1].Stages[0].Share = 2
	for want, err := range map[string]error{
		"was planned with the model abc, but abd is loaded":                      routesError(s, "abd", 10, "big", "small", "tiny"),
		"was planned with 10 operators, but its model has 11":                    routesError(s, "abc", 11, "big", "small", "tiny"),
		"is planned on device tiny, which does not exist":                        routesError(s, "abc", 10, "big", "small"),
		"is planned on parts of devices, but the daemon does not divide devices": routesError(&divided, "abc", 10, "big", "small", "tiny"),
	} {
		if !errors.Is(err, errRoutes) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "overlapd plan pipeline") {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func routesError(s *Service, hash string, operators int, devices ...string) error {
	_, err := s.Routes(devices, hash, operators)
	return err
}

// TestDamagedPipelines has each check of a pipeline plan refuse what breaks it.
func TestDamagedPipelines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	if err := twoWays().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"kind":        {`"kind":"pipeline"`, `"kind":"place"`, `has 2 pipelines, too many or in a plan of the wrong kind, "place"`},
		"gap":         {`"start":7`, `"start":8`, "divide all 10 among stages"},
		"empty stage": {`"end":7`, `"end":0`, "divide all 10 among stages"},
		"short":       {`"operators":10`, `"operators":11`, "divide all 11 among stages"},
		"stranger":    {`"devices":["tiny"]`, `"devices":["huge"]`, `device "huge" does not exist or is of another class`},
		"twice":       {`"devices":["tiny"]`, `"devices":["tiny","tiny"]`, `device "tiny" has fewer parts than are used`},
		"divided":     {`["small"],"share":1`, `["tiny"],"share":2`, `device "tiny" is divided but also runs other stages`},
		"class":       {`"end":7,"class":"A"`, `"end":7,"class":"B"`, `device "big" does not exist or is of another class`},
		"nowhere":     {`"devices":["tiny"]`, `"devices":[]`, "stage 2 has 0 devices"},
		"share":       {`"share":1`, `"share":0`, "in 0 parts each"},
		"batch":       {`"batch":4`, `"batch":0`, "batch of 0"},
		"rate":        {`"rate":20`, `"rate":-1`, "rate of -1"},
		"last move":   {`"time_ms":20`, `"time_ms":20,"move_us":1`, "and 0 after the last stage"},
		"where":       {`"devices":["big","small","tiny"]`, `"devices":["big"]`, "not run on exactly the devices of its pipelines"},
	} {
		text := strings.Replace(string(data), c.old, c.new, 1)
		if text == string(data) {
			t.Fatalf("%s: there is no %s in %s", name, c.old, data)
		}
		refused(t, name, text, errDamaged, c.want)
	}
}

package planning

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func goodPlan(t testing.TB) *Placement {
	t.Helper()
	services := randomServices(rand.New(rand.NewPCG(1, 1)), 3, 1, 10)
	plan, err := Place(ctx(), services, equalDevices(2, 40), alone())
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestPlacementFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	plan := goodPlan(t)
	if err := plan.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	read, err := ReadPlacement(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plan, read); diff != "" {
		t.Error(diff)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, new string
		kind     error
		want     string
	}{
		"version":       {"overlapd-placement/1", "overlapd-placement/2", errForeign, `its format is "overlapd-placement/2"`},
		"unknown field": {`"speed"`, `"spied"`, errDamaged, `unknown field "spied"`},
		"device":        {`"devices":["gpu0"`, `"devices":["gpu7"`, errDamaged, `runs on device "gpu7", which does not`},
		"memory":        {`"name":"gpu0","memory_mib":40`, `"name":"gpu0","memory_mib":4`, errDamaged, `device "gpu0" has 4 MiB, but its services need`},
		"same name":     {`"name":"gpu1"`, `"name":"gpu0"`, errDamaged, `device "gpu0" has no name of its own`},
		"speed":         {`"speed":1`, `"speed":-1`, errDamaged, "and a speed above 0"},
		"objective":     {`"objective":`, `"objective":-`, errDamaged, "give numbers from 0"},
	} {
		text := strings.Replace(string(data), c.old, c.new, 1)
		if text == string(data) {
			t.Fatalf("%s: there is no %s in %s", name, c.old, data)
		}
		refused(t, name, text, c.kind, c.want)
	}
	refused(t, "truncated", string(data[:len(data)/2]), errDamaged, "truncated after")
	refused(t, "empty", "", errForeign, "it is empty")
	refused(t, "nothing", `{"format":"overlapd-placement/1"}`, errDamaged, "0 services and 0 devices")
	plan.Objective = math.NaN()
	if err := plan.WriteFile(path); !errors.Is(err, errDamaged) {
		t.Errorf("wrote NaN: %v", err)
	}
}

// refused wants an error that names the file and says what to do.
func refused(t *testing.T, name, text string, kind error, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ReadPlacement(path)
	if !errors.Is(err, kind) {
		t.Fatalf("%s: %v", name, err)
	}
	for _, part := range []string{path, want, planRemedy} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q is not in: %v", name, part, err)
		}
	}
}

func TestPlacementFits(t *testing.T) {
	plan := goodPlan(t)
	same := func() ([]Service, []Device) {
		return append([]Service(nil), plan.Services...), append([]Device(nil), plan.Devices...)
	}
	services, devices := same()
	if err := plan.Fits(services, devices); err != nil {
		t.Error(err)
	}
	services[0].Memory--
	devices[0].Memory++
	if err := plan.Fits(services, devices); err != nil {
		t.Errorf("more room than planned: %v", err)
	}
	for want, change := range map[string]func(s []Service, d []Device){
		"the plan has service m0, which does not exist":          func(s []Service, _ []Device) { s[0].Name = "other" },
		"the plan has no service other":                          func(s []Service, _ []Device) { s[0].Name = "other" },
		"the plan has device gpu1, which does not exist":         func(_ []Service, d []Device) { d[1].Name = "gpu9" },
		"service m0 has or needs 1000 MiB, but the plan assumes": func(s []Service, _ []Device) { s[0].Memory, s[0].Working = 1000, 0 },
		"device gpu1 has or needs 20 MiB, but the plan assumes":  func(_ []Service, d []Device) { d[1].Memory = 20 },
	} {
		s, d := same()
		change(s, d)
		if err := plan.Fits(s, d); !errors.Is(err, errOther) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), planRemedy) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func FuzzReadPlacement(f *testing.F) {
	path := filepath.Join(f.TempDir(), "plan.json")
	if err := goodPlan(f).WriteFile(path); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	if err := twoWays().WriteFile(path); err != nil {
		f.Fatal(err)
	}
	if data, err = os.ReadFile(path); err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":"overlapd-placement/1","services":[{"name":"a","devices":["d","d"]}],"devices":[{"name":"d","speed":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		plan, err := placementKind.Read(strings.NewReader(string(data)), "")
		if err != nil {
			if !errors.Is(err, errForeign) && !errors.Is(err, errDamaged) {
				t.Errorf("%v is of no kind", err)
			}
			return
		}
		if err := plan.Fits(plan.Services, plan.Devices); err != nil {
			t.Errorf("a plan does not fit itself: %v", err)
		}
		plan.Imbalance()
		for _, s := range plan.Services {
			var names []string
			for _, d := range plan.Devices {
				names = append(names, d.Name)
			}
			if routes, err := s.Routes(names, s.Hash, s.Operators); err == nil && len(routes) != len(s.Pipelines) || err != nil && !errors.Is(err, errRoutes) {
				t.Errorf("routes %v of %v: %v", routes, s.Pipelines, err)
			}
		}
	})
}

func TestReadServices(t *testing.T) {
	read := func(text, gpu string) ([]Service, int, error) {
		path := filepath.Join(t.TempDir(), "models.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadServices(path, gpu, nil)
	}
	// Two fit 100 ms with (50 - 10)/2 = 20 in a batch, which takes 50 ms: 400 a second.
	if services, _, err := read("name,alpha_ms,beta_ms,slo,rate,memory\na,2,10,100,40,7\nb,1,5,,1,2\n", ""); err == nil {
		t.Errorf("an empty target: %v", services)
	}
	services, streams, err := read("Model,alpha_ms,beta_ms,slo_ms,rate,memory_mib\na,2,10,100,40,7\nb,1,5,10,1,2\na,2,10,50,60,7\n", "")
	want := []Service{{Name: "a", Alpha: 2, Beta: 10, Rate: 100, Load: 0.1 + 60/(1000*7/24.), Memory: 7}, {Name: "b", Alpha: 1, Beta: 5, Rate: 1, Load: 0.006, Memory: 2}}
	if diff := cmp.Diff(want, services, cmp.Comparer(near)); err != nil || streams != 3 || diff != "" {
		t.Errorf("%v, %d streams, %s", err, streams, diff)
	}
	const two = "gpu,model,alpha_ms,beta_ms\nT4,a,2,10\nA100,a,1,10\n"
	if services, _, err := read(two, "A100"); err != nil || len(services) != 1 || services[0].Alpha != 1 {
		t.Errorf("%v, %v", services, err)
	}
	for want, c := range map[string][2]string{
		"other times or memory than in an earlier row":  {two, ""},
		"no row has H100 in its column gpu":             {two, "H100"},
		"no column gpu among":                           {"model,alpha_ms,beta_ms\na,1,1\n", "T4"},
		"no column alpha_ms among":                      {"model,beta_ms\na,1\n", ""},
		"takes 12 ms for a single request":              {"model,alpha_ms,beta_ms,slo_ms\na,2,10,11\n", ""},
		`column 2 (alpha_ms) is "0": it must be`:        {"model,alpha_ms,beta_ms\na,0,1\n", ""},
		`column 4 (rate) is "NaN": it must be`:          {"model,alpha_ms,beta_ms,rate\na,1,1,NaN\n", ""},
		"there are columns, but no row below them":      {"model,alpha_ms,beta_ms\n", ""},
		"the file is empty; it must have a header line": {"", ""},
	} {
		if _, _, err := read(c[0], c[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// TestNoPlan sees an error that says what to change where there is no plan.
func TestNoPlan(t *testing.T) {
	a := Service{Name: "a", Memory: 10, Load: 0.1, Alpha: 1, Beta: 1}
	b := Service{Name: "b", Memory: 10, Load: 0.1, Alpha: 9, Beta: 90}
	place := func(services []Service, devices []Device) error {
		_, err := Place(ctx(), services, devices, alone())
		return err
	}
	for want, err := range map[string]error{
		"service a needs 10 MiB, but no device has more than 5": place([]Service{a}, equalDevices(2, 5)),
		"fits all services into the memory of the devices":      place([]Service{a, b}, equalDevices(1, 15)),
		"0 devices":             place([]Service{a}, nil),
		"no name of its own":    place([]Service{a, a}, equalDevices(1, 50)),
		"no service has a load": place([]Service{{Name: "a"}}, equalDevices(1, 1)),
		"give numbers from 0":   place([]Service{{Name: "a", Load: math.Inf(1)}}, equalDevices(1, 1)),
		"give more memory, more groups": func() error {
			_, err := Herd{Groups: 1, Affinity: 2}.Plan(ctx(), []Service{a, b}, equalDevices(2, 50), alone())
			return err
		}(),
		"gpu0 and slow differ": func() error {
			_, err := Herd{Groups: 1}.Plan(ctx(), []Service{a}, append(equalDevices(1, 50), Device{Name: "slow", Memory: 50, Speed: 0.5}), alone())
			return err
		}(),
		"takes 10 MiB of changes; allow at least that": func() error {
			before, err := Partition{}.Plan(ctx(), []Service{a}, subClusters(2, 50), alone())
			if err != nil {
				return err
			}
			_, err = Partition{InForce: before, MaxChange: 5}.Plan(ctx(), []Service{a, b}, subClusters(2, 50), alone())
			return err
		}(),
		"within the limits of rate": func() error {
			_, err := Partition{MaxRate: 1}.Plan(ctx(), []Service{{Name: "a", Rate: 2, Load: 1}}, subClusters(2, 50), alone())
			return err
		}(),
		"no solver at --solver /nonexistent": func() error {
			_, err := Place(ctx(), []Service{a}, equalDevices(1, 50), Search{Solver: "/nonexistent", Limit: time.Second})
			return err
		}(),
	} {
		if !errors.Is(err, errNoPlan) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if _, err := (Partition{InForce: goodPlan(t)}).Plan(ctx(), []Service{a}, subClusters(2, 50), alone()); !errors.Is(err, errOther) {
		t.Errorf("a plan in force of a host: %v", err)
	}
}

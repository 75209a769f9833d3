package planning

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

func TestFitLine(t *testing.T) {
	for name, tt := range map[string]struct {
		times       []soloTime
		alpha, beta float64
	}{
		"none":                  {nil, 0, 0},
		"one":                   {[]soloTime{{2, 0, 6}}, 3, 0},
		"a line":                {[]soloTime{{1, 0, 3}, {2, 0, 5}, {4, 0, 9}}, 2, 1},
		"the longest sequences": {[]soloTime{{1, 8, 1}, {2, 8, 1}, {1, 64, 3}, {2, 64, 5}}, 2, 1},
		"through 0":             {[]soloTime{{1, 0, 1}, {2, 0, 4}}, 9 / 5., 0},
		"flat":                  {[]soloTime{{1, 0, 4}, {2, 0, 4}, {3, 0, 4}}, 4e-6, 4},
		"falling":               {[]soloTime{{1, 0, 5}, {2, 0, 3}}, 4e-6, 4},
	} {
		alpha, beta := fitLine(tt.times)
		if math.Abs(alpha-tt.alpha) > 1e-9 || math.Abs(beta-tt.beta) > 1e-9 {
			t.Errorf("%s: %v·b + %v, want %v and %v", name, alpha, beta, tt.alpha, tt.beta)
		}
	}
}

// TestStoredTimes reads what daemons have measured: on the device that knows most of the
// services, whatever else is stored.
func TestStoredTimes(t *testing.T) {
	state, err := daemon.OpenState(t.TempDir(), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	store := state.Datasets()
	for _, m := range []struct {
		device, name string
		micros       []float64
	}{
		{"one", "a", []float64{1000, 500}}, {"two", "a", []float64{2000, 2000}}, {"two", "b", []float64{1, 2}}, {"one", "other", []float64{3, 3}},
	} {
		model := training.Model{Name: m.name, Hash: "hash of " + m.name, Operators: 2}
		set := &training.Dataset{Device: m.device, Models: []training.Model{model}, Rows: []training.Row{
			{Group: models.Group{Spans: []models.Span{{End: 1, Size: 1}}}, Repeats: 1, Median: 1, Mean: 1}}}
		err = errors.Join(err, store.Append(set))
		err = errors.Join(err, store.PutOperators(m.device, model, training.OperatorTimes{Size: 4, Repeats: 1, Micros: m.micros}))
	}
	if err != nil {
		t.Fatal(err)
	}
	times, err := storedTimes(store, []string{"a", "b", "c"})
	want := [][]soloTime{{{4, 0, 4}}, {{4, 0, 0.003}}, nil}
	if err != nil || !cmp.Equal(times, want, cmp.AllowUnexported(soloTime{})) {
		t.Errorf("times %v, got %v", times, err)
	}
}

// TestConfiguredSpeeds makes devices as fast as they have cores, or as their profiles say.
func TestConfiguredSpeeds(t *testing.T) {
	profile, err := filepath.Abs("../../../docs/examples/synthetic.device.json")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "c.toml")
	text := "plan = \"of others\"\ndevice_profile = \"" + profile + "\"\n"
	for _, name := range []string{"x", "y"} {
		text += fmt.Sprintf("[[device]]\nname = %q\nkind = \"emulated\"\n", name)
	}
	write := func(service string) {
		if err := os.WriteFile(path, []byte(text+service), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[[service]]\nname = \"a\"\nmodel = \"emulated:cnn\"\nmax_batch = 4\n")
	services, devices, err := configured(path, 7)
	if err != nil || devices[0].Speed != 1 || devices[1].Speed != 1 || devices[1].Memory != 7 || services[0].Alpha <= 0 || services[0].Target != 100 || services[0].MaxBatch != 4 {
		t.Errorf("services %+v, devices %+v, got %v", services, devices, err)
	}
	one := func(model string) string {
		return "[[service]]\nname = \"a\"\nmax_batch = 4\nmodel = \"emulated:" + model + "\"\n"
	}
	write(one("encoder") + strings.Replace(one("cnn"), "\"a\"", "\"b\"", 1) +
		"[[service]]\nname = \"v\"\nmax_batch = 4\n[[service.variant]]\nmodel = \"emulated:encoder\"\naccuracy = 2\n[[service.variant]]\nmodel = \"emulated:cnn\"\naccuracy = 1\n" +
		strings.Replace(one("encoder"), "\"a\"", "\"last\"", 1))
	services, _, err = configured(path, 7)
	if err != nil || len(services) != 4 {
		t.Fatal(services, err)
	}
	encoder, cnn, varied, last := services[0], services[1], services[2], services[3]
	if cnn.Alpha+cnn.Beta >= encoder.Alpha+encoder.Beta {
		t.Fatal("the profile has changed: cnn is not the faster")
	}
	if varied.Model != "emulated:encoder, emulated:cnn" || varied.Alpha != cnn.Alpha || varied.Beta != cnn.Beta || last.Alpha != encoder.Alpha {
		t.Errorf("a service with variants is not as fast as the fastest: %+v", services)
	}
	for service, want := range map[string]string{
		"[[service]]\nname = \"a\"\nmodel = \"emulated:other\"\n":                   `service a: ` + profile + ` does not know "emulated:other"; name a model that it has`,
		"[[service]]\nname = \"a\"\nmodel = \"emulated:cnn\"\ntarget = \"100us\"\n": `service a: one request alone takes 1.`,
	} {
		write(service)
		if _, _, err := configured(path, 7); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

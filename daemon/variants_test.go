package daemon

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/planning/selection"
)

// variantsConfig is one service with both models of the formula as its variants.
func variantsConfig(t *testing.T) config.Config {
	return emulatedConfig(t, func(c *config.Config) {
		c.Services = c.Services[:1]
		s := &c.Services[0]
		s.Name, s.Variants, s.Model = "s", []config.Variant{{Model: "emulated:first", Accuracy: 70}, {Name: "twin", Model: "emulated:first", Accuracy: 80}}, ""
	})
}

// A daemon runs a service for each variant. A reload takes another accuracy without a
// worker, and variants come and go as services; what holds is written as a file has it.
func TestVariantsAreServices(t *testing.T) {
	c := variantsConfig(t)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	d := serveEmulated(t, c)
	names := func() string { now := d.Config(); return strings.Join(now.Names(), " ") }
	if names() != "s/first s/twin" {
		t.Fatal(names())
	}
	reload := func(change func(s *config.Service)) config.Reloaded {
		t.Helper()
		s := c.Services[0]
		s.Variants = append([]config.Variant(nil), s.Variants...)
		change(&s)
		c.Services = []config.Service{s}
		done, err := d.Reload(context.Background(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		done.Took, done.Failed = 0, nil
		return *done
	}
	for _, tt := range []struct {
		name   string
		change func(s *config.Service)
		want   config.Reloaded
		names  string
	}{
		{"another accuracy", func(s *config.Service) { s.Variants[1].Accuracy = 90 }, config.Reloaded{Changed: []string{"s/twin"}}, "s/first s/twin"},
		{"one more", func(s *config.Service) {
			s.Variants = append(s.Variants, config.Variant{Name: "third", Model: "emulated:first", Accuracy: 60})
		}, config.Reloaded{Added: []string{"s/third"}}, "s/first s/twin s/third"},
		{"one less", func(s *config.Service) { s.Variants = s.Variants[1:] }, config.Reloaded{Removed: []string{"s/first"}}, "s/twin s/third"},
	} {
		if got := reload(tt.change); cmp.Diff(tt.want, got) != "" || names() != tt.names {
			t.Errorf("%s: %+v, %s", tt.name, got, names())
		}
	}
}

// ask sends a query of zeros with parameters, and returns the status, the variant that the
// header says has answered, and the answer.
func (d *emulatedDaemon) ask(parameters string) (status int, variant, text string) {
	d.t.Helper()
	body := `{"parameters":{` + parameters + `},"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[0,0,0,0]}]}`
	r, err := http.Post(d.url("/v2/models/s/infer"), contentJSON, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return r.StatusCode, r.Header.Get("Overlapd-Variant"), string(all)
}

// selects waits until the status says how the variant is selected.
func (d *emulatedDaemon) selects(want string) {
	d.t.Helper()
	said := ""
	for begin := time.Now(); !strings.Contains(said, want); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 2*time.Minute {
			d.t.Fatalf("the variant is selected %q, not %q\n%s", said, want, d.log)
		}
		if s, ok := d.backend.FullStatus(); ok && len(s.Services) > 0 {
			said = s.Services[0].Selection
		}
	}
}

// Each query is answered by the variant that the policy selects or the request asks for, and
// the answer, the status and the log of decisions say which. When a variant is taken away the
// others go on.
func TestVariantsAnswer(t *testing.T) {
	c := variantsConfig(t)
	c.Decisions.Log = true
	d := serveEmulated(t, c)
	d.selects("by a policy for")
	answered := map[string]uint64{}
	asks := func(parameters, want string) {
		t.Helper()
		status, variant, text := d.ask(parameters)
		if status != http.StatusOK || variant != want || !strings.Contains(text, `"parameters":{"variant":"`+want+`"}`) {
			t.Fatalf("{%s}: status %d, variant %q, want %q: %s", parameters, status, variant, want, text)
		}
		answered["s/"+want]++
	}
	for range 5 {
		asks("", "twin") // as fast as the other, and more accurate
		asks(`"variant":"first"`, "first")
		asks(`"least_accuracy":75`, "twin")
	}
	s, _ := d.backend.FullStatus()
	for i := range s.Services {
		if one := &s.Services[i]; one.Finished != answered[one.Name] || one.Requests.Success.Count != one.Finished || one.Accuracy == 0 {
			t.Errorf("%d are answered by %s: %+v", answered[one.Name], one.Name, one)
		}
	}
	if stats, _ := d.get("/v2/models/s/stats"); strings.Count(stats, `"name":`) != 3 || !strings.Contains(stats, `"name":"s","version":"1"`) || !strings.Contains(stats, `"inference_count":15`) {
		t.Errorf("statistics: %s", stats)
	}
	one := c.Services[0]
	one.Variants = append([]config.Variant{{Name: "third", Model: "emulated:first", Accuracy: 60}}, one.Variants[0])
	c.Services = []config.Service{one}
	if _, err := d.Reload(context.Background(), c, nil); err != nil {
		t.Fatal(err)
	}
	if status, _, text := d.ask(`"variant":"twin"`); status != http.StatusBadRequest {
		t.Errorf("a variant that was taken away: status %d: %s", status, text)
	}
	if status, _, text := d.ask(""); status != http.StatusOK { // the policy that was selects one that is gone
		t.Errorf("status %d: %s", status, text)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) { // until there is another
		if _, variant, _ := d.ask(""); variant == "first" {
			break
		} else if time.Since(begin) > 20*time.Second {
			t.Fatalf("%s answers, less accurate than first", variant)
		}
	}
	d.stop()
	d.replays()
}

// policyFile writes the one policy of variantsConfig for a load, and returns its path.
func policyFile(t *testing.T, c *config.Config, load float64, change func(w *selection.Worker)) string {
	t.Helper()
	w, err := Selectable(*c, "s", Options{emulation: formulaEmulation})
	if err != nil {
		t.Fatal(err)
	}
	w.CV, w.Queue, w.Levels = 1, 2, 5
	for i := range w.Variants {
		w.Variants[i].Latency = []float64{1 + float64(i), 2 + float64(i)}
	}
	if change != nil {
		change(&w)
	}
	set, err := w.SolveSet(context.Background(), load, load, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "policies.json")
	if err := set.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A reload, and a check, refuse a policy file that the daemon could not follow, and then
// nothing changes. One that can be followed takes effect, also when it is rewritten.
func TestReloadOfPolicies(t *testing.T) {
	c := variantsConfig(t)
	d := serveEmulated(t, c)
	d.selects("by a policy for")
	with := func(path string) (check, reload error) {
		next := c
		next.Services = []config.Service{c.Services[0]}
		next.Services[0].Selection = path
		check = CheckSelection(next, Options{emulation: formulaEmulation})
		_, reload = d.Reload(context.Background(), next, nil)
		return check, reload
	}
	good := policyFile(t, &c, 123, nil)
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	cut, pipe := filepath.Join(t.TempDir(), "cut.json"), filepath.Join(t.TempDir(), "pipe.json")
	if err := errors.Join(os.WriteFile(cut, data[:len(data)/2], 0o600), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{
		"truncated after":                              cut,
		"it is not a regular file":                     pipe,
		"no such file":                                 good + "x",
		"the target in ms is":                          policyFile(t, &c, 123, func(w *selection.Worker) { w.Target += 7 }),
		"the accuracy of twin is 80":                   policyFile(t, &c, 123, func(w *selection.Worker) { w.Variants[1].Accuracy = 81 }),
		"variant other of the policies does not exist": policyFile(t, &c, 123, func(w *selection.Worker) { w.Variants[1].Name = "other" }),
		"the device is":                                policyFile(t, &c, 123, func(w *selection.Worker) { w.Device = "another" }),
		"the number of workers is 1, but the":          policyFile(t, &c, 123, func(w *selection.Worker) { w.Workers = 2 }),
	} {
		check, reload := with(path)
		for who, err := range map[string]error{"check": check, "reload": reload} {
			if _, is := errors.AsType[config.Faults](err); !is || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "service s: selection: ") || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %q is not in: %v", who, want, err)
			}
		}
		if now := d.Config(); now.Services[0].Selection != "" {
			t.Errorf("the daemon has %s from now on", now.Services[0].Selection)
		}
	}
	d.selects("by a policy for")
	if check, reload := with(good); check != nil || reload != nil {
		t.Fatal(check, reload)
	}
	d.selects("by a policy for 123 queries")
	if err := os.Rename(policyFile(t, &c, 45, nil), good); err != nil {
		t.Fatal(err)
	}
	if check, reload := with(good); check != nil || reload != nil {
		t.Fatal(check, reload)
	}
	d.selects("by a policy for 45 queries")
	if check, reload := with(""); check != nil || reload != nil {
		t.Fatal(check, reload)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) { // it calculates a policy itself
		s, ok := d.backend.FullStatus()
		if ok && strings.Contains(s.Services[0].Selection, "by a policy for") && !strings.Contains(s.Services[0].Selection, "for 45 queries") {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatal(s.Services[0].Selection)
		}
	}
}

// Policies that are damaged, or for something else, are not followed: the fastest answers,
// and the status says why.
func TestPoliciesOfOthers(t *testing.T) {
	for want, write := range map[string]func(path string) error{
		"policies.json": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"target": func(path string) error {
			w := selection.Worker{Target: 77, Workers: 1, CV: 1, Queue: 2, Levels: 5, Variants: []selection.Variant{
				{Name: "first", Accuracy: 70, Latency: []float64{1, 2}}, {Name: "twin", Accuracy: 80, Latency: []float64{2, 3}},
			}}
			set, err := w.SolveSet(context.Background(), 1, 10, nil)
			if err != nil {
				return err
			}
			return set.WriteFile(path)
		},
	} {
		c := variantsConfig(t)
		c.Services[0].Selection = filepath.Join(t.TempDir(), "policies.json")
		if err := write(c.Services[0].Selection); err != nil {
			t.Fatal(err)
		}
		d := serveEmulated(t, c)
		d.selects("the fastest answers: ")
		d.selects(want)
		if status, variant, text := d.ask(""); status != http.StatusOK || variant == "" {
			t.Errorf("status %d, variant %q: %s", status, variant, text)
		}
		d.stop()
	}
}

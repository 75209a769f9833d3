package gpu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/ort"
)

// killsStep ends servers and control daemons of MPS by force, and clients with work. A
// driver may not survive that, so it is the last step and runs only when it is named.
const killsStep = "kills"

// step is one part of a check.
type step struct {
	name  string
	limit time.Duration
	lists string // what it writes of the report, by name in JSON
	needs string // the step whose results it uses, "" for none
	about string
	run   func(*check, context.Context) error
}

// steps are in the order in which they run: later ones use what earlier ones found.
var steps = []step{
	{"facts", 15 * time.Second, "facts", "", "driver, GPU, MIG, MPS, ONNX Runtime", (*check).readFacts},
	{"wake", 15 * time.Second, "wake", "", "waking up, after pauses", (*check).measureWaking},
	{"close", 20 * time.Second, "", "", "sessions with Concat end after many runs", (*check).closeSessions},
	{"mps", 20 * time.Second, "", "", "what MPS prints and does, and pinning memory", (*check).lookAtMPS},
	{"outputs", 120 * time.Second, "outputs", "", "models cut on the GPU against whole on the CPU", (*check).compareOutputs},
	{"bits", 150 * time.Second, "bits", "", "models cut on the GPU against whole on the GPU, bit for bit", (*check).compareBits},
	{"sizes", 160 * time.Second, "sizes", "", "the first query after loading, and two batch sizes in turns, in four ways", (*check).measureSizes},
	{"cuts", 140 * time.Second, "cuts choices", "", "cut against whole in turns", (*check).measureCuts},
	{"pairs", 60 * time.Second, "pairs", "", "every two services, alone and together, without MPS and with it", (*check).measurePairs},
	{"profile", 120 * time.Second, "profile", "pairs", "what a predictor is made of, and its error", (*check).profileGroups},
	{"load", 265 * time.Second, "load turns policies", "profile", "the same load under each way of serving", (*check).loadPolicies},
	{"mixed", 45 * time.Second, "mixed", "profile", "two batch sizes under load: the predictor's error", (*check).loadMixed},
	{"soak", 75 * time.Second, "soak", "", "resident, pinned and device memory while three services run", (*check).soakServices},
	{killsStep, 20 * time.Second, "", "", "what becomes of clients whose server, neighbour or control daemon is killed", (*check).lookAtKills},
}

// calls are the steps of each call of ten minutes. Each is complete by itself on a machine
// that has nothing but the bundle; what kills comes last.
var calls = []string{"wake,close,mps,outputs", "bits,sizes,cuts", "pairs,profile,load", "mixed,soak", killsStep}

// chooseSteps returns the steps with these names and those that they need and that are not
// done yet, in the order of steps. The first one is always among them: it finds the GPU and
// whether the libraries suit it.
func chooseSteps(names string, done func(name string) bool) (chosen []step, err error) {
	wanted := strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range wanted {
		if !slices.ContainsFunc(steps, func(s step) bool { return s.name == name }) {
			var known []string
			for _, s := range steps {
				known = append(known, s.name)
			}
			err = errors.Join(err, fmt.Errorf("no step is called %q: there are %s", name, strings.Join(known, ", ")))
		}
	}
	all := len(wanted) == 0
	for _, s := range slices.Backward(steps) {
		if s.name == steps[0].name || slices.Contains(wanted, s.name) || all && s.name != killsStep {
			chosen = append(chosen, s)
			if s.needs != "" && !done(s.needs) {
				wanted = append(wanted, s.needs)
			}
		}
	}
	slices.Reverse(chosen)
	return chosen, err
}

// planned is the plan of a check in words: the calls, and when each step begins at the
// latest where nothing is done yet.
func planned(names string) (string, error) {
	list := calls
	if names != "" {
		list = []string{names}
	}
	var b strings.Builder
	clock := func(d time.Duration) string { return fmt.Sprintf("%2d:%02d", int(d.Minutes()), int(d.Seconds())%60) }
	for _, call := range list {
		chosen, err := chooseSteps(call, func(string) bool { return false })
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "gpu-check -steps %s\n", call)
		var at time.Duration
		for _, s := range chosen {
			fmt.Fprintf(&b, "  %s  %-8s  at most %s  %s\n", clock(at), s.name, clock(s.limit), s.about)
			at += s.limit
		}
		fmt.Fprintf(&b, "  %s  end\n", clock(at))
	}
	b.WriteString("Times exclude unpacking. A step that has the results of an earlier call is skipped.\n")
	return b.String(), nil
}

// runAll runs each step as a subtest. One that less than half of its limit is left for is
// left to the next call.
func (c *check) runAll(chosen []step, budget time.Duration) {
	began := time.Now()
	before := c.mu.Seconds
	for i, s := range chosen {
		if s.name != steps[0].name && c.done(s.name) {
			c.top.Logf("%s: measured by an earlier call", s.name)
			continue
		}
		limit := s.limit
		if left := budget - time.Since(began); left < limit && i > 0 {
			if left < limit/2 {
				c.top.Logf("%s and what follows: not measured, %.0f s are left and it may take %.0f; call again, or with a larger -budget", s.name, left.Seconds(), limit.Seconds())
				break
			}
			limit = left
		}
		c.mu.forget(s)
		result := stepResult{Name: s.name, Budget: limit.Seconds()}
		at := time.Now()
		c.rest = 0
		c.top.Run(s.name, func(t *testing.T) {
			c.t, c.step = t, s.name
			defer func() { result.Failed, result.Skipped = t.Failed(), t.Skipped() }()
			c.runStep(s, limit)
		})
		c.t = c.top
		result.Seconds, result.NotRun = time.Since(at).Seconds(), c.rest
		c.mu.Lock()
		c.mu.Steps = append(c.mu.Steps, result)
		c.mu.Seconds = before + time.Since(began).Seconds()
		c.mu.Unlock()
		c.save()
		if i == 0 && result.Failed {
			c.top.Logf("nothing else is measured, since %s failed", s.name)
			break
		}
	}
	c.step = ""
}

func (c *check) runStep(s step, limit time.Duration) {
	if c.life.Err() != nil {
		c.t.Skip("not measured: interrupted")
	}
	ctx, cancel := context.WithTimeout(c.life, limit)
	defer cancel()
	hangs := time.AfterFunc(limit+hungGrace, func() {
		c.save()
		panic(fmt.Sprintf("step %s hangs: it was told to end after %v and did not within %v more; look for Xid messages (dmesg)", s.name, limit, hungGrace))
	})
	defer hangs.Stop()
	err := s.run(c, ctx)
	switch {
	case err == nil:
	case c.life.Err() != nil:
		c.t.Skip("interrupted; what was measured until then is kept")
	case ctx.Err() != nil:
		c.t.Errorf("its %v were over before it was through, %d measurements have not run: %v", limit.Round(time.Second/10), c.rest, err)
	case errors.Is(err, errNotMeasured):
		c.t.Skip(err)
	default:
		c.t.Error(err)
	}
}

// passed reports whether a step was through.
func (r *report) passed(name string) bool {
	return slices.ContainsFunc(r.Steps, func(s stepResult) bool { return s.Name == name && !s.Failed && !s.Skipped })
}

// done reports whether a step was through and what it left is there.
func (c *check) done(name string) bool {
	if name == "profile" {
		if _, err := os.Stat(filepath.Join(c.out, stateName)); err != nil {
			return false
		}
	}
	return c.mu.passed(name)
}

// forget removes what a step measured before, so that nothing is in the report twice.
func (r *report) forget(s step) {
	r.Steps = slices.DeleteFunc(r.Steps, func(old stepResult) bool { return old.Name == s.name })
	r.Looks = slices.DeleteFunc(r.Looks, func(l look) bool { return l.Step == s.name || l.Step == "" })
	fields := map[string]json.RawMessage{}
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	for _, list := range strings.Fields(s.lists) {
		delete(fields, list)
	}
	if err == nil {
		data, err = json.Marshal(fields)
	}
	var left report
	if err == nil {
		err = json.Unmarshal(data, &left)
	}
	if err != nil {
		panic(err) // a report that was written can be read
	}
	*r = left
}

// resume goes on with the report of an earlier call, if that was of the same program and
// device; one of another is put aside.
func (c *check) resume(fresh report) {
	c.mu.report = fresh
	path := filepath.Join(c.out, reportName)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var old report
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err == nil && old.Format == fresh.Format && old.Program == fresh.Program && old.Rehearsal == fresh.Rehearsal && old.Graphs == fresh.Graphs && old.GPU == c.gpu {
		c.mu.report = old
		return
	}
	c.top.Logf("%s is of another program, device or -graphs, or cannot be read (%v): it becomes %s.old", path, err, reportName)
	if err := os.Rename(path, path+".old"); err != nil {
		c.top.Fatal(err)
	}
}

// hashOfProgram tells programs apart, so that figures of two are not mixed.
func (c *check) hashOfProgram() string {
	data, err := os.ReadFile(c.program)
	if err != nil {
		c.top.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// TestSteps: steps are chosen by name with what they need, in their order; what kills is
// last and has to be named; and each call fits, also on a machine that has no results.
func TestSteps(t *testing.T) {
	none := func(string) bool { return false }
	names := func(list []step) string {
		var names []string
		for _, s := range list {
			names = append(names, s.name)
		}
		return strings.Join(names, " ")
	}
	all, err := chooseSteps("", none)
	if err != nil || len(all) != len(steps)-1 || strings.Contains(names(all), killsStep) || steps[len(steps)-1].name != killsStep {
		t.Errorf("without names: %s, %v", names(all), err)
	}
	if _, err := chooseSteps("facts,speed", none); err == nil || !strings.Contains(err.Error(), `"speed": there are facts, wake`) {
		t.Errorf("got %v", err)
	}
	for wanted, want := range map[string]string{"kills, sizes": "facts sizes kills", "mixed": "facts pairs profile mixed", "load": "facts pairs profile load"} {
		if some, err := chooseSteps(wanted, none); err != nil || names(some) != want {
			t.Errorf("%s: %s, %v", wanted, names(some), err)
		}
	}
	if some, _ := chooseSteps("mixed", func(name string) bool { return name == "profile" }); names(some) != "facts mixed" {
		t.Errorf("with a profile: %s", names(some))
	}
	page, err := os.ReadFile("../../docs/gpu.md")
	if err != nil {
		t.Fatal(err)
	}
	divided := steps[0].name
	for _, call := range calls {
		chosen, err := chooseSteps(call, none)
		var sum time.Duration
		for _, s := range chosen {
			sum += s.limit
		}
		if err != nil || sum > callBudget-20*time.Second { // for unpacking
			t.Errorf("%s take %v: %v", names(chosen), sum, err)
		}
		if line := "./gpu-check -steps " + call + "`"; !strings.Contains(string(page), line) {
			t.Errorf("docs/gpu.md lacks %s", line)
		}
		divided += " " + strings.ReplaceAll(call, ",", " ")
	}
	if divided != names(steps) {
		t.Errorf("the calls have %s", divided)
	}
	if got, err := planned("kills,sizes"); err != nil || !strings.Contains(got, " 2:55  kills     at most  0:20") || !strings.Contains(got, " 3:15  end") {
		t.Error(got, err)
	}
	if got, err := planned(""); err != nil || strings.Count(got, "gpu-check -steps ") != len(calls) {
		t.Error(got, err)
	}
}

// TestNumbers: what steps look at is what docs/gpu-assumptions.md has, by number, and
// nothing is left to a step that looks at nothing of it.
func TestNumbers(t *testing.T) {
	page, err := os.ReadFile("../../docs/gpu-assumptions.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	looked := map[string]bool{}
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`\.(?:expect|see|settle|is)\((?:\[\]string\{[^}]*\}|"[^"]*")`).FindAll(source, -1) {
			for _, id := range regexp.MustCompile(`"([CEFMPS]\d+)"`).FindAllSubmatch(call, -1) {
				looked[string(id[1])] = true
			}
		}
	}
	for id := range looked {
		if !regexp.MustCompile(`(?m)^\|(?: \d+ \|)? ` + id + ` \|`).Match(page) {
			t.Errorf("%s is looked at and not on the page", id)
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\| \d+ \| ([A-Z]\d+) \|[^|]*\|[^|]*\|([^|]*)\|`).FindAllStringSubmatch(string(page), -1) {
		id, at := row[1], row[2]
		if !looked[id] && !strings.Contains(at, "by hand") {
			t.Errorf("%s is left to %q, where nobody looks at it", id, at)
		}
	}
}

// TestResume: a later call goes on where an earlier one of the same program stopped, and
// measures again what had failed, or whose file is not there.
func TestResume(t *testing.T) {
	defer func(list []step) { steps = list }(steps)
	out := t.TempDir()
	var ran []string
	var fails error
	add := func(name, lists string) step {
		return step{name, time.Minute, lists, "", name, func(c *check, _ context.Context) error {
			ran = append(ran, name)
			switch name {
			case "pairs":
				keep(c, &c.mu.Pairs, pairRow{})
			case "profile":
				return os.WriteFile(filepath.Join(c.out, stateName), nil, 0o600)
			case "fails":
				keep(c, &c.mu.Wake, wakeRow{})
				return fails
			}
			return nil
		}}
	}
	steps = []step{add("first", ""), add("pairs", "pairs"), add("profile", ""), add("fails", "wake"), {"late", time.Hour, "", "", "", nil}}
	call := func(program, want string) *report {
		t.Helper()
		ran = nil
		c := newCheck(t, inSeconds())
		c.out = out
		c.resume(report{Format: reportFormat, Rehearsal: true, Program: program, GPU: c.gpu})
		if c.runAll(steps, 10*time.Minute); strings.Join(ran, " ") != want {
			t.Errorf("of program %s %s ran, not %s", program, ran, want)
		}
		return &c.mu.report
	}
	fails = errNotMeasured
	call("one", "first pairs profile fails")
	fails = nil
	if r := call("one", "first fails"); len(r.Pairs) != 1 || len(r.Steps) != 4 || len(r.Wake) != 1 || !r.passed("fails") { // the first step is of the machine as it is now
		t.Errorf("%+v", r)
	}
	if err := os.Remove(filepath.Join(out, stateName)); err != nil {
		t.Fatal(err)
	}
	call("one", "first profile")
	call("another", "first pairs profile fails")
	if _, err := os.Stat(filepath.Join(out, reportName+".old")); err != nil {
		t.Error(err)
	}
}

// TestCalls: each call runs by itself where there are no results yet, and one that is ended
// in the middle of its last step leaves what it has measured, and how much it has not.
func TestCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as long as a rehearsal")
	}
	t.Parallel()
	if _, err := ort.Find(); err != nil {
		t.Skip(err)
	}
	built := newCheck(t, inSeconds())
	built.prepare()
	models := []string{"tiny_cnn.onnx", "tiny_mlp.onnx"} // of the outputs, and the first one of the services
	for i, c := range []struct {
		call   string
		half   func(*report) bool // it is ended then
		models []string           // that are made, nil for any
	}{
		{"wake", func(r *report) bool { return len(r.Wake) >= 2 }, models[:1]},
		{calls[0], func(r *report) bool { return len(r.Outputs) >= 1 }, models},
		{calls[1], func(r *report) bool { return len(r.Cuts) >= 1 }, nil},
		{calls[2], func(r *report) bool { return len(r.Turns) >= 2 }, nil},
		{calls[3], func(r *report) bool { return len(r.Soak) >= 6 }, nil},
		{calls[4], func(r *report) bool { return len(r.Looks) >= 12 }, []string{}},
	} {
		t.Run(c.call, func(t *testing.T) {
			check := newCheck(t, inSeconds())
			if c.call == killsStep {
				fakes, gpus := withFakes(t)
				check, check.gpu = fakes, gpus.Devices[0].UUID
			}
			check.program, check.base, check.out = built.program, t.TempDir(), t.TempDir()
			check.cache = filepath.Join(check.base, "optimized")
			life, end := context.WithCancel(t.Context())
			defer end()
			check.life = life
			check.kept = func() {
				if c.half(&check.mu.report) {
					end()
				}
			}
			check.resume(report{Format: reportFormat, Rehearsal: check.rehearsal()})
			chosen, err := chooseSteps(c.call, check.done)
			if err != nil {
				t.Fatal(err)
			}
			check.runAll(chosen, callBudget)
			var left report
			data, err := os.ReadFile(filepath.Join(check.out, reportName))
			if err == nil {
				err = json.Unmarshal(data, &left)
			}
			if err != nil || !c.half(&left) || len(left.Steps) != len(chosen) {
				t.Fatalf("call %d left %s, %v", i, data, err)
			}
			last := left.Steps[len(left.Steps)-1]
			if !last.Skipped || last.NotRun == 0 && last.Name != killsStep {
				t.Errorf("its last step: %+v", last)
			}
			for _, s := range left.Steps[:len(left.Steps)-1] {
				if s.Failed || s.Skipped && s.Name != "mps" || s.NotRun > 0 { // MPS needs a GPU
					t.Errorf("before its end: %+v", s)
				}
			}
			made, err := filepath.Glob(filepath.Join(check.base, "models", "*.onnx"))
			for i := range made {
				made[i] = filepath.Base(made[i])
			}
			if c.models != nil && (err != nil || !slices.Equal(made, c.models)) {
				t.Errorf("it made the models %v", made)
			}
		})
	}
}

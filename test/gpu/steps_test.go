package gpu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// killsStep ends servers and control daemons of MPS by force, and clients with work. A
// driver may not survive that, so it is the last step and runs only when it is named.
const killsStep = "kills"

// step is one part of a check.
type step struct {
	name  string
	limit time.Duration
	lists string // what it writes of the report, by name in JSON
	about string
	run   func(*check, context.Context) error
}

// steps are in the order in which they run: later ones use what earlier ones found, and
// what says most about a GPU comes first.
var steps = []step{
	{"facts", 10 * time.Second, "facts", "driver, GPU, MIG, ONNX Runtime", (*check).readFacts},
	{"outputs", 45 * time.Second, "outputs", "models cut on the GPU against whole on the CPU", (*check).compareOutputs},
	{"bits", 60 * time.Second, "bits", "models cut on the GPU against whole on the GPU, bit for bit", (*check).compareBits},
	{"sizes", 60 * time.Second, "sizes", "the first query after loading, and two batch sizes in turns, also off the ladder", (*check).measureSizes},
	{"wake", 15 * time.Second, "wake", "waking up, after pauses", (*check).measureWaking},
	{"cuts", 70 * time.Second, "cuts choices", "cut against whole in turns", (*check).measureCuts},
	{"sessions", 30 * time.Second, "sessions", "time and memory of sessions", (*check).measureSessions},
	{"variants", 12 * time.Second, "variants", "threads that spin, and all algorithms of convolutions", (*check).measureVariants},
	{"mps", 16 * time.Second, "", "what MPS prints and does", (*check).lookAtMPS},
	{"pairs", 50 * time.Second, "pairs", "every two services, alone and together, without MPS and with it", (*check).measurePairs},
	{"repeat", 12 * time.Second, "repeat", "one group a hundred times", (*check).repeatGroup},
	{"profile", 120 * time.Second, "profile", "what a predictor is made of, and its error", (*check).profileGroups},
	{"load", 150 * time.Second, "load turns policies", "the same load under time slicing, MPS, the best static split, edf with batching, abacus and overlap", (*check).loadPolicies},
	{"mixed", 45 * time.Second, "mixed", "two batch sizes under load: the predictor's error by size", (*check).loadMixed},
	{"soak", 75 * time.Second, "soak", "resident, pinned and device memory while three services run", (*check).soakServices},
	{killsStep, 20 * time.Second, "", "what becomes of clients whose server, neighbour or control daemon is killed", (*check).lookAtKills},
}

// chooseSteps returns the steps with these names, in the order of steps. The first one is
// always among them: it finds the GPU and whether the libraries suit it.
func chooseSteps(names string) (chosen []step, err error) {
	wanted := strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' })
	for _, s := range steps {
		if s.name == steps[0].name || slices.Contains(wanted, s.name) || len(wanted) == 0 && s.name != killsStep {
			chosen = append(chosen, s)
		}
	}
	for _, name := range wanted {
		if !slices.ContainsFunc(steps, func(s step) bool { return s.name == name }) {
			var known []string
			for _, s := range steps {
				known = append(known, s.name)
			}
			err = errors.Join(err, fmt.Errorf("no step is called %q: there are %s", name, strings.Join(known, ", ")))
		}
	}
	return chosen, err
}

// calls divides steps among calls of at most a budget each, if every step takes as long
// as it may. A step that is longer than the budget has a call to itself.
func calls(list []step, budget time.Duration) (calls [][]step) {
	var left time.Duration
	for _, s := range list {
		if left < s.limit {
			calls, left = append(calls, nil), budget
		}
		left -= s.limit
		calls[len(calls)-1] = append(calls[len(calls)-1], s)
	}
	return calls
}

// planned is the plan of a check in words: when each step begins at the latest.
func planned(list []step, budget time.Duration) string {
	var b strings.Builder
	clock := func(d time.Duration) string { return fmt.Sprintf("%2d:%02d", int(d.Minutes()), int(d.Seconds())%60) }
	for i, call := range calls(list, budget) {
		fmt.Fprintf(&b, "call %d\n", i+1)
		var at time.Duration
		for _, s := range call {
			fmt.Fprintf(&b, "  %s  %-8s  at most %s  %s\n", clock(at), s.name, clock(s.limit), s.about)
			at += s.limit
		}
		fmt.Fprintf(&b, "  %s  end\n", clock(at))
	}
	if !slices.ContainsFunc(list, func(s step) bool { return s.name == killsStep }) {
		fmt.Fprintf(&b, "not asked for: -steps %s\n", killsStep)
	}
	b.WriteString("times without unpacking, making models, and starting the driver; a step that ends early leaves its time to the others\n")
	return b.String()
}

// runAll runs each step as a subtest. One whose time is not left is left to the next
// call, and so is one that a step of this call was to measure something for.
func (c *check) runAll(chosen []step, budget time.Duration) {
	began := time.Now()
	before := c.mu.Seconds
	late := false
	for i, s := range chosen {
		if s.name != steps[0].name && c.mu.passed(s.name) {
			c.top.Logf("%s: measured by an earlier call", s.name)
			continue
		}
		limit := s.limit
		if left := budget - time.Since(began); left < limit && i > 0 {
			c.top.Logf("%s and what follows: not measured, %.0f s are left and it may take %.0f; call again, or with a larger -budget", s.name, left.Seconds(), limit.Seconds())
			break
		}
		c.mu.forget(s)
		result := stepResult{Name: s.name, Budget: limit.Seconds()}
		at := time.Now()
		c.top.Run(s.name, func(t *testing.T) {
			c.t, c.step = t, s.name
			defer func() { result.Failed, result.Skipped = t.Failed(), t.Skipped() }()
			c.runStep(s, limit)
		})
		c.t = c.top
		result.Seconds = time.Since(at).Seconds()
		late = late || result.Seconds > result.Budget
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
	c.expect([]string{"C6"}, !late, "%d steps in %.0f s", len(c.mu.Steps), c.mu.Seconds)
}

func (c *check) runStep(s step, limit time.Duration) {
	if interrupted.Err() != nil {
		c.t.Skip("not measured: interrupted")
	}
	ctx, cancel := context.WithTimeout(interrupted, limit)
	defer cancel()
	hangs := time.AfterFunc(limit+hungGrace, func() {
		c.save()
		panic(fmt.Sprintf("step %s hangs: it was told to end after %v and did not within %v more; look for Xid messages (dmesg)", s.name, limit, hungGrace))
	})
	defer hangs.Stop()
	err := s.run(c, ctx)
	switch {
	case err == nil:
	case interrupted.Err() != nil:
		c.t.Skip("interrupted; what was measured until then is kept")
	case ctx.Err() != nil:
		c.t.Errorf("its %v were spent before it was through: %v", limit.Round(time.Second/10), err)
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
	if *outFlag == "" {
		return
	}
	path := filepath.Join(*outFlag, reportName)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var old report
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err == nil && old.Format == fresh.Format && old.Program == fresh.Program && old.Rehearsal == fresh.Rehearsal && old.GPU == c.gpu {
		c.mu.report = old
		return
	}
	c.top.Logf("%s is of another program or device, or cannot be read (%v): it becomes %s.old", path, err, reportName)
	if err := os.Rename(path, path+".old"); err != nil {
		c.top.Fatal(err)
	}
}

// hashOfProgram tells programs apart, so that figures of two are not mixed.
func (c *check) hashOfProgram() string {
	f, err := os.Open(c.program)
	if err != nil {
		c.top.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		c.top.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// TestSteps: steps are chosen by name, in their order; what kills is last and has to be
// named; and the plan fits its calls.
func TestSteps(t *testing.T) {
	names := func(list []step) string {
		var names []string
		for _, s := range list {
			names = append(names, s.name)
		}
		return strings.Join(names, " ")
	}
	if steps[len(steps)-1].name != killsStep {
		t.Errorf("%s runs after %s", steps[len(steps)-1].name, killsStep)
	}
	all, err := chooseSteps("")
	if err != nil || len(all) != len(steps)-1 || strings.Contains(names(all), killsStep) {
		t.Errorf("without names: %s, %v", names(all), err)
	}
	some, err := chooseSteps("kills, sizes")
	if err != nil || names(some) != "facts sizes kills" {
		t.Errorf("by name: %s, %v", names(some), err)
	}
	if _, err := chooseSteps("facts,speed"); err == nil || !strings.Contains(err.Error(), `"speed": there are facts, outputs`) {
		t.Errorf("got %v", err)
	}
	const budget = 440 * time.Second
	var divided []step
	for _, call := range calls(all, budget) {
		var sum time.Duration
		for _, s := range call {
			sum += s.limit
		}
		if divided = append(divided, call...); sum > budget {
			t.Errorf("%s take %v", names(call), sum)
		}
	}
	if names(divided) != names(all) {
		t.Errorf("calls have %s", names(divided))
	}
	if got := planned(some, budget); !strings.Contains(got, "call 1\n") || !strings.Contains(got, " 1:10  kills     at most  0:20") || !strings.Contains(got, " 1:30  end") {
		t.Error(got)
	}
	if got := planned(some, 45*time.Second); strings.Count(got, "call ") != 3 {
		t.Error(got)
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
		for _, call := range regexp.MustCompile(`\.(?:expect|see|is)\((?:\[\]string\{[^}]*\}|"[^"]*")`).FindAll(source, -1) {
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
		if !looked[id] && !strings.Contains(at, "by hand") && id != "E19" { // the name of E19 is in a table of ways
			t.Errorf("%s is left to %q, where nobody looks at it", id, at)
		}
	}
}

// TestResume: a later call goes on where an earlier one of the same program stopped, and
// measures again what had failed.
func TestResume(t *testing.T) {
	defer func(was string, list []step) { *outFlag, steps = was, list }(*outFlag, steps)
	*outFlag = t.TempDir()
	var ran []string
	fail := errNotMeasured
	add := func(name string, err *error) step {
		return step{name, time.Minute, "repeat", name, func(c *check, _ context.Context) error {
			ran = append(ran, name)
			keep(c, &c.mu.Repeat, repeatRow{Group: name})
			return *err
		}}
	}
	none := error(nil)
	steps = []step{add("first", &none), {"wake", time.Minute, "wake", "", func(c *check, _ context.Context) error {
		ran = append(ran, "wake")
		keep(c, &c.mu.Wake, wakeRow{})
		return nil
	}}, add("skips", &fail), {"late", time.Hour, "", "", nil}}
	call := func(program string) *check {
		ran = nil
		c := newCheck(t, inSeconds())
		c.resume(report{Format: reportFormat, Rehearsal: true, Program: program, GPU: c.gpu})
		c.runAll(steps, 10*time.Minute)
		return c
	}
	call("one")
	if got := strings.Join(ran, " "); got != "first wake skips" {
		t.Errorf("the first call ran %s", got)
	}
	fail = nil
	c := call("one")
	if got := strings.Join(ran, " "); got != "first skips" { // the first step is of the machine as it is now
		t.Errorf("the second call ran %s", got)
	}
	if len(c.mu.Wake) != 1 || len(c.mu.Steps) != 3 || len(c.mu.Repeat) != 1 || !c.mu.passed("skips") {
		t.Errorf("%+v", c.mu.report)
	}
	call("another")
	if _, err := os.Stat(filepath.Join(*outFlag, reportName+".old")); err != nil || strings.Join(ran, " ") != "first wake skips" {
		t.Errorf("of another program: it ran %s, %v", ran, err)
	}
}

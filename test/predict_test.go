package test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// tinies are three services whose groups are measured in a moment.
func tinies() []service {
	return []service{
		{"add", "zoo:tiny_add", "sizes = [1, 2]"},
		{"mlp", "zoo:tiny_mlp", "sizes = [1, 2]"},
		{"cnn", "zoo:tiny_cnn", "sizes = [1]\nmax_batch = 2"},
	}
}

// asks are a query of each of the tinies.
func asks() map[string]query {
	random := rand.New(rand.NewPCG(9, 9))
	return map[string]query{
		"add": sum(random, 1),
		"mlp": {Inputs: []tensor{rows("input", "FP32", random, 2, 16)}},
		"cnn": {Inputs: []tensor{rows("input", "FP32", random, 1, 3, 32, 32)}},
	}
}

// standing is what a daemon says of its predictor.
type standing struct {
	Policy    string
	Predictor struct {
		Phase, Reason string
		File          *struct{ Rows int }
		Measuring     *struct{ Done, Total int }
		Shapes        []struct {
			Source   string
			Services []string
			Runs     int
		}
	}
}

func (p *process) standing() (s standing) {
	p.t.Helper()
	status, body := p.get("/overlapd/status")
	if err := json.Unmarshal(body, &s); err != nil || status != 200 {
		p.t.Fatalf("status %d, %v: %s", status, err, body)
	}
	return s
}

// reaches waits for a phase and returns why it is.
func (p *process) reaches(phase string) (reason string) {
	p.t.Helper()
	p.eventually("phase "+phase, func() bool {
		s := p.standing()
		reason = s.Predictor.Reason
		return s.Predictor.Phase == phase
	})
	return reason
}

// settles waits until there is a predictor, or none to be had, and returns why.
func (p *process) settles() (reason string) {
	p.t.Helper()
	p.eventually("the end of measuring and training", func() bool {
		s := p.standing()
		reason = s.Predictor.Reason
		return s.Predictor.Phase == "serving" || s.Predictor.Phase == "solo" && s.Predictor.Measuring == nil
	})
	return reason
}

// answers asks every one of the tinies.
func (p *process) answers() map[string]answer {
	p.t.Helper()
	all := map[string]answer{}
	for name, q := range asks() {
		a := p.inferBinary(name, q)
		if a.Status != 200 {
			p.t.Errorf("%s: %v", name, a)
		}
		all[name] = a
	}
	return all
}

// same fails unless answers are as they were.
func same(t *testing.T, before, after map[string]answer) {
	t.Helper()
	if err := checkSum(asks()["add"], after["add"]); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"mlp", "cnn"} {
		if err := sameOutputs(before[name], after[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// run runs a command of overlapd to its end.
func run(t *testing.T, args ...string) (out, log string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "OVERLAPD_ORT="+library)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(patience, func() { cmd.Process.Signal(syscall.SIGQUIT) })
	defer overdue.Stop()
	cmd.Wait()
	says(t, stderr.String())
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// A daemon that is new measures, trains and then serves with a predictor, and
// no answer is another for it. What it decided is in its log.
func TestMeasuresTrainsAndServes(t *testing.T) {
	t.Parallel()
	c := config{dir: t.TempDir(), top: `policy = "abacus"`, services: tinies(), tables: `
[profile]
groups = 90
repeats = 3
[decisions]
log = true`}
	p := serve(t, c)
	before := p.answers()
	says(t, p.reaches("serving"), "trained on ")
	same(t, before, p.answers())
	crowd(12, func(client int, random *rand.Rand) {
		for range fewer(20) {
			same(t, before, p.answers())
		}
	})
	s := p.standing()
	if s.Policy != "abacus" || s.Predictor.File == nil || s.Predictor.File.Rows == 0 || len(s.Predictor.Shapes) == 0 || s.Predictor.Shapes[0].Runs == 0 {
		t.Errorf("status: %+v", s)
	}
	p.stop()
	out, log, code := run(t, "replay", filepath.Join(c.dir, "decisions.log"))
	if code != 0 || strings.Contains(out, "NOT") || !strings.Contains(out, "reproduced: ") {
		t.Errorf("replay: %d\n%s%s", code, out, log)
	}

	// The next start has what was trained.
	p = serve(t, c)
	says(t, p.reaches("serving"), "trained on ")
	if p.count(func(e event) bool { return e.Predictor == "measuring" }) != 0 {
		t.Error("it measured again")
	}
	same(t, before, p.answers())
}

// On shares of the cores several batches of a service run at once, no answer is another for it, and
// what was decided can be replayed.
func TestSharesOfCores(t *testing.T) {
	t.Parallel()
	c := config{dir: t.TempDir(), services: tinies(), tables: "[decisions]\nlog = true"}
	p := serve(t, c)
	before := p.answers()
	crowd(12, func(client int, random *rand.Rand) {
		for range fewer(20) {
			same(t, before, p.answers())
		}
	})
	says(t, p.standing().Predictor.Reason, "shares of ")
	p.stop()
	out, log, code := run(t, "replay", filepath.Join(c.dir, "decisions.log"), "--json")
	if code != 0 || !strings.Contains(log+out, "rounds") {
		t.Errorf("replay: %d\n%s%s", code, out, log)
	}
	decided, err := os.ReadFile(filepath.Join(c.dir, "decisions.log"))
	if err != nil || runtime.NumCPU() > 1 && !bytes.Contains(decided, []byte(`"share":1`)) {
		t.Errorf("no batch had one core of %d: %v", runtime.NumCPU(), err)
	}
}

// synthetic writes an artifact of the predictor of docs/examples, for a device that is slower
// by a factor, with nothing else that was measured.
func synthetic(t *testing.T, factor float64) (path string) {
	t.Helper()
	text, err := os.ReadFile(slower(t, "synthetic.predictor.json", factor))
	if err != nil {
		t.Fatal(err)
	}
	const models = `[{"name": "cnn", "operators": 12}, {"name": "encoder", "operators": 16}]`
	var parts []any
	for name, data := range map[string][]byte{
		"predictor": text, "solo-times": []byte("{}"), "cuts": []byte("{}"), "operators": []byte("{}"),
		"groups": []byte(`{"Device": "a synthetic device", "Models": ` + models + "}"),
	} {
		parts = append(parts, map[string]any{"name": name, "sha256": fmt.Sprintf("%x", sha256.Sum256(data)), "data": data})
	}
	text, err = json.Marshal(map[string]any{"format": "overlapd-artifact/1", "device": "a synthetic device",
		"created": "2026-11-20T00:00:00Z", "models": json.RawMessage(models), "parts": parts})
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "synthetic.json", text)
}

// The first answers of a daemon with an exported predictor are overlapped. Its device is
// emulated, so slow that the first queries meet on any machine.
func TestFirstAnswersAreOverlapped(t *testing.T) {
	t.Parallel()
	const slow = 20
	c := config{dir: t.TempDir(), top: fmt.Sprintf("policy = \"overlap\"\ndevice = \"emulated\"\ndevice_profile = %q", slower(t, "synthetic.device.json", slow)),
		services: []service{{"cnn", "emulated:cnn", "max_batch = 16"}, {"encoder", "emulated:encoder", "max_batch = 16"}}}
	path := write(t, "overlapd.toml", []byte(c.text()))
	if out, log, code := run(t, "predictor", "import", synthetic(t, slow), "--config", path); code != 0 {
		t.Fatalf("import: %d\n%s%s", code, out, log)
	}
	first := serve(t, c)
	first.reaches("serving")
	artifact := filepath.Join(t.TempDir(), "shared.json")
	if out, log, code := run(t, "predictor", "export", artifact, "--config", first.path); code != 0 {
		t.Fatalf("export: %d\n%s%s", code, out, log)
	}
	c.dir, c.tables = "", fmt.Sprintf("[predictor]\nsource = %q", artifact)
	p := serve(t, c)
	crowd(4, func(client int, random *rand.Rand) {
		name, in := "cnn", rows("input", "FP32", random, 8, 4)
		if client%2 == 0 {
			name, in = "encoder", rows("input", "INT64", random, 8, 128)
		}
		for range 4 { // so that some queries overlap even if the clients start far apart
			if a := p.inferBinary(name, query{Inputs: []tensor{in}}); a.Status != 200 {
				t.Error(a)
			}
		}
	})
	if gained := p.metrics()["overlapd_overlap_gained_seconds_total"]; gained <= 0 {
		t.Errorf("overlapping has gained %v s: %+v", gained, p.standing())
	}
}

// A daemon that is under load from its first moment has a predictor in the end, though the
// load never pauses and the time to measure is spent long before there is enough.
func TestLearnsUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits until the daemon does without pauses")
	}
	p := serve(t, config{top: `policy = "abacus"`, services: tinies(), tables: `
[profile]
groups = 90
repeats = 1
time = "50ms"`})
	before := p.answers()
	var over atomic.Bool
	var load sync.WaitGroup
	for range 3 {
		load.Go(func() {
			for !over.Load() {
				same(t, before, p.answers())
			}
		})
	}
	defer func() {
		over.Store(true)
		load.Wait()
	}()
	says(t, p.reaches("serving"), "trained on ")
	s := p.standing()
	if s.Predictor.File == nil || s.Predictor.File.Rows < 64 {
		t.Errorf("status: %+v", s)
	}
	if log := p.logged(); !strings.Contains(log, "fewer than the 80 groups that a predictor needs were measured") {
		t.Errorf("the log:\n%s", log)
	}
}

// profiled is what profile prints.
type profiled struct {
	Measured, Planned, Skipped int
	Interrupted                bool
	Device, Commit             string
}

// profile measures with the command, and interrupts it some time after it has
// begun to load models, unless that is 0.
func profile(t *testing.T, path, dir string, after time.Duration) (r profiled) {
	t.Helper()
	cmd := exec.Command(program, "profile", "--config", path, "--json")
	cmd.Env = append(os.Environ(), "OVERLAPD_ORT="+library)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer overdue.Stop()
	if after > 0 {
		for begin := time.Now(); time.Since(begin) < patience; time.Sleep(glance) {
			if files, _ := os.ReadDir(filepath.Join(dir, "optimized")); len(files) > 0 {
				break
			}
		}
		time.Sleep(after)
		cmd.Process.Signal(syscall.SIGINT)
	}
	err := cmd.Wait()
	if after > 0 && cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		return profiled{} // it did not yet listen to signals
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), log.String())
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s%s", err, out.String(), log.String())
	}
	says(t, log.String())
	return r
}

// measuredRows returns how many groups the state file of a configuration has.
func measuredRows(t *testing.T, path string) int {
	t.Helper()
	out, log, code := run(t, "dataset", "show", "--config", path, "--json")
	var shown struct{ Rows int }
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 {
		t.Fatalf("%v: %s%s", err, out, log)
	}
	return shown.Rows
}

// Of what is measured before an interrupt nothing is lost, and nothing is
// measured again after it.
func TestProfileIsInterruptedAndGoesOn(t *testing.T) {
	t.Parallel()
	const inputs = 5
	groups := 600
	if raced {
		groups = 240 // which take longer
	}
	c := config{dir: t.TempDir(), services: tinies(), tables: fmt.Sprintf("[profile]\nrepeats = 5\ngroups = %d", groups)}
	path := write(t, "overlapd.toml", []byte(c.text()))
	var first profiled
	for after := 100 * time.Millisecond; first.Measured == 0 && after < patience; after = after * 3 / 2 {
		first = profile(t, path, c.dir, after)
	}
	rows := measuredRows(t, path)
	if !first.Interrupted || first.Measured >= first.Planned || first.Skipped > 0 || rows == 0 || rows > first.Measured {
		t.Fatalf("interrupted: %+v, %d rows", first, rows)
	}
	last := profile(t, path, c.dir, 0)
	if last.Interrupted || last.Measured != last.Planned || last.Planned != first.Planned || last.Skipped > 0 || last.Device == "" || last.Commit == "" {
		t.Errorf("the second time: %+v", last)
	}
	for again := range 2 { // another time adds nothing
		if again > 0 {
			profile(t, path, c.dir, 0)
		}
		if rows := measuredRows(t, path); rows != inputs+groups {
			t.Errorf("%d rows, want %d", rows, inputs+groups)
		}
	}
}

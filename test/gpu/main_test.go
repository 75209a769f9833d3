package gpu

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/internal/fakes/fakemps"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/probe"
)

var (
	deviceFlag  = flag.String("device", "", "cuda checks a GPU, cpu rehearses that on the CPU; without it a shorter rehearsal runs")
	gpuFlag     = flag.String("gpu", "0", "which GPU: index, UUID or PCI address")
	stepsFlag   = flag.String("steps", "", "names of the steps to run, with commas; without it all but "+killsStep)
	dryRunFlag  = flag.Bool("dry-run", false, "print the plan of steps and minutes, and run none")
	budgetFlag  = flag.Duration("budget", callBudget, "time of all steps of one call; what does not fit is left to the next call")
	slowerFlag  = flag.Float64("slower", 1, "each step may take so many times its limit")
	spentFlag   = flag.Duration("spent", 0, "time that went before, as on unpacking: a part of the budget")
	graphsFlag  = flag.Bool("graphs", false, "workers and daemons launch segments as CUDA graphs, in pairs and all steps after it")
	outFlag     = flag.String("out", "", "folder of "+reportName+" and "+stateName+"; without it they are not kept")
	programFlag = flag.String("overlapd", "", "the overlapd binary; without it one is built")
)

const (
	reportName   = "gpu-check.json"
	pageName     = "gpu-check.md"
	reportFormat = "overlapd-gpu-check/5"

	// stateName is the state file that the step profile leaves beside the report, so that
	// load and mixed find it on another machine.
	stateName = "state.db"

	// callBudget leaves room, in a call of ten minutes, to unpack and to pack the results.
	callBudget = 500 * time.Second

	// saveEvery bounds what is lost of a step when the machine goes away.
	saveEvery = 5 * time.Second

	// hungGrace is how long a step may take to end after its time is up. One that
	// takes longer waits for a driver that hangs, and so would the steps behind it.
	hungGrace = 8 * time.Second

	// processGrace is how long a process may take to end when told to.
	processGrace = 5 * time.Second

	seed = 1
)

// interrupted ends with SIGINT or SIGTERM: the step that runs keeps what it has
// measured, and the others are skipped.
var interrupted context.Context

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process that the race detector watches takes a second to end
	fakemps.Take()
	if role := os.Getenv(clientVariable); role != "" {
		os.Exit(clientMain(role))
	}
	flag.Parse()
	var stop context.CancelFunc
	interrupted, stop = signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	m.Run()
	_ = os.RemoveAll(built) // "" if nothing was built
}

// plan is what a check measures, and for how long.
type plan struct {
	device   string
	models   []string // whose outputs are compared with the CPU's
	services []string // three that run together
	batches  []int    // of cutting and of pairs; the first one is 1
	cuts     []int    // operators that models are cut into, 0 for one at every node
	seqLen   int
	profile  time.Duration // of measuring groups, at most
	groups   int           // that are measured, at most
	rounds   int           // of each pair, at most
	load     time.Duration // of load, all policies together
	turn     time.Duration // of one policy before the next has its turn
	soak     time.Duration
	policies []string

	loads   []float64 // work offered: 1 keeps the device busy one batch after another
	maxRate float64   // requests a second, all services together, that are never exceeded
	targets float64   // the QoS target is the time alone, so many times
}

// onGPU suits a GPU. The models are in the order of their sizes: what runs out of time
// has results of the smaller ones. Cuts begin with those that are likely to be chosen.
var onGPU = plan{
	device: probe.CUDA,
	models: []string{"tiny_add", "tiny_mlp", "tiny_cnn", "tiny_bert", "inception_v3-fp16", "resnet50-fp16", "inception_v3", "resnet50",
		"bert-fp16", "vgg16-fp16", "bert", "vgg16"},
	services: []string{"resnet50", "inception_v3", "bert"},
	batches:  []int{1, 8}, cuts: []int{16, 4}, seqLen: 64,
	profile: 2 * time.Minute, groups: 1500, rounds: 200,
	load: 220 * time.Second, turn: 5 * time.Second, soak: 50 * time.Second,
	policies: []string{timeSlicing, plainMPS, copiesMPS, staticSplit, "edf", "abacus", overlapping},
	loads:    []float64{0.7, 1, 1.5}, maxRate: 2000, targets: 4,
}

// onCPU runs every step on the CPU, with the smallest models, in a few minutes.
var onCPU = plan{
	device:   probe.CPU,
	models:   []string{"tiny_identity", "tiny_add", "tiny_mlp", "tiny_cnn", "tiny_bert"},
	services: []string{"tiny_cnn", "tiny_bert", "tiny_mlp"},
	batches:  []int{1, 4}, cuts: []int{4, 0}, seqLen: 16,
	profile: 40 * time.Second, groups: 600, rounds: 200,
	load: 32 * time.Second, turn: 2 * time.Second, soak: 10 * time.Second,
	policies: []string{timeSlicing, copiesMPS, "edf", "abacus", overlapping},
	loads:    []float64{0.5}, maxRate: 400, targets: 20,
}

// inSeconds is onCPU with as little of everything as shows that each step works.
func inSeconds() plan {
	c := onCPU
	c.models, c.batches = []string{"tiny_mlp", "tiny_cnn"}, []int{1}
	c.profile, c.groups, c.rounds = 15*time.Second, 120, minRounds // the groups end it, on any host
	c.load, c.turn, c.soak, c.policies = time.Second, time.Second, time.Second, []string{timeSlicing, copiesMPS, staticSplit, overlapping}
	return c
}

// check is one run of all steps.
type check struct {
	plan
	top     *testing.T // outlives the steps: what several of them use is cleaned up with it
	t       *testing.T // of the step that runs
	step    string     // its name
	program string     // overlapd
	gpu     string     // as it was named, and from the facts on its UUID
	control *mps.Control
	noMPS   error  // why a control daemon did not start
	rest    int    // measurements of the step that have not run
	out     string // folder of the results
	base    string // folder of models, and of what profile measures with
	cache   string // of optimized models

	// What tests replace: the host's NVML, the control program and the directory of
	// MPS, how clients use the GPU, and how long MPS may take.
	nvml       func() (*cuda.Host, error)
	mpsProgram string
	mpsDir     string
	clientRole string
	patience   time.Duration // with an event of MPS
	kept       func()        // is called after each figure
	life       context.Context

	mu struct {
		sync.Mutex
		report
		saved time.Time
	}
}

func newCheck(t *testing.T, p plan) *check {
	return &check{
		plan: p, top: t, t: t, gpu: *gpuFlag, out: *outFlag, clientRole: "cuda", patience: clientPatience,
		nvml: func() (*cuda.Host, error) { return cuda.Open(nil) }, kept: func() {}, life: interrupted,
	}
}

// rehearsal reports whether no GPU is involved.
func (c *check) rehearsal() bool { return c.device == probe.CPU }

// TestGPU runs all steps, then compares what they found with what is wanted.
func TestGPU(t *testing.T) {
	began := time.Now()
	c := newCheck(t, inSeconds())
	switch *deviceFlag {
	case probe.CUDA:
		c.plan = onGPU
	case probe.CPU:
		c.plan = onCPU
	case "":
		if testing.Short() {
			t.Skip("the rehearsal takes some ten seconds; -device cuda checks a GPU")
		}
		t.Parallel() // no figure of it means anything
	default:
		t.Fatalf("device %q: there are %s and %s", *deviceFlag, probe.CPU, probe.CUDA)
	}
	if _, err := ort.Find(); err != nil {
		t.Skip(err)
	}
	if *dryRunFlag {
		text, err := planned(*stepsFlag)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Print(text)
		return
	}
	c.prepare()
	c.resume(report{Format: reportFormat, Rehearsal: c.rehearsal(), GPU: c.gpu, Device: c.device, Started: began.UTC().Truncate(time.Second), Seed: seed, Program: c.hashOfProgram(), Graphs: *graphsFlag})
	if c.rehearsal() {
		t.Log("a rehearsal on the CPU: no figure says anything about a GPU")
	}
	chosen, err := chooseSteps(*stepsFlag, c.done)
	if err != nil {
		t.Fatal(err)
	}
	for i := range chosen {
		chosen[i].limit = time.Duration(*slowerFlag * float64(chosen[i].limit))
	}
	spent := *spentFlag + time.Since(began)
	c.mu.Seconds += spent.Seconds()
	c.runAll(chosen, *budgetFlag-spent)
	c.save()
	c.judgeAll()
}

// prepare finds or builds overlapd, and the folders that steps write to.
func (c *check) prepare() {
	dir := c.top.TempDir()
	c.base, c.out, c.program = dir, cmp.Or(c.out, filepath.Join(dir, "out")), *programFlag
	if *deviceFlag != "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			c.top.Fatal(err)
		}
		c.base = filepath.Join(cache, "overlapd")
	}
	c.cache = filepath.Join(c.base, "optimized")
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		c.top.Fatal(err)
	}
	if c.program == "" {
		var err error
		if c.program, err = build(); err != nil {
			c.top.Fatal(err)
		}
	}
}

// build builds overlapd, once, in a folder that TestMain removes.
var build = sync.OnceValues(func() (program string, err error) {
	if built, err = os.MkdirTemp("", "overlapd-gpu"); err != nil {
		return "", err
	}
	program = filepath.Join(built, "overlapd")
	args := []string{"build", "-o", program}
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race") // as its packages are compiled already
	}
	out, err := exec.Command("go", append(args, "github.com/overlapd/overlapd/cmd/overlapd")...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("building overlapd: %w\n%s", err, out)
	}
	return program, err
})

var built string // the folder of build

// model returns the file of a model of the zoo, and makes it if it is not there: only
// what a step needs is made.
func (c *check) model(name string) (string, error) {
	return zoo.Build(name, filepath.Join(c.base, "models"), seed, nil)
}

// errNotMeasured is the reason of a step that does not apply, or that needs what an
// earlier one did not measure.
var errNotMeasured = errors.New("not measured")

// command returns a command of overlapd that is told to end with ctx.
func (c *check) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = processGrace
	return cmd
}

// timeLeft returns how long a step may go on.
func timeLeft(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Hour
	}
	return max(time.Until(end), 0)
}

// keep adds a figure to the report and logs it, and now and then saves the report.
func keep[T any](c *check, list *[]T, figure T) {
	c.t.Helper()
	line, err := json.Marshal(figure)
	if err != nil {
		c.t.Error(err)
	}
	c.t.Logf("%s", line)
	c.mu.Lock()
	*list = append(*list, figure)
	late := time.Since(c.mu.saved) > saveEvery
	c.mu.Unlock()
	if late {
		c.save()
	}
	c.kept()
}

// save writes the report and the page. Each file is there whole or as it was.
func (c *check) save() {
	if c.out == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.saved = time.Now()
	c.mu.Verdicts = c.mu.report.judge()
	data, err := json.MarshalIndent(&c.mu.report, "", "  ")
	for name, data := range map[string][]byte{reportName: append(data, '\n'), pageName: c.mu.report.page()} {
		path := filepath.Join(c.out, name)
		if err == nil {
			err = os.WriteFile(path+".incoming", data, 0o644)
		}
		if err == nil {
			err = os.Rename(path+".incoming", path)
		}
	}
	if err != nil {
		c.top.Errorf("the report cannot be written: %v", err)
	}
}

// expect records whether something is as docs/gpu-assumptions.md takes it for granted
// under these numbers. On the CPU nothing is taken for granted.
func (c *check) expect(ids []string, holds bool, format string, args ...any) {
	c.see(ids, map[bool]string{true: "holds", false: "misses"}[holds], format, args...)
}

// see records evidence, with the answer "see" if a person has to judge it.
func (c *check) see(ids []string, answer, format string, args ...any) {
	if c.rehearsal() {
		return
	}
	saw := fmt.Sprintf(format, args...)
	for _, id := range ids {
		keep(c, &c.mu.Looks, look{c.step, id, answer, saw})
	}
}

// settle records what a step found of all its measurements together. What has not run
// leaves the answer to a person; what failed does not.
func (c *check) settle(ids []string, failed int, format string, args ...any) {
	answer := "holds"
	if failed > 0 {
		answer = "misses"
	} else if c.rest > 0 {
		answer = "see"
	}
	c.see(ids, answer, format+fmt.Sprintf(", %d not run", c.rest), args...)
}

// judgeAll logs what was wanted and what was assumed, and fails where a figure misses. A
// rehearsal fails for wrong outputs only: its times are not a GPU's.
func (c *check) judgeAll() {
	for _, v := range c.mu.report.judge() {
		c.top.Logf("%-12s  wanted: %s: %s; found: %s", v.Answer, v.Name, v.Want, cmp.Or(v.Got, "nothing"))
		if v.Answer == miss && (!c.rehearsal() || v.Name == "outputs") {
			c.top.Fail()
		}
	}
	for _, l := range c.mu.Looks {
		c.top.Logf("%-12s  assumed: %s: %s", l.Answer, l.ID, l.Saw)
		if l.Answer == "misses" {
			c.top.Fail()
		}
	}
}

package gpu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cmd/overlapd/load"
	"github.com/overlapd/overlapd/internal/stats"
)

const (
	// trainShare is the part of the step that is kept for training, which takes
	// about 10 ms for each group, and startShare the part for starting workers.
	trainShare = 0.3
	startShare = 0.1

	// readyShare is the part of the step load in which daemons may start.
	readyShare = 0.4

	// leastTarget is the least QoS target: below it, passing requests on matters
	// more than running them.
	leastTarget = 5 * time.Millisecond

	// turnWarmup is the part of a turn that does not count, and turnSlack what it
	// takes besides: connections, inputs, last answers.
	turnWarmup = 500 * time.Millisecond
	turnSlack  = time.Second

	// learning is the same before the first turn: a daemon without a profile of its device
	// learns how long its batches take alone.
	learning = 2 * time.Second

	// leastTurn is the shortest turn that tells anything, and leastRounds how many turns
	// each way of serving has: where time is short, turns are shorter.
	leastTurn   = time.Second
	leastRounds = 3

	// mixedShare is how long two batch sizes are served, beside the load of all ways.
	mixedShare = 0.1

	// giveUp is when the generator gives up on an answer, long after the deadline.
	giveUp = 2 * time.Second

	// indices is how many different integers requests hold, from 0: BERT has two
	// token types, and CUDA does not notice an index that is out of range.
	indices = 2
)

// profileRow is what was measured and how well groups are predicted from it.
type profileRow struct {
	MeasureSeconds float64 `json:"measure_seconds"`
	Measured       int     `json:"measured"` // groups and solo runs
	DriftPercent   float64 `json:"drift_percent"`
	Rows           int     `json:"rows"` // groups that the predictor was fitted to, 0 if there is none
	TrainSeconds   float64 `json:"train_seconds"`
	MAPE           float64 `json:"mape_test"` // percent, on groups that were kept aside
}

// profileGroups measures groups as the daemon does and fits a predictor. The state file is
// put beside the report, for the daemons of later steps.
func (c *check) profileGroups(ctx context.Context) error {
	if c.alone(c.services[0], 1) == 0 {
		return fmt.Errorf("%w: what services take alone, which pairs measures", errNotMeasured)
	}
	dir, kept := filepath.Join(c.base, "gpu-check"), filepath.Join(c.out, stateName)
	if err := errors.Join(os.RemoveAll(kept), os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	path, err := c.writeConfig(ctx, dir, served{services: c.services})
	if err != nil {
		return err
	}
	limit := min(time.Duration(float64(timeLeft(ctx))*(1-trainShare-startShare)), c.profile)
	var measured struct {
		Measured int     `json:"measured"`
		Seconds  float64 `json:"seconds"`
		Drift    float64 `json:"drift_percent"`
	}
	if err := c.ask(ctx, &measured, "profile", "--config", path, "--time", limit.String(), "--json"); err != nil {
		return err
	}
	p := profileRow{MeasureSeconds: measured.Seconds, Measured: measured.Measured, DriftPercent: measured.Drift}
	defer func() { keep(c, &c.mu.Profile, p) }()
	var trained struct {
		Rows    int     `json:"rows"`
		Seconds float64 `json:"seconds"`
		MAPE    float64 `json:"mape_test"`
	}
	err = c.ask(ctx, &trained, "train", "--config", path, "--seed", fmt.Sprint(seed), "--json")
	p.Rows, p.TrainSeconds, p.MAPE = trained.Rows, trained.Seconds, trained.MAPE
	if err != nil {
		return err
	}
	return copyFile(kept, filepath.Join(dir, stateName))
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// profiled returns an error if the state file that the step profile leaves is not there.
func (c *check) profiled() error {
	if _, err := os.Stat(filepath.Join(c.out, stateName)); err != nil {
		return fmt.Errorf("%w: the step profile leaves its state beside the results: %w", errNotMeasured, err)
	}
	return nil
}

// ask runs a command of overlapd that prints one JSON object.
func (c *check) ask(ctx context.Context, answer any, args ...string) error {
	var failure bytes.Buffer
	cmd := c.command(ctx, args...)
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("overlapd %s: %w: %s", args[0], err, strings.TrimSpace(failure.String()))
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("overlapd %s printed no result: %w", args[0], err)
	}
	return nil
}

// target returns the QoS target of a service: the time alone, so many times, and
// no less than all services need one after another.
func (c *check) target(model string) time.Duration {
	sum := 0.0
	for _, s := range c.services {
		sum += c.alone(s, 1)
	}
	ms := math.Ceil(max(c.targets*c.alone(model, 1), sum))
	return max(time.Duration(ms)*time.Millisecond, leastTarget)
}

// served says what a daemon serves, and how.
type served struct {
	services []string
	policy   string
	noMPS    bool  // although there is MPS
	log      bool  // of decisions
	patience int   // targets are so many times as long, 0 for once
	shares   []int // of the GPU for each service, in percent, nil if it is not divided
	whole    bool  // models are not cut
}

// writeConfig writes the configuration of a daemon that keeps its state in dir,
// and returns its path. All daemons share one MPS.
func (c *check) writeConfig(ctx context.Context, dir string, d served) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "device = %q\nlisten = \"127.0.0.1:0\"\ngrpc_listen = \"\"\nstate_dir = %q\nlog_format = \"json\"\n", c.device, dir)
	switch env := c.workerEnv(ctx); {
	case c.rehearsal(): // a CPU has no MPS
	case c.control == nil || d.noMPS:
		fmt.Fprintf(&b, "gpu = %q\n\n[mps]\nmode = \"off\"\n", c.gpu)
	default:
		fmt.Fprintf(&b, "gpu = %q\n\n[mps]\nmode = \"existing\"\ndir = %q\n", c.gpu, variable(env, pipeVariable))
	}
	if *graphsFlag {
		fmt.Fprintf(&b, "\n[cuda]\ngraphs = true\n")
	}
	fmt.Fprintf(&b, "\n[worker]\nthreads = 1\n\n[decisions]\nlog = %t\nfile_bytes = \"1GiB\"\n", d.log)
	fmt.Fprintf(&b, "\n[profile]\non_start = false\ngroups = %d\nspans = %d\n", c.groups, len(d.services))
	both := c.bothSizes()
	for i, s := range d.services {
		model, err := c.model(s)
		if err != nil {
			return "", err
		}
		cut := c.cutOf(s)
		if d.whole {
			cut = 1
		}
		fmt.Fprintf(&b, "\n[[service]]\nname = %q\nmodel = %q\ntarget = %q\ncut = %d\nmax_batch = %d\nsizes = [%d, %d]\nseq_lens = [%d]\n",
			s, model, time.Duration(max(d.patience, 1))*c.target(s), cut, both[1], both[0], both[1], c.seqLen)
		if d.shares != nil {
			fmt.Fprintf(&b, "active_thread_percentage = %d\n", d.shares[i])
		}
	}
	path := filepath.Join(dir, "overlapd.toml")
	return path, os.WriteFile(path, []byte(b.String()), 0o644)
}

// loadSetting is one load that all policies get.
type loadSetting struct {
	Rate    float64 `json:"rate_rps"` // all services together
	Offered float64 `json:"offered"`  // work, in parts of what one batch after another can do
	Turn    float64 `json:"turn_seconds"`
	Rounds  int     `json:"rounds"` // turns of each policy
	TF32    bool    `json:"tf32"`   // of all
	Graphs  bool    `json:"graphs"` // of all
}

// turnRow is what one policy made of the load for a short time.
type turnRow struct {
	Round      int     `json:"round"`
	Offered    float64 `json:"offered"`
	Policy     string  `json:"policy"`
	Requests   int64   `json:"requests"`
	Violations float64 `json:"violations"` // part of the requests: late, dropped and refused
	Goodput    float64 `json:"goodput_rps"`
	P50        float64 `json:"p50_over_target"` // of the answered, of the service that is worst off
	P99        float64 `json:"p99_over_target"`
	Alone      float64 `json:"p99_over_alone"`  // the same beside what a batch of one takes alone
	LagP99MS   float64 `json:"send_lag_p99_ms"` // if it is large, the generator was too slow

	Errors map[string]int64 `json:"errors"` // by reason, among the violations
}

// policyResult is all turns of a policy with one load.
type policyResult struct {
	Offered    float64 `json:"offered"`
	Policy     string  `json:"policy"`
	Turns      int     `json:"turns"`
	Requests   int64   `json:"requests"`
	Violations float64 `json:"violations"`  // of all requests
	Goodput    float64 `json:"goodput_rps"` // median of the turns
	P99        float64 `json:"p99_over_target"`
	Alone      float64 `json:"p99_over_alone"`
}

// loadPolicies puts the same load on the daemons of each policy, in short turns, so
// that whatever slows the machine down slows all of them. The daemons run all the
// time; those that have no turn have nothing to do.
func (c *check) loadPolicies(ctx context.Context) (err error) {
	if err := c.profiled(); err != nil {
		return err
	}
	daemons := make([][]*serving, len(c.policies))
	defer func() {
		err = errors.Join(err, stopAll(slices.Concat(daemons...)), c.keepLogs(daemons))
		for _, s := range c.mu.Load {
			for _, name := range c.policies {
				if p := c.sumUp(name, s.Offered); p.Turns > 0 {
					keep(c, &c.mu.Policies, p)
				}
			}
		}
	}()
	// They start at once: on a GPU each takes seconds for every batch size. One that does
	// not start has no turns.
	c.startMPS(ctx)
	starting, cancel := context.WithTimeout(ctx, time.Duration(readyShare*float64(timeLeft(ctx))))
	defer cancel()
	var wait sync.WaitGroup
	var mu sync.Mutex
	faults := make([]error, len(c.policies))
	fail := func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			faults[i] = errors.Join(faults[i], fmt.Errorf("%s: %w", c.policies[i], err))
		}
	}
	for i, name := range c.policies {
		list, err := c.daemonsOf(starting, name)
		fail(i, err)
		daemons[i] = make([]*serving, len(list))
		for j, s := range list {
			wait.Go(func() {
				var err error
				daemons[i][j], err = c.serve(starting, s)
				fail(i, err)
			})
		}
	}
	wait.Wait()
	if ctx.Err() != nil {
		return errors.Join(faults...)
	}
	var served []int
	for i := range c.policies {
		if faults[i] == nil && len(daemons[i]) > 0 { // else there is no MPS
			served = append(served, i)
		}
	}
	settings := c.settings(timeLeft(ctx)-processGrace, len(served))
	for _, s := range settings {
		keep(c, &c.mu.Load, s)
		c.rest += s.Rounds * len(served)
	}
	warmup := turnWarmup + min(learning, c.turn)
	for round := range settings[0].Rounds {
		for _, s := range settings {
			for _, i := range served {
				if faults[i] != nil {
					continue
				}
				t, err := c.turnOf(ctx, daemons[i], &s, round, warmup)
				if ctx.Err() != nil {
					return errors.Join(append(faults, ctx.Err())...)
				}
				c.rest--
				if fail(i, err); err != nil {
					continue
				}
				t.Policy = c.policies[i]
				keep(c, &c.mu.Turns, t)
			}
			warmup = turnWarmup
		}
	}
	return errors.Join(faults...)
}

// keepLogs copies the decision logs of daemons to the folder of the report, for overlapd replay.
func (c *check) keepLogs(daemons [][]*serving) (err error) {
	for _, d := range slices.Concat(daemons...) {
		if d != nil && d.log {
			err = errors.Join(err, copyFile(filepath.Join(c.out, d.policy+".log"), filepath.Join(d.dir, "decisions.log")))
		}
	}
	return err
}

// daemonsOf returns the daemons of a way of serving: one for all services, or some for each,
// none where MPS is missing. Models are cut only where groups are made.
func (c *check) daemonsOf(ctx context.Context, name string) (list []served, err error) {
	list = []served{{services: c.services, policy: name, log: name == overlapping, whole: name == "edf" || name == staticSplit}}
	each := map[string]int{timeSlicing: 1, plainMPS: 1, copiesMPS: 2}[name]
	if each > 0 {
		list = nil
		for _, s := range slices.Repeat(c.services, each) {
			list = append(list, served{services: []string{s}, policy: "edf", whole: true, noMPS: name == timeSlicing})
		}
	}
	if name == staticSplit {
		if list[0].shares, err = c.bestShares(ctx); err != nil {
			return nil, err
		}
		c.top.Logf("a static split gives %s %v percent", strings.Join(c.services, ", "), list[0].shares)
	}
	needsMPS := name == plainMPS || name == staticSplit || name == copiesMPS && !c.rehearsal()
	if needsMPS && c.control == nil {
		return nil, nil
	}
	return list, nil
}

// bestShares returns the shares of the services for which overlapd advise finds, from the
// groups of the step profile, that the service bears most that bears least.
func (c *check) bestShares(ctx context.Context) ([]int, error) {
	var load, targets []string
	for _, s := range c.services {
		load = append(load, s+"=1") // all get the same
		targets = append(targets, fmt.Sprintf("%s=%s", s, c.target(s)))
	}
	var advice struct {
		Splits []struct {
			Services []string `json:"services"`
			Shares   []int    `json:"active_thread_percentage"`
		} `json:"splits"`
	}
	n := fmt.Sprint(len(c.services))
	err := c.ask(ctx, &advice, "advise", "--state", c.out, "--services", strings.Join(c.services, ","), "--size", n, "--devices", "1",
		"--load", strings.Join(load, ","), "--targets", strings.Join(targets, ","), "--json")
	shares := make([]int, len(c.services))
	for i, s := range c.services { // in proportion to what they take alone, where nothing is found
		shares[i] = max(int(100*c.alone(s, 1)/c.work(1)), 1)
	}
	if err == nil && len(advice.Splits) == 1 {
		for i, s := range advice.Splits[0].Services {
			shares[slices.Index(c.services, s)] = advice.Splits[0].Shares[i]
		}
	}
	return shares, err
}

// work returns how long all services take one after another with a batch of this size, in
// milliseconds.
func (c *check) work(batch int) (sum float64) {
	for _, m := range c.services {
		sum += c.alone(m, batch)
	}
	return sum
}

// settings returns the loads, with turns that fit into the time for so many ways of serving.
func (c *check) settings(left time.Duration, ways int) []loadSetting {
	turns := max(ways, 1) * len(c.loads) // of a round
	rounds := max(int(min(c.load, left)/(time.Duration(turns)*(c.turn+turnWarmup+turnSlack))), leastRounds)
	left -= time.Duration(ways) * learning
	turn := max(min(c.turn, left/time.Duration(turns*rounds)-turnWarmup-turnSlack), leastTurn)
	list := make([]loadSetting, len(c.loads))
	for i, factor := range c.loads {
		sum, n := c.work(1), float64(len(c.services))
		rate := min(factor*n*1000/sum, c.maxRate)
		list[i] = loadSetting{Rate: rate, Offered: rate / n * sum / 1000, Rounds: rounds, Turn: turn.Seconds(), TF32: c.tf32(), Graphs: *graphsFlag}
	}
	return list
}

// put loads daemons with queries of one batch size for a while, each service by a
// generator of its own: however the services are divided among daemons, they get the
// same arrivals, and copies of one service get half of its rate each.
func (c *check) put(ctx context.Context, daemons []*serving, batch int, rate, seconds float64, warmup time.Duration, seed int) ([]*load.Result, error) {
	var services []string
	var urls []string
	for _, d := range daemons {
		for _, s := range d.services {
			services, urls = append(services, s), append(urls, d.url)
		}
	}
	results, faults := make([]*load.Result, len(services)), make([]error, len(services))
	var wait sync.WaitGroup
	for i, service := range services {
		wait.Go(func() {
			o := load.DefaultOptions()
			o.URL, o.Services, o.Rate, o.Batch = urls[i], []string{service}, rate/float64(len(services)), batch
			o.Seed, o.SeqLen, o.MaxID, o.Timeout = uint64(seed*len(services)+i), c.seqLen, indices, giveUp
			o.Warmup, o.Duration = warmup, time.Duration(seconds*float64(time.Second))
			results[i], faults[i] = load.Run(ctx, o)
		})
	}
	wait.Wait()
	return results, errors.Join(append(faults, ctx.Err())...)
}

// turnOf puts the load on the daemons of one policy. All policies get the same arrivals
// in a round.
func (c *check) turnOf(ctx context.Context, daemons []*serving, s *loadSetting, round int, warmup time.Duration) (turnRow, error) {
	t := turnRow{Round: round, Offered: s.Offered, Violations: 1, Errors: map[string]int64{}}
	results, err := c.put(ctx, daemons, 1, s.Rate, s.Turn, warmup, seed+round)
	if err != nil {
		return t, err
	}
	good := 0.0
	for _, r := range results {
		t.Requests += r.Requests
		for why, n := range r.Errors {
			t.Errors[why] += n
		}
		if r.Goodput != nil {
			t.Goodput += *r.Goodput
			good += *r.Goodput * r.Duration
		}
		if r.SendLag != nil {
			t.LagP99MS = max(t.LagP99MS, r.SendLag.P99)
		}
		for _, s := range r.Services {
			if s.TargetMS > 0 {
				t.P50, t.P99 = max(t.P50, s.Latency.P50/s.TargetMS), max(t.P99, s.Latency.P99/s.TargetMS)
			}
			t.Alone = max(t.Alone, s.Latency.P99/c.alone(s.Name, 1))
		}
	}
	if t.Requests > 0 {
		t.Violations = max(1-good/float64(t.Requests), 0)
	}
	return t, nil
}

// sumUp puts the turns of a policy with one load together.
func (c *check) sumUp(policy string, offered float64) policyResult {
	p := policyResult{Offered: offered, Policy: policy}
	var goodput, p99, alone []float64
	for _, t := range c.mu.Turns {
		if t.Policy != policy || t.Offered != offered {
			continue
		}
		p.Turns++
		p.Requests += t.Requests
		p.Violations += t.Violations * float64(t.Requests)
		goodput, p99, alone = append(goodput, t.Goodput), append(p99, t.P99), append(alone, t.Alone)
	}
	p.Violations /= float64(max(p.Requests, 1))
	p.Goodput, p.P99, p.Alone = stats.Median(goodput), stats.Median(p99), stats.Median(alone)
	return p
}

// serving is a daemon in a process of its own.
type serving struct {
	served
	dir  string // of its state
	cmd  *exec.Cmd
	url  string
	read chan struct{} // is closed when its log is read to the end
}

// serve starts a daemon and waits until all services are ready. It has a copy of the state
// file, since only one daemon may open one, and the optimized models in common with all
// others, since those never change.
func (c *check) serve(ctx context.Context, s served) (*serving, error) {
	dir := c.top.TempDir()
	optimized := filepath.Join(c.base, "gpu-check", "optimized")
	err := errors.Join(copyFile(filepath.Join(dir, stateName), filepath.Join(c.out, stateName)),
		os.MkdirAll(optimized, 0o700), os.Symlink(optimized, filepath.Join(dir, "optimized")))
	if err != nil {
		return nil, err
	}
	path, err := c.writeConfig(ctx, dir, s)
	if err != nil {
		return nil, err
	}
	d := &serving{served: s, dir: dir, cmd: c.command(context.Background(), "serve", "--config", path, "--policy", s.policy), read: make(chan struct{})}
	log, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan error, 1)
	go func() {
		defer close(d.read)
		ready <- d.follow(log)
		_, _ = io.Copy(io.Discard, log)
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// follow reads the log until the daemon is ready.
func (d *serving) follow(log io.Reader) error {
	var said []string
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var l struct{ Level, Address, Message, Error string }
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Level == "error" || l.Level == "warn" {
			said = append(said, lines.Text())
		}
		if l.Address != "" {
			d.url = "http://" + l.Address
		}
		if d.url != "" && l.Message == "all services are ready" {
			return nil
		}
	}
	return fmt.Errorf("it ended before it was ready: %s", strings.Join(said, " | "))
}

// stopAll ends daemons at once: one after another they would take longer than a step may.
func stopAll(daemons []*serving) error {
	faults := make([]error, len(daemons))
	var wait sync.WaitGroup
	for i, d := range daemons {
		if d != nil { // it started
			wait.Go(func() { faults[i] = d.stop() })
		}
	}
	wait.Wait()
	return errors.Join(faults...)
}

// stop ends the daemon and waits for it.
func (d *serving) stop() error {
	_ = d.cmd.Process.Signal(unix.SIGTERM) // it may be gone already
	late := time.AfterFunc(processGrace, func() { _ = d.cmd.Process.Kill() })
	defer late.Stop()
	<-d.read
	return d.cmd.Wait()
}

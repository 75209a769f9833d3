package test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// How a run is chosen from outside.
const (
	chaosTime = "CHAOS_TIME" // how long it is disturbed
	chaosSeed = "CHAOS_SEED" // of what disturbs it
	chaosOut  = "CHAOS_OUT"  // where a failed run leaves what is known of it
)

const (
	shortChaos      = 8 * time.Second
	connectionLimit = 256
	spanTimeout     = 1500 * time.Millisecond
	steadyTarget    = 250 * time.Millisecond
	stateBytes      = 64 << 20 // of the file system of the state folder
)

// chaos is a daemon under load while everything goes wrong around it.
type chaos struct {
	t       *testing.T
	p       *process
	dir     string // its state folder
	ownDisk bool   // which is a file system of its own
	seed    uint64
	length  time.Duration
	begin   time.Time
	long    bool
	ledger  ledger

	over      atomic.Bool // the load ends
	clients   sync.WaitGroup
	burstTook time.Duration // one query of that service

	clock   *clock // nil with noClock
	noClock error
	scarce  atomic.Int64 // disturbances that leave no descriptors
	stalls  stalls

	mu struct {
		sync.Mutex
		notes   []string
		wayless []window // in which the daemon takes no connections
		taken   []window // in which the device is not there for everybody
	}
}

// note writes down what was done, and when.
func (c *chaos) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.mu.notes = append(c.mu.notes, fmt.Sprintf("%s %7.3fs ", now.Format("15:04:05.000"), now.Sub(c.begin).Seconds())+fmt.Sprintf(format, args...))
}

// noWay begins a time in which connections may be refused; what it returns
// ends it.
func (c *chaos) noWay() (end func()) {
	const afterwards = 3 * time.Second // the daemon looks for new ones again
	return c.window(&c.mu.wayless, afterwards)
}

// take begins a time in which the device is not there for the service that is
// let alone: a round does not end, or there is ten times too much to do.
func (c *chaos) take() (end func()) {
	const afterwards = time.Second // what waited is over
	return c.window(&c.mu.taken, afterwards)
}

func (c *chaos) window(list *[]window, afterwards time.Duration) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := len(*list)
	*list = append(*list, window{time.Now(), time.Now().Add(time.Hour)})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		(*list)[i].to = time.Now().Add(afterwards)
	}
}

// within reports whether a moment is in one of the windows of a list.
func (c *chaos) within(list *[]window, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(*list, func(w window) bool { return at.After(w.from) && at.Before(w.to) })
}

// notTaken reports whether a request was turned away with its connection,
// which the daemon did not take.
func (c *chaos) notTaken(a answer) bool {
	return a.Reason == "connections" || a.Err != nil && !timedOut(a.Err) && c.within(&c.mu.wayless, time.Now())
}

// rest sleeps for as long as there is load.
func (c *chaos) rest(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && !c.over.Load(); {
		time.Sleep(min(glance, time.Until(end)))
	}
}

// pause waits for a random time.
func (c *chaos) pause(random *rand.Rand, mean time.Duration) {
	c.rest(time.Duration(random.ExpFloat64() * float64(mean)))
}

// newChaos starts the daemon.
func newChaos(t *testing.T, length time.Duration, seed uint64) *chaos {
	c := &chaos{t: t, seed: seed, length: length, begin: time.Now(), long: length > shortChaos}
	c.dir = t.TempDir()
	if err := syscall.Mount("overlapd-chaos", c.dir, "tmpfs", 0, fmt.Sprintf("size=%d", stateBytes)); err == nil {
		c.ownDisk = true
		t.Cleanup(func() { syscall.Unmount(c.dir, syscall.MNT_DETACH) })
	}
	c.p = serve(t, c.config(""))
	c.p.crashes = true
	t.Cleanup(func() { c.over.Store(true); c.clients.Wait() })
	if c.clock, c.noClock = takeClock(c.p.cmd.Process.Pid); c.noClock == nil {
		t.Cleanup(c.clock.close)
	}
	return c
}

func (c *chaos) adminSocket() string { return filepath.Join(c.dir, "admin.sock") }

// config is the daemon's; further lines go into the tables.
func (c *chaos) config(tables string) config {
	dir := c.t.TempDir()
	put := func(name string, m message) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, m, 0o600); err != nil {
			c.t.Fatal(err)
		}
		return path
	}
	groups := 12
	if c.long {
		groups = 120
	}
	return config{dir: c.dir, grpc: "127.0.0.1:0", top: fmt.Sprintf("policy = \"overlap\"\nlog_level = \"info\"\nadmin_socket = %q", c.adminSocket()),
		worker: restarts + fmt.Sprintf("span_timeout = %q\nintermediate_bytes = \"%dB\"\n", spanTimeout, hungryBytes),
		tables: fmt.Sprintf("[limits]\nconnections = %d\nrequest_bytes = \"16MiB\"\nmemory_bytes = \"%dMiB\"\n[decisions]\nlog = true\nfile_bytes = \"1MiB\"\nfiles = 3\n", connectionLimit, hoardMemory>>20) +
			fmt.Sprintf("[access]\ntoken_file = %q\n[profile]\ngroups = %d\nrepeats = 3\n%s", put("tokens", message(token)), groups, tables),
		services: []service{
			{"steady", "zoo:tiny_add", fmt.Sprintf("target = %q", steadyTarget)},
			{"merged", "zoo:tiny_add", fmt.Sprintf("target = \"500ms\"\nmax_batch = 8\nmax_query_batch = %d\nsizes = [1, 4]", wideRows)},
			{"slow", put("slow.onnx", slow(12)), "target = \"2s\"\nqueue_limit = 16"},
			{"fragile", put("fragile.onnx", quotient(numbers)), "target = \"2s\"\nmax_batch = 8"},
			{"burst", put("burst.onnx", slow(16)), "target = \"300ms\"\nqueue_limit = 64"},
			{"images", put("images.onnx", convolutions()), "target = \"2s\""},
			{"loop", put("loop.onnx", loops()), "target = \"500ms\"\nbest_effort = true"},
		}}
}

// TestChaos runs a daemon under mixed load while workers are killed and
// stopped, the disk is full, descriptors run out, the clock steps, the state
// file is spoilt, clients hang up in every phase, begin calls that they never send or
// reset, or hold the admin socket, queries fail, end their worker or ask for more memory
// than there is for them, the configuration is read again, with pipes in it, and ten times
// too much is asked. Whatever was accepted gets one answer, which is right; nothing is
// left behind.
func TestChaos(t *testing.T) {
	length, seed := shortChaos, uint64(time.Now().UnixNano())
	if text := os.Getenv(chaosTime); text == "" {
		t.Parallel() // a long one is judged by its latencies
	} else {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", chaosTime, err)
		}
	}
	if text := os.Getenv(chaosSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", chaosSeed, err)
		}
	}
	t.Logf("%s=%d %s=%v", chaosSeed, seed, chaosTime, length)
	c := newChaos(t, length, seed)
	t.Cleanup(c.report)
	c.run()
}

// names are those of the services.
func (c *chaos) names() (names []string) {
	for _, s := range c.p.config.services {
		names = append(names, s.name)
	}
	return names
}

// run is the course of a run.
func (c *chaos) run() {
	t := c.t
	calm, wait := 2*time.Second, 30*time.Second
	if c.long {
		calm, wait = 15*time.Second, patience
		c.note("waiting for a predictor")
		c.note("predictor: %s", c.p.settles())
	}
	c.measureBurst()
	before, err := c.p.footprint(c.names())
	if err != nil {
		t.Fatal(err)
	}
	c.note("calm: load for %v", calm)
	from := time.Now()
	c.load()
	c.rest(calm)
	until := time.Now()
	c.warm()
	c.end()
	warmed, err := c.p.footprint(c.names())
	if err != nil {
		t.Fatal(err)
	}
	before.takeMemory(warmed)
	c.note("before: %v", before)

	disturbedFrom := time.Now()
	c.load()
	c.clients.Go(func() { c.stalls.measure(&c.over) })
	c.disturb()
	disturbedUntil := time.Now()
	c.note("quiet")
	c.end()
	after, wrong := c.p.settled(c.names(), before, wait)
	c.note("after: %v", after)
	for _, w := range wrong {
		c.ledger.fault("not given back: %s", w)
	}
	c.balance()
	c.promise(from, until, disturbedFrom, disturbedUntil)
	for _, f := range c.ledger.faulty() {
		t.Error(f)
	}
	if !t.Failed() {
		c.again()
	}
}

// measureBurst finds out how long a query of the service for bursts takes, and asks those
// once that only disturbances ask later on, which may find no way.
func (c *chaos) measureBurst() {
	const tries = 5
	c.burstTook = time.Hour
	for range tries {
		begin := time.Now()
		if a := c.p.inferBinary("burst", one(1)); a.Status != 200 {
			c.t.Errorf("burst: %v", a)
		}
		c.burstTook = min(c.burstTook, time.Since(begin))
	}
	for s, q := range map[string]query{"images": image(8), "loop": one(1)} {
		if a := c.p.inferBinary(s, q); a.Err != nil {
			c.t.Errorf("%s: %v", s, a)
		}
	}
	c.note("a query of burst takes %v", c.burstTook)
}

// warm does once, undisturbed, what takes memory later on.
func (c *chaos) warm() {
	random := rand.New(rand.NewPCG(c.seed, 0))
	c.overload(&disturbance{lasts: time.Second, random: random})
	defer c.noWay()()
	c.connect(connectionLimit)()
}

// disturb does what is planned.
func (c *chaos) disturb() {
	c.begin = time.Now()
	var running sync.WaitGroup
	for _, d := range plan(c.seed, c.length) {
		c.rest(time.Until(c.begin.Add(d.at)))
		running.Go(func() { d.do(c, d) })
	}
	running.Wait()
	c.rest(time.Until(c.begin.Add(c.length)))
	c.settleConfiguration()
	for _, s := range c.names() {
		c.p.eventually("the worker of "+s, func() bool { return c.p.worker(s) != 0 })
	}
	c.p.eventually("readiness", func() bool { return c.p.health("/v2/health/ready") == 200 })
}

// again stops the daemon and starts it on a spoilt state file with predictors that are
// spoilt, without which it serves all the same.
func (c *chaos) again() {
	if c.p.stop(); c.t.Failed() {
		return
	}
	random := rand.New(rand.NewPCG(c.seed, 1))
	spoilt, empty := c.file("spoilt.predictor.json", []byte(`{"format":"overlapd-predictor/1","layers":[NaN`)),
		c.file("empty.artifact.json", emptyArtifact())
	fresh := c.config("")
	fresh.dir = c.t.TempDir()
	cmd := command("predictor", "import", empty, "--config", c.file("fresh.toml", []byte(fresh.text())))
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	most, begin := int64(0), time.Now()
	watched := watch(func() {
		if u, err := measure(cmd.Process.Pid); err == nil {
			most = max(most, u.peak)
		}
	})
	err := cmd.Wait()
	watched()
	c.note("again: import of %s after %v, with %d MiB: %v", filepath.Base(empty), time.Since(begin), most>>20, err)
	if says(c.t, out.String(), "has more than"); err == nil || most > artifactMost {
		c.t.Errorf("a predictor of nothing was imported with %d MiB: %v", most>>20, err)
	}
	c.note("again: %s", spoil(filepath.Join(c.dir, "state.db"), random))
	for key, with := range map[string][2]string{"file": {spoilt, "the configured predictor was rejected"}, "source": {empty, "the source has no predictor"}} {
		p := serve(c.t, c.config(fmt.Sprintf("[predictor]\n%s = %q", key, with[0])))
		says(c.t, p.logged(), with[1])
		for range 10 {
			q := sum(random, 2)
			if err := checkSum(q, p.infer("merged", q)); err != nil {
				c.t.Errorf("again: %v", err)
			}
		}
		if most := p.measured(p.cmd.Process.Pid).peak; most > artifactMost {
			c.t.Errorf("again: with a %s the daemon took %d MiB", key, most>>20)
		}
		p.stop()
	}
}

// artifactMost is what a process may take to refuse an artifact of the largest size.
const artifactMost = 1 << 30

// emptyArtifact returns a file of 64 MiB with the format of an artifact, whose parts are empty
// objects.
func emptyArtifact() []byte {
	const most, head, tail = 64 << 20, `{"format":"overlapd-artifact/1","parts":[`, `{}]}`
	return append(append([]byte(head), bytes.Repeat([]byte("{},"), (most-len(head)-len(tail))/3)...), tail...)
}

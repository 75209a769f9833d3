package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// balance compares what the daemon counted with what clients saw.
func (c *chaos) balance() {
	m := c.p.metrics()
	value := func(name, service string) int { return int(m[name+`{service="`+service+`"}`]) }
	for _, s := range c.names() {
		accepted := value("overlapd_queries_accepted_total", s)
		ended := value("overlapd_queries_finished_total", s) + value("overlapd_queries_cancelled_total", s)
		for key, v := range m {
			for _, name := range []string{"overlapd_queries_dropped_total", "overlapd_queries_failed_total"} {
				if strings.HasPrefix(key, name+"{") && strings.Contains(key, `service="`+s+`"`) {
					ended += int(v)
				}
			}
		}
		if accepted != ended || accepted == 0 {
			c.ledger.fault("%s: %d queries were accepted and %d ended", s, accepted, ended)
		}
	}
	got, want, unsent := value("overlapd_queries_finished_total", "steady"), c.ledger.count("steady", "ok"), c.ledger.count("steady", "no_memory")
	if got < want || got > want+unsent { // one that ran may find no memory for its answer
		c.ledger.fault("steady: the daemon finished %d queries and its clients have %d answers", got, want)
	}
}

// promise looks at how the service that was let alone did. Its answers are in
// time whatever happens, but for a tenth of the target, which is on the way
// between client and daemon, and for what the machine stalls. While the device
// was there for it, hardly more is refused than before. If the machine was too
// busy to keep the target in calm, neither says anything.
func (c *chaos) promise(from, until, disturbedFrom, disturbedUntil time.Time) {
	calm, calmRefused := c.ledger.latencies(from, until, nil)
	stormy, refused := c.ledger.latencies(disturbedFrom, disturbedUntil, nil)
	c.mu.Lock()
	taken := slices.Clone(c.mu.taken)
	c.mu.Unlock()
	fair, fairRefused := c.ledger.latencies(disturbedFrom, disturbedUntil, taken)
	allowed := steadyTarget + steadyTarget/10 + c.stalls.worst()
	c.note("steady: in calm p99 of %d answers %v, refused %.2f %%; disturbed p99 of %d answers %v, refused %.2f %%, "+
		"while the device was there p99 of %d answers %v, refused %.2f %%; target %v, with what the machine stalls %v",
		len(calm), share(calm, 0.99), 100*calmRefused, len(stormy), share(stormy, 0.99), 100*refused,
		len(fair), share(fair, 0.99), 100*fairRefused, steadyTarget, allowed)
	if !c.long {
		return // too few answers to judge by
	}
	if share(calm, 0.99) > steadyTarget {
		c.note("steady: the machine is too busy to keep the target when nothing is disturbed; not judged")
		return
	}
	if p99 := share(stormy, 0.99); p99 > allowed {
		c.ledger.fault("steady: p99 is %v of %v", p99, allowed)
	}
	if fairRefused > calmRefused+steadyRefused {
		c.ledger.fault("steady: %.2f %% were refused while the device was there", 100*fairRefused)
	}
}

// steadyRefused is the part of the requests of the service that is let alone
// that may be refused on account of what happens to the others, while their
// rounds end and no more is asked than can be done: after a worker is lost, its
// model is loaded on the same cores.
const steadyRefused = 0.03

// stalls has by how much a goroutine that sleeps is late: what the machine
// takes from everybody, and no daemon can give back.
type stalls struct {
	mu struct {
		sync.Mutex
		late []time.Duration
	}
}

func (s *stalls) measure(over *atomic.Bool) {
	const nap = 5 * time.Millisecond
	for !over.Load() {
		begin := time.Now()
		time.Sleep(nap)
		s.mu.Lock()
		s.mu.late = append(s.mu.late, time.Since(begin)-nap)
		s.mu.Unlock()
	}
}

// worst is the stall that one in a hundred exceeds.
func (s *stalls) worst() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.mu.late)
	return share(s.mu.late, 0.99)
}

// report says what there is to say of a run; of a failed one all that is
// known, which it also leaves on disk.
func (c *chaos) report() {
	c.mu.Lock()
	notes := strings.Join(c.mu.notes, "\n")
	c.mu.Unlock()
	c.t.Logf("%s\n%v", notes, &c.ledger)
	if !c.t.Failed() {
		return
	}
	dir := os.Getenv(chaosOut)
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("overlapd-chaos-%d", c.seed))
	}
	var schedule strings.Builder
	for _, d := range plan(c.seed, c.length) {
		fmt.Fprintln(&schedule, d)
	}
	status, metrics := c.p.get("/metrics")
	select {
	case <-c.p.exited:
	default:
		c.p.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-c.p.exited:
		case <-time.After(10 * time.Second):
			c.p.cmd.Process.Kill()
		}
	}
	err := os.MkdirAll(dir, 0o700)
	for name, text := range map[string]string{
		"schedule": schedule.String(), "course": notes, "daemon.log": c.p.logged(), "metrics": fmt.Sprintf("status %d\n%s", status, metrics),
		"overlapd.toml": c.p.config.text(),
	} {
		if werr := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err == nil {
			err = werr
		}
	}
	os.CopyFS(filepath.Join(dir, "state"), os.DirFS(c.dir))
	c.t.Logf("repeat it with %s=%d %s=%v; its log, goroutines and state are in %s (%v)", chaosSeed, c.seed, chaosTime, c.length, dir, err)
}

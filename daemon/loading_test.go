package daemon

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

const ms = time.Millisecond

// granted returns the service that is given leave, or -1.
func (g *loading) granted(now time.Duration, use deviceUse) models.ServiceID {
	if step, ok := g.grant(now, use); ok {
		return step.service
	}
	return -1
}

func TestLeaveByUse(t *testing.T) {
	for _, c := range []struct {
		name  string
		use   deviceUse
		works bool // another worker does a step
		now   time.Duration
		want  models.ServiceID
	}{
		{"idle", useIdle, false, 0, 0},
		{"idle, another works", useIdle, true, time.Hour, -1},
		{"busy", useServes, false, patienceLimit - 1, -1},
		{"busy for long", useServes, false, patienceLimit, 0},
		{"busy for long, another works", useServes, true, time.Hour, -1},
		{"nobody served", useNone, false, 0, 0},
		{"nobody served, another works", useNone, true, 0, 0},
		{"measuring", useMeasures, false, time.Hour, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var g loading
			if c.works {
				g.ask(0, 7, "load")
				g.grant(0, useNone)
			}
			g.ask(0, 0, "load")
			if got := g.granted(c.now, c.use); got != c.want {
				t.Errorf("service %d may load, expected %d", got, c.want)
			}
		})
	}
}

// The oldest goes first, and the others wait for its step to end, by whatever.
func TestOneStepAtATime(t *testing.T) {
	var g loading
	for id := range models.ServiceID(3) {
		g.ask(time.Duration(id), id, "load")
	}
	if got := g.granted(10, useIdle); got != 0 {
		t.Fatal(got)
	}
	if got := g.granted(time.Hour, useIdle); got != -1 {
		t.Fatal(got)
	}
	g.ask(20, 0, "load") // it is done and wants more, behind the others
	if got := g.granted(20, useIdle); got != 1 {
		t.Fatal(got)
	}
	g.end(1) // lost with its leave
	if got := g.granted(30, useIdle); got != 2 {
		t.Fatal(got)
	}
	g.end(0) // lost while it waits
	g.end(2)
	if g.active() || g.granted(40, useNone) != -1 {
		t.Errorf("%+v", g)
	}
	if _, ok := g.wake(); ok {
		t.Error("it waits for nobody")
	}
}

// Who does short steps waits for a short time, and for steps of another kind as
// long as for any.
func TestPatience(t *testing.T) {
	var g loading
	now := time.Duration(0)
	step := func(took time.Duration, phase string) time.Duration {
		t.Helper()
		g.grant(now, useNone)
		now += took
		g.ask(now, 0, phase)
		at, ok := g.wake()
		if !ok {
			t.Fatal("it does not wait")
		}
		return at - now
	}
	g.ask(0, 0, "load")
	for _, c := range []struct {
		took  time.Duration
		phase string
		want  time.Duration
	}{
		{ms, "load", patienceLeast},
		{10 * ms, "load", 90 * ms},
		{time.Second, "load", patienceLimit},
		{ms, "warm", patienceLimit},
		{30 * ms, "warm", 270 * ms},
	} {
		if got := step(c.took, c.phase); got != c.want {
			t.Errorf("after %v: %v before %s, want %v", c.took, got, c.phase, c.want)
		}
	}
}

// Whatever happens, at most one works where others are served, nobody both works
// and waits, and on a device that is never idle everyone who asks gets leave
// within the patience and the steps of those before him.
func TestAnyLoading(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var g loading
		now := time.Duration(0)
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) {
				id := models.ServiceID(rapid.IntRange(0, 3).Draw(rt, "id"))
				if indexOfStep(g.asks, id) < 0 {
					g.ask(now, id, rapid.SampledFrom([]string{"load", "warm"}).Draw(rt, "phase"))
				}
			},
			"end":  func(rt *rapid.T) { g.end(models.ServiceID(rapid.IntRange(0, 3).Draw(rt, "id"))) },
			"time": func(rt *rapid.T) { now += time.Duration(rapid.IntRange(0, int(time.Second)).Draw(rt, "passes")) },
			"grant": func(rt *rapid.T) {
				use := deviceUse(rapid.IntRange(0, int(useMeasures)).Draw(rt, "use"))
				works := len(g.works)
				step, ok := g.grant(now, use)
				if ok && (use == useMeasures || use != useNone && works > 0 || use == useServes && now < step.since+step.patience) {
					rt.Errorf("use %d, %d work: leave after %v", use, works, now-step.since)
				}
			},
			"": func(rt *rapid.T) {
				for _, s := range g.works {
					if indexOfStep(g.asks, s.service) >= 0 {
						rt.Errorf("%d works and waits", s.service)
					}
				}
				for _, s := range g.asks {
					if s.patience < patienceLeast || s.patience > patienceLimit {
						rt.Errorf("patience of %v", s.patience)
					}
				}
			},
		})
		for range len(g.works) + len(g.asks) {
			for _, s := range slices.Clone(g.works) {
				g.end(s.service)
			}
			if len(g.asks) == 0 {
				break
			}
			at, ok := g.wake()
			if !ok || at > now+patienceLimit {
				rt.Fatalf("it waits until %v, it is %v", at, now)
			}
			now = max(now, at)
			oldest := g.asks[0].service
			if got := g.granted(now, useServes); got != oldest {
				rt.Fatalf("leave for %d, expected %d", got, oldest)
			}
		}
		if len(g.asks) > 0 {
			rt.Errorf("%+v", g)
		}
	})
}

// The loop lets load when nothing runs, keeps workers waiting while something
// does, and lets the next one load when a worker with leave is lost.
func TestLoopLetsLoad(t *testing.T) {
	b, f := startLoop(t, 3, nil)
	sync := func() { b.ask(func(*loop) {}); b.ask(func(*loop) {}) }
	grants := func(what string, want ...models.ServiceID) {
		t.Helper()
		sync()
		if got := f.grants(); !slices.Equal(got, want) {
			t.Errorf("%s: %d may load, expected %d", what, got, want)
		}
	}
	f.kill(1)
	f.kill(2)
	f.ask(1, "read")
	f.ask(2, "read")
	grants("before the first query all load", 1, 2)
	f.ask(1, "load")
	f.ask(2, "load")
	sync()
	f.grants()

	c := mustSubmit(t, b, 0)
	f.await()
	f.ask(1, "load")
	f.ask(2, "load")
	grants("while a query runs")
	f.end(executor.Done)
	if err := answerOf(t, b, c); err != nil {
		t.Fatal(err)
	}
	grants("idle again", 1)
	f.tell(executor.WorkerLost{Service: 1, Err: &executor.LostError{Cause: executor.ErrExited}})
	grants("it is lost", 2)
	f.revive(2, fakeOperators)
	f.ask(1, "read")
	grants("the other one is ready", 1)
	f.tell(executor.WorkerStopped{Service: 1})
	f.ask(2, "read")
	grants("it was removed", 2)
}

// On a device that is never idle a worker loads on when its patience ends.
func TestLoopLosesPatience(t *testing.T) {
	b, f := startLoop(t, 2, nil)
	f.kill(1)
	c := mustSubmit(t, b, 0)
	f.await()
	f.ask(1, "load")
	b.ask(func(*loop) {})
	if got := f.grants(); len(got) != 0 {
		t.Errorf("%d may load at once", got)
	}
	b.ask(func(l *loop) { l.loading.asks[0].since -= patienceLimit })
	b.ask(func(*loop) {})
	if got := f.grants(); !slices.Equal(got, []models.ServiceID{1}) {
		t.Errorf("%d may load", got)
	}
	f.end(executor.Done)
	if err := answerOf(t, b, c); err != nil {
		t.Error(err)
	}
}

// Loading waits for the group that is measured, which ends when its patience
// does, and nothing is measured while a worker loads.
func TestLoadingAndMeasuring(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	r.workers.await() // a group is measured
	r.workers.ask(1, "load")
	r.sync()
	if got := r.workers.grants(); len(got) != 0 {
		t.Errorf("%d may load while a group is measured", got)
	}
	r.backend.ask(func(l *loop) { l.loading.asks[0].since -= patienceLimit })
	eventually(t, "leave to load", func() bool { return slices.Equal(r.workers.grants(), []models.ServiceID{1}) })
	r.backend.ask(func(l *loop) {
		if l.profiling.machine.active() || !l.profiling.pending() || l.measurable() {
			t.Error("groups are measured while a worker loads")
		}
	})
	r.workers.tell(executor.WorkerLost{Service: 1, Err: &executor.LostError{Cause: executor.ErrExited}})
	r.workers.tell(executor.WorkerStopped{Service: 1})
	r.backend.ask(func(l *loop) {
		if l.loading.active() {
			t.Error("a lost worker loads")
		}
	})
}

// What a worker that loads by leave tells of its steps is progress of the reload.
func TestReloadTellsOfStepsThatAreAskedFor(t *testing.T) {
	r := newReloadRig(t, 1)
	r.begin(func(c *Config) { c.Services = append(c.Services, added("new")) })
	id := r.joins()
	r.workers.tell(executor.WorkerAsks{Service: models.ServiceID(id), Phase: "load", Done: 3, Total: 9})
	r.sync()
	r.workers.revive(id, fakeOperators)
	r.end()
	close(r.steps)
	for step := range r.steps {
		if step == (ReloadStep{Service: "new", State: StepLoading, Done: 3, Total: 9}) {
			return
		}
	}
	t.Error("nothing is told of the steps")
}

package daemon

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
)

// sleeper is the formula, which notes what runs, when, and after which pause.
type sleeper struct {
	formula
	slow time.Duration // that one operator takes, 0 for what the formula says
	mu   sync.Mutex
	runs []sleeperRun
}

type sleeperRun struct {
	span models.Span
	idle time.Duration
	at   time.Time
}

func (s *sleeper) Sample(g models.Group, _ *rand.Rand) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, sleeperRun{g.Spans[0], g.Idle, time.Now()})
	if s.slow > 0 && g.Spans[0].Len() == 1 {
		return s.slow
	}
	return s.Latency(g)
}

func (s *sleeper) all() []sleeperRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runs)
}

// kept returns those of some runs that kept the device awake.
func kept(runs []sleeperRun) (list []sleeperRun) {
	for _, r := range runs {
		if r.span.Len() == 1 {
			list = append(list, r)
		}
	}
	return list
}

// await waits until so many runs have kept the device awake since a run.
func (s *sleeper) await(t *testing.T, d *emulatedDaemon, since, count int) {
	t.Helper()
	for begin := time.Now(); len(kept(s.all()[since:])) < count; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("the device is not kept awake: %+v\n%s", s.all(), d.log)
		}
	}
}

// A device with keep_warm is never idle for long: small runs, in the size for which the
// worker is prepared, come before the next query, which they do not count as.
func TestKeepWarm(t *testing.T) {
	for name, every := range map[string]time.Duration{"off": 0, "on": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			on := &sleeper{}
			d := serveEmulatedOn(t, emulatedConfig(t, func(c *config.Config) {
				c.Decisions.Log, c.KeepWarm = true, every
			}), func(c *config.Config) (*emulation, error) {
				e, err := formulaEmulation(c)
				e.device, e.history = on, true
				return e, err
			})
			if every > 0 {
				on.await(t, d, 0, 1) // before the first query, too
			}
			query := func() (index int, run sleeperRun) {
				t.Helper()
				if status, text := d.infer(0, 4, 0); status != http.StatusOK || !strings.Contains(text, `"shape":[4,4]`) {
					t.Fatalf("status %d: %s", status, text)
				}
				runs := on.all()
				for i, r := range slices.Backward(runs) {
					if r.span.Len() == formulaOperators {
						return i, r
					}
				}
				t.Fatalf("no query has run: %+v", runs)
				return 0, run
			}
			first, a := query()
			if every > 0 {
				on.await(t, d, first, 3)
			} else {
				time.Sleep(60 * time.Millisecond) // of what shall not happen
			}
			second, b := query()
			between := on.all()[first+1 : second]
			if every == 0 {
				if len(between) > 0 {
					t.Errorf("ran between two queries: %+v", between)
				}
			} else if pause := b.at.Sub(a.at); len(kept(between)) < 3 || b.idle > pause-3*every {
				t.Errorf("the device was idle for %v of the %v between two queries: %+v", b.idle, pause, between)
			}
			for _, r := range between {
				if r.span.Start != 0 || r.span.End != 1 || r.span.Size != 4 || r.idle < every {
					t.Errorf("ran to keep the device awake: %+v", r)
				}
			}
			o, ok := d.backend.FullStatus()
			if !ok || o.Rounds != 2 || o.Services[0].Arrived != 2 || o.Services[0].Finished != 2 || o.Services[1].Arrived != 0 {
				t.Errorf("%+v", o)
			}
			d.stop()
			d.replays()
			if text := d.log.String(); strings.Contains(text, "not kept awake") || strings.Contains(text, `"level":"error"`) {
				t.Error(text)
			}
		})
	}
}

// Each device of a pool is kept awake, and still takes queries.
func TestKeepWarmInAPool(t *testing.T) {
	var devices []*sleeper
	c := pooledConfig(t, func(c *config.Config) {
		c.Decisions.Log = true
		c.Devices[0].KeepWarm, c.Devices[1].KeepWarm = 20*time.Millisecond, 30*time.Millisecond
	})
	d := serveEmulatedOn(t, c, func(c *config.Config) (*emulation, error) {
		e, err := formulaEmulation(c)
		devices = append(devices, &sleeper{})
		e.device, e.history = devices[len(devices)-1], true
		return e, err
	})
	for range 3 {
		for _, on := range devices {
			on.await(t, d, len(on.all()), 2)
		}
		if n := d.burst(10); n != 10 {
			t.Errorf("%d queries were answered", n)
		}
	}
	if len(devices) != 2 {
		t.Errorf("%d devices", len(devices))
	}
	d.stop()
	d.replays()
}

// A query that comes while something runs to keep the device awake is sent at once, and
// begins without a pause.
func TestQueryWhileKeptWarm(t *testing.T) {
	on := &sleeper{slow: 15 * time.Millisecond} // less than a round that measures is waited for
	d := serveEmulatedOn(t, emulatedConfig(t, func(c *config.Config) {
		c.Decisions.Log, c.KeepWarm = true, 10*time.Millisecond
	}), func(c *config.Config) (*emulation, error) {
		e, err := formulaEmulation(c)
		e.device, e.history = on, true
		return e, err
	})
	behind := func(r sleeperRun) bool { return r.span.Len() == formulaOperators && r.idle == 0 }
	for begin := time.Now(); !slices.ContainsFunc(on.all(), behind); {
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("no query was sent while the device was kept awake: %+v", on.all())
		}
		on.await(t, d, len(on.all()), 1)
		if status, text := d.infer(0, 4, 0); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
	}
	d.stop()
	d.replays()
}

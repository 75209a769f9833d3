package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// reloadRig is a rig whose services come and go.
type reloadRig struct {
	*rig
	result chan reloaded
	steps  chan config.Step
	joined int // services that joins has returned
	before config.Config
}

type reloaded struct {
	*config.Reloaded
	err error
}

func newReloadRig(t *testing.T, services int) *reloadRig {
	r := &reloadRig{rig: startRig(t, rigOptions{services: services, change: func(c *config.Config) { c.Policy = "edf" }}),
		result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	r.before = r.Config()
	return r
}

// begin begins a reload with another configuration.
func (r *reloadRig) begin(change func(*config.Config)) {
	next := r.Config()
	next.Services = slices.Clone(next.Services)
	change(&next)
	go func() {
		done, err := r.Reload(context.Background(), next, func(s config.Step) { r.steps <- s })
		r.result <- reloaded{done, err}
	}()
}

// reload reloads, and fails the test if that is cut short.
func (r *reloadRig) reload(change func(*config.Config)) *config.Reloaded {
	r.t.Helper()
	r.begin(change)
	return r.end()
}

func (r *reloadRig) end() *config.Reloaded {
	r.t.Helper()
	select {
	case done := <-r.result:
		if done.err != nil {
			r.t.Fatal(done.err)
		}
		return done.Reloaded
	case <-time.After(10 * time.Second):
		r.t.Fatal("the reload does not end")
		return nil
	}
}

// until waits for the loop to come to a state.
func (r *reloadRig) until(what string, f func() bool) {
	r.t.Helper()
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(time.Millisecond) {
		if f() {
			return
		}
	}
	r.t.Fatalf("never: %s", what)
}

// gone waits until nothing is left of services that do not serve. None must join.
func (r *reloadRig) gone() {
	r.t.Helper()
	r.until("all that was taken away is gone", func() bool {
		_, dropped := r.seen.counts()
		return r.services+len(r.workers.News())-dropped == len(r.backend.Services())
	})
}

// joins waits for the next service that joins, and returns its member.
func (r *reloadRig) joins() (id int) {
	r.t.Helper()
	r.until("a service joins", func() bool { return len(r.workers.News()) > r.joined })
	r.joined++
	return r.workers.News()[r.joined-1]
}

func (r *reloadRig) names() string {
	var names []string
	for _, s := range r.backend.Services() {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// answers fails the test unless each of these services answers a query.
func (r *reloadRig) answers(names ...string) {
	r.t.Helper()
	for _, name := range names {
		at := slices.IndexFunc(r.backend.Services(), func(s *query.Service) bool { return s.Name == name })
		if at < 0 {
			r.t.Fatalf("there is no %s", name)
		}
		c := mustSubmit(r.t, r.backend, at)
		r.workers.Await()
		r.workers.End(models.SpanDone)
		isServed(r.t, r.backend, c)
	}
}

func added(name string) config.Service {
	s := config.DefaultService()
	s.Name, s.Model, s.Target = name, "zoo:tiny_add", time.Minute
	return s
}

func TestReloadAdds(t *testing.T) {
	r := newReloadRig(t, 2)
	r.begin(func(c *config.Config) { c.Services = slices.Insert(c.Services, 1, added("new")) })
	id := r.joins()
	if got := r.names(); got != "s0 s1" {
		t.Errorf("while it loads there are %s", got)
	}
	r.answers("s0")
	r.workers.Revive(id, fakeworkers.Operators)
	if done := r.end(); len(done.Failed) > 0 || !slices.Equal(done.Added, []string{"new"}) {
		t.Errorf("%+v", done)
	}
	if got := r.names(); got != "s0 new s1" {
		t.Errorf("there are %s", got)
	}
	r.answers("new", "s0", "s1")
	if names := r.Daemon.Config(); strings.Join(names.Names(), " ") != "s0 new s1" {
		t.Errorf("the configuration has %v", names.Names())
	}
}

func TestReloadReplaces(t *testing.T) {
	r := newReloadRig(t, 2)
	r.answers("s0")
	old := r.backend.Service([]byte("s0"))
	r.begin(func(c *config.Config) { c.Services[0].Threads = 7 })
	id := r.joins()
	if r.answers("s0"); r.backend.Service([]byte("s0")) != old {
		t.Error("the old one does not serve")
	}
	inFlight := mustSubmit(t, r.backend, 0)
	r.workers.Await()
	r.workers.Revive(id, fakeworkers.Operators)
	if done := r.end(); !slices.Equal(done.Replaced, []string{"s0"}) || len(done.Failed) > 0 {
		t.Errorf("%+v", done)
	}
	now := r.backend.Service([]byte("s0"))
	if now == old || int(now.ID) != id || now.Stats != old.Stats {
		t.Errorf("%+v has taken the place of %+v", now, old)
	}
	if old.Hold() {
		t.Error("the old one still takes requests")
	}
	r.workers.End(models.SpanDone)
	if err := answerOf(t, r.backend, inFlight); err != nil {
		t.Errorf("a query that was in flight: %v", err)
	}
	r.gone()
	r.answers("s0")
	o, _ := r.backend.FullStatus()
	if len(o.Services) != 2 || o.Services[0].Name != "s0" || o.Services[0].Finished != 4 {
		t.Errorf("counted: %+v", o.Services)
	}
}

// As many services as a configuration may have can all be replaced while they serve.
func TestReloadReplacesOneOfMany(t *testing.T) {
	r := newReloadRig(t, config.MaxServices)
	r.begin(func(c *config.Config) { c.Services[7].Threads = 7 })
	r.workers.Revive(r.joins(), fakeworkers.Operators)
	if done := r.end(); !slices.Equal(done.Replaced, []string{"s7"}) || len(done.Failed) > 0 {
		t.Errorf("%+v", done)
	}
	r.answers("s7")
}

func TestReloadFails(t *testing.T) {
	for name, fail := range map[string]func(*reloadRig, int){
		"given up": func(r *reloadRig, id int) { r.workers.Fail(id) },
		"model": func(r *reloadRig, id int) {
			r.workers.Tell(executor.Event{Kind: executor.WorkerLost, Service: models.ServiceID(id), Err: executor.ErrLoad})
		},
		"lost again and again": func(r *reloadRig, id int) {
			for range 3 {
				r.workers.Tell(executor.Event{Kind: executor.WorkerLost, Service: models.ServiceID(id), Err: executor.ErrExited})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReloadRig(t, 2)
			r.begin(func(c *config.Config) {
				c.Services[0].Threads = 7
				c.Services = append(c.Services, added("new"))
			})
			first := r.joins()
			r.workers.Revive(first, fakeworkers.Operators)
			r.until("it serves", func() bool { return r.backend.Service([]byte("new")) != nil })
			fail(r, r.joins())
			done := r.end()
			if len(done.Failed) != 1 || done.Failed["s0"] == "" || len(done.Down) != 0 {
				t.Errorf("%+v", done)
			}
			r.answers("s0")
			r.gone()
			if c := r.Daemon.Config(); c.Service("s0").Threads != 0 || c.Service("new") == nil {
				t.Errorf("the configuration has %+v", c.Services)
			}
		})
	}
}

// Where nothing answered before, nothing does after a reload that fails, and that is said.
func TestReloadOfWhatWasGivenUpFails(t *testing.T) {
	r := newReloadRig(t, 2)
	r.workers.Fail(0)
	r.until("it is given up", func() bool { return r.backend.Service([]byte("s0")).GivenUp.Load() })
	r.begin(func(c *config.Config) { c.Services[0].Threads = 7 })
	r.workers.Fail(r.joins())
	if done := r.end(); done.Failed["s0"] == "" || !slices.Equal(done.Down, []string{"s0"}) {
		t.Errorf("%+v", done)
	}
}

// A reload tries a service again that was given up, although nothing of it has changed, and
// says so.
func TestReloadTriesAgainWhatWasGivenUp(t *testing.T) {
	r := newReloadRig(t, 2)
	r.workers.Fail(0)
	r.until("it is given up", func() bool { return r.backend.Service([]byte("s0")).GivenUp.Load() })
	unchanged := func(*config.Config) {}
	r.begin(unchanged)
	r.workers.Fail(r.joins())
	if done := r.end(); done.None() || !slices.Equal(done.Retried, []string{"s0"}) || done.Failed["s0"] == "" || !slices.Equal(done.Down, []string{"s0"}) {
		t.Errorf("%+v", done)
	}
	r.begin(unchanged)
	r.workers.Revive(r.joins(), fakeworkers.Operators)
	if done := r.end(); !slices.Equal(done.Retried, []string{"s0"}) || len(done.Failed) > 0 {
		t.Errorf("%+v", done)
	}
	r.answers("s0", "s1")
	if done := r.reload(unchanged); !done.None() {
		t.Errorf("once it serves: %+v", done)
	}
}

func TestReloadRemoves(t *testing.T) {
	r := newReloadRig(t, 3)
	c := mustSubmit(t, r.backend, 1)
	r.workers.Await()
	r.begin(func(c *config.Config) { c.Services = slices.Delete(c.Services, 1, 2) })
	r.until("it is retired", func() bool { return r.backend.Service([]byte("s1")) == nil })
	if got := r.names(); got != "s0 s2" {
		t.Errorf("there are %s", got)
	}
	select {
	case <-r.result:
		t.Error("the reload did not wait for a query that was accepted")
	default:
	}
	r.workers.End(models.SpanDone)
	isServed(t, r.backend, c)
	r.end()
	r.begin(func(c *config.Config) { c.Services = append(c.Services, added("new")) })
	if id := r.joins(); id != 1 {
		t.Errorf("member %d is taken, 1 is free", id)
	}
	r.workers.Revive(1, fakeworkers.Operators)
	r.end()
	r.answers("new")
}

// TestReloadOfALeak takes a service away of whose memory somebody has not given back a
// part: it stays as it is, and another service has its place and memory of its own.
func TestReloadOfALeak(t *testing.T) {
	r := newReloadRig(t, 2)
	arena := r.workers.Arena(1)
	offset, data, err := arena.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	data[0] = 7
	r.reload(func(c *config.Config) { c.Services = c.Services[:1] })
	r.begin(func(c *config.Config) { c.Services = append(c.Services, added("new")) })
	id := r.joins()
	r.workers.Revive(id, fakeworkers.Operators)
	r.end()
	if id != 1 || r.workers.Arena(1) == arena || !strings.Contains(r.log.String(), "1 inputs of service s1") {
		t.Errorf("member %d\n%s", id, r.log)
	}
	r.answers("new")
	read := data[0]
	if err := arena.Free(offset); read != 7 || err != nil {
		t.Errorf("it reads %d; %v", read, err)
	}
}

func TestReloadChanges(t *testing.T) {
	r := newReloadRig(t, 2)
	before := r.backend.Service([]byte("s1"))
	done := r.reload(func(c *config.Config) {
		c.Services[1].Target, c.Services[1].QueueLimit, c.Services[1].MaxQueryBatch = 2*time.Minute, 1, 3
		c.DrainTimeout, c.LogFormat = time.Hour, "json"
	})
	if !slices.Equal(done.Changed, []string{"s1"}) || !slices.Equal(done.Restart, []string{"log_format"}) || len(done.Settings) != 1 {
		t.Errorf("%+v", done)
	}
	s := r.backend.Service([]byte("s1"))
	if s.QoSTarget != 2*time.Minute || s.MaxQueryBatch != 3 || !s.Ready() || s.Stats != before.Stats || s.Signature() == nil {
		t.Errorf("%+v", s)
	}
	if c := r.Daemon.Config(); c.DrainTimeout != time.Hour {
		t.Errorf("drain timeout of %v", c.DrainTimeout)
	}
	running := mustSubmit(t, r.backend, 1)
	r.workers.Await()
	waiting := mustSubmit(t, r.backend, 1)
	r.sync()
	refused := mustSubmit(t, r.backend, 1)
	wantError(t, answerOf(t, r.backend, refused), 503, query.ReasonQueueFull)
	for _, c := range []*query.Call{running, waiting} {
		r.workers.Await()
		r.workers.End(models.SpanDone)
		isServed(t, r.backend, c)
	}
}

func TestReloadOneAtATime(t *testing.T) {
	r := newReloadRig(t, 1)
	r.begin(func(c *config.Config) { c.Services = append(c.Services, added("new")) })
	id := r.joins()
	if _, err := r.Reload(context.Background(), r.Daemon.Config(), nil); !errors.Is(err, ErrReloading) {
		t.Error(err)
	}
	r.workers.Revive(id, fakeworkers.Operators)
	r.end()
	if done := r.reload(func(*config.Config) {}); !done.None() {
		t.Errorf("nothing changed: %+v", done)
	}
}

func TestReloadIsCutShort(t *testing.T) {
	r := newReloadRig(t, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	next := r.Daemon.Config()
	next.Services = append(slices.Clone(next.Services), added("new"), added("newer"))
	go func() {
		done, err := r.Reload(ctx, next, nil)
		r.result <- reloaded{done, err}
	}()
	r.joins()
	cancel()
	done := <-r.result
	if !errors.Is(done.err, context.Canceled) || done.Failed["new"] == "" {
		t.Errorf("%+v, %v", done.Reloaded, done.err)
	}
	r.gone()
	if got := r.names(); got != "s0" {
		t.Errorf("there are %s", got)
	}
}

func TestReloadOfADaemonThatStops(t *testing.T) {
	r := newReloadRig(t, 1)
	r.begin(func(c *config.Config) { c.Services = append(c.Services, added("new")) })
	r.joins()
	r.stop()
	if done := <-r.result; !errors.Is(done.err, ErrStopping) {
		t.Errorf("%+v, %v", done.Reloaded, done.err)
	}
	if _, err := r.Reload(context.Background(), r.Daemon.Config(), nil); !errors.Is(err, ErrStopping) {
		t.Error(err)
	}
}

// TestReloadUnderLoad reloads again and again while queries are sent. Every
// query that was accepted is answered, by the service that it was sent to.
func TestReloadUnderLoad(t *testing.T) {
	r := newReloadRig(t, 3)
	r.workers.RunsOn(&fakeworkers.Calm)
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				r.client()
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		r.begin(func(c *config.Config) {
			switch random.IntN(3) {
			case 0:
				c.Services[random.IntN(len(c.Services))].Threads = 1 + random.IntN(100)
			case 1:
				c.Services = append(c.Services, added("n"+time.Now().Format("150405.000000000")))
			default:
				if len(c.Services) > 1 {
					c.Services = slices.Delete(c.Services, 1, 2)
				}
			}
		})
		done := r.serve()
		if len(done.Failed) > 0 {
			t.Fatalf("%+v", done)
		}
	}
	stop()
	clients.Wait()
	r.gone()
	r.until("all is answered", func() bool {
		open, _ := r.seen.counts()
		return open == 0
	})
}

// serve lets whatever joins become ready until the reload has ended.
func (r *reloadRig) serve() *config.Reloaded {
	for {
		select {
		case done := <-r.result:
			if done.err != nil {
				r.t.Fatal(done.err)
			}
			return done.Reloaded
		case <-time.After(time.Millisecond):
		}
		if len(r.workers.News()) > r.joined {
			r.workers.Revive(r.joins(), fakeworkers.Operators)
		}
	}
}

// client sends one query to some service, as the endpoint does.
func (r *reloadRig) client() {
	list := r.backend.Services()
	s := list[rand.IntN(len(list))]
	if !s.Hold() { // answerOf lets it go
		return
	}
	c := query.NewCall(s)
	c.Size, c.Arrival = 1, time.Now()
	m, err := s.Backend.Alloc(s, 64)
	if err != nil {
		r.t.Error(err)
		return
	}
	c.Memory = m
	if err := s.Backend.Submit(c); err != nil {
		r.t.Error(err)
		return
	}
	answerOf(r.t, r.backend, c)
	if c.Reply.Err != nil {
		r.t.Error(c.Reply.Err)
	}
}

// What goes makes room first, and a service that others replace is switched last, in one step. A
// variant that is added to others is none of those.
func TestPlan(t *testing.T) {
	steps := plan([]string{"a", "gone", "b/y", "c", "d", "e", "f"}, &config.Reloaded{
		Added: []string{"new", "a/x", "a/y", "b/z"}, Removed: []string{"a", "gone"}, Changed: []string{"c"}, Moved: []string{"d"},
		Replaced: []string{"e"}, Retried: []string{"f"},
	})
	const want = "[{[gone] [] false} {[] [c] true} {[] [d] true} {[] [new] false} {[] [b/z] false} {[] [e] false} {[] [f] false} {[a] [a/x a/y] false}]"
	if got := fmt.Sprint(steps); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

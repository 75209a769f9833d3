package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// split gives a service two variants.
func split(c *config.Config, at int) {
	s := &c.Services[at]
	s.Variants = []config.Variant{{Name: "a", Model: s.Model, Accuracy: 1}, {Name: "b", Model: s.Model, Accuracy: 2}}
	s.Model = ""
}

// A service that gets variants, or loses them, serves as before until all that replaces it
// has loaded. At no moment is there none of its name.
func TestReloadGivesAndTakesVariants(t *testing.T) {
	r := newReloadRig(t, 2)
	old := r.backend.Service([]byte("s0"))
	r.begin(func(c *config.Config) { split(c, 0) })
	for range 2 {
		id := r.joins()
		if r.answers("s0"); r.backend.Service([]byte("s0")) != old {
			t.Fatal("s0 does not serve while its variants load")
		}
		r.workers.Revive(id, fakeworkers.Operators)
	}
	done := r.end()
	if !slices.Equal(done.Added, []string{"s0/a", "s0/b"}) || !slices.Equal(done.Removed, []string{"s0"}) || len(done.Failed) > 0 {
		t.Errorf("%+v", done)
	}
	front := r.backend.Service([]byte("s0"))
	if front == old || front == nil || len(front.Variants) != 2 || !front.Ready() || old.Hold() {
		t.Fatalf("%+v has taken the place of %+v", front, old)
	}
	if c := r.Daemon.Config(); strings.Join(c.Names(), " ") != "s0/a s0/b s1" || r.names() != "s0 s1" {
		t.Errorf("the configuration has %v, there are %s", c.Names(), r.names())
	}
	r.answers("s0", "s1")

	r.begin(func(c *config.Config) { c.Services = slices.Clone(r.before.Services) })
	id := r.joins()
	if r.answers("s0"); len(r.backend.Service([]byte("s0")).Variants) != 2 {
		t.Fatal("the variants do not serve while what replaces them loads")
	}
	r.workers.Revive(id, fakeworkers.Operators)
	done = r.end()
	if !slices.Equal(done.Removed, []string{"s0/a", "s0/b"}) || !slices.Equal(done.Added, []string{"s0"}) || len(done.Failed) > 0 {
		t.Errorf("%+v", done)
	}
	if s := r.backend.Service([]byte("s0")); len(s.Variants) > 0 || front.Hold() {
		t.Errorf("%+v has taken the place of %+v", s, front)
	}
	if c := r.Daemon.Config(); strings.Join(c.Names(), " ") != "s0 s1" || r.names() != "s0 s1" {
		t.Errorf("the configuration has %v, there are %s", c.Names(), r.names())
	}
	r.answers("s0", "s1")
}

// Where one of the variants cannot be loaded, what served before serves on, as the reload
// says, and the others go again.
func TestReloadGivesVariantsThatFail(t *testing.T) {
	r := newReloadRig(t, 2)
	old := r.backend.Service([]byte("s0"))
	r.begin(func(c *config.Config) { split(c, 0) })
	r.workers.Revive(r.joins(), fakeworkers.Operators)
	r.workers.Fail(r.joins())
	done := r.end()
	for name, says := range map[string]string{"s0": "s0/b could not be loaded", "s0/a": "s0/b could not be loaded", "s0/b": "s0/b could not be loaded"} {
		if !strings.Contains(done.Failed[name], says) {
			t.Errorf("%s: %q, want %q", name, done.Failed[name], says)
		}
	}
	if c := r.Daemon.Config(); strings.Join(c.Names(), " ") != "s1 s0" && strings.Join(c.Names(), " ") != "s0 s1" {
		t.Errorf("the configuration has %v", c.Names())
	}
	r.answers("s0", "s1")
	if s := r.backend.Service([]byte("s0")); s != old {
		t.Errorf("%+v has taken the place of %+v", s, old)
	}
	// The next reload tries the same again.
	r.begin(func(c *config.Config) {
		c.Services = slices.Clone(r.before.Services)
		split(c, 0)
	})
	r.workers.Revive(r.joins(), fakeworkers.Operators)
	r.workers.Revive(r.joins(), fakeworkers.Operators)
	if done := r.end(); len(done.Failed) > 0 {
		t.Errorf("%+v", done)
	}
	r.answers("s0", "s1")
}

// A request that holds its service before a reload, and is read after it, is answered by what
// it holds: by a service in whose place its variants have come, and by variants in whose place
// one service has come, whether it names one of them or not.
func TestReloadAnswersWhatWasHeldBefore(t *testing.T) {
	r := newReloadRig(t, 1)
	held := func(variant int) *query.Call {
		s := r.backend.Service([]byte("s0"))
		if !s.Hold() {
			t.Fatal("s0 takes no requests")
		}
		c := query.NewCall(s)
		c.Size, c.Arrival, c.Variant = 1, time.Now(), variant
		return c
	}
	answered := func(c *query.Call) {
		t.Helper()
		m, err := c.Service.Backend.Alloc(c.Service, 64)
		if err != nil {
			t.Fatal(err)
		}
		c.Memory = m
		c.Inputs = []models.Tensor{{Type: models.Int32, Shape: []int64{1, 16}, Data: m.Bytes, Offset: m.Offset, Bytes: int64(len(m.Bytes))}}
		if err := c.Service.Backend.Submit(c); err != nil {
			t.Fatal(err)
		}
		r.sync()
		select {
		case <-c.Answered():
			t.Fatalf("refused: %v", c.Reply.Err)
		default:
			r.workers.Await()
			r.workers.End(models.SpanDone)
		}
		isServed(t, r.backend, c)
	}
	plain := held(-1)
	r.begin(func(c *config.Config) { split(c, 0) })
	r.workers.Revive(r.joins(), fakeworkers.Operators)
	r.workers.Revive(r.joins(), fakeworkers.Operators)
	r.end()
	answered(plain)

	unnamed, named := held(-1), held(1)
	r.begin(func(c *config.Config) { c.Services = slices.Clone(r.before.Services) })
	r.workers.Revive(r.joins(), fakeworkers.Operators)
	r.end()
	if unnamed.Service.GivenUp.Load() || !unnamed.Service.Ready() {
		t.Error("variants that still answer are told to be given up, or not to be ready")
	}
	answered(unnamed)
	answered(named)
	if named.Reply.Variant != "b" {
		t.Errorf("%q answered in the place of b", named.Reply.Variant)
	}
	r.gone()
}

// A request that found a service which takes no more, and finds it again, is refused after
// a few attempts.
func TestRequestOfARetiredService(t *testing.T) {
	r := newReloadRig(t, 1)
	s := r.backend.Service([]byte("s0"))
	s.Retired.Store(true)
	server := &query.Server{Host: r.backend}
	if err := server.Answer(s, nil, nil, nil); err != query.ErrUnavailable {
		t.Errorf("got %v", err)
	}
}

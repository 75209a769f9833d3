package daemon

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

// repositoryRig is a rig whose models clients load: s0, of which there is a version 1 too, and
// s1, which is kept.
func repositoryRig(t *testing.T) (*reloadRig, *repository) {
	r := &reloadRig{rig: startRig(t, rigOptions{services: 3, change: func(c *config.Config) {
		c.Policy, c.Load = "edf", config.LoadByRequest
		c.Services[0].Version, c.Services[1].Keep = 2, true
		c.Services[2].Name, c.Services[2].Version = "s0:1", 1
	}}), result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	return r, r.repository(nil)
}

// ready returns the names of the services that answer.
func (r *reloadRig) ready() string {
	var names []string
	for _, s := range r.backend.Services() {
		if s.Ready() {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// Clients load and unload all versions of a model together.
func TestLoadByRequest(t *testing.T) {
	r, all := repositoryRig(t)
	is := func(want string) {
		t.Helper()
		if got := r.ready(); got != want {
			t.Errorf("ready: %q, want %q", got, want)
		}
	}
	is("s1")
	for _, change := range []struct {
		by   func(context.Context, string) *query.Error
		want string
	}{{all.Load, "s0 s0:1 s1"}, {all.Load, "s0 s0:1 s1"}, {all.Unload, "s1"}, {all.Unload, "s1"}, {all.Load, "s0 s0:1 s1"}} {
		if err := change.by(t.Context(), "s0"); err != nil {
			t.Fatal(err)
		}
		is(change.want)
	}
	for _, name := range []string{"none", "s0:1", ""} {
		if err := all.Load(t.Context(), name); err == nil || err.Status != http.StatusNotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
	r.Daemon.config.update(func(c *config.Config) { c.Load = "start" })
	if load, unload := all.Load(t.Context(), "s0"), all.Unload(t.Context(), "s0"); load != query.ErrNotLoadable || unload != query.ErrNotLoadable {
		t.Errorf("%v, %v", load, unload)
	}
}

// A model of a repository is read again before it is loaded, and nothing else is changed.
func TestLoadReadsAgain(t *testing.T) {
	r, all := repositoryRig(t)
	all.reread = func(string) (config.Config, error) { return config.Config{}, errors.New("no such model") }
	if err := all.Load(t.Context(), "new"); err == nil || err.Status != http.StatusBadRequest || !strings.Contains(err.Message, `"new" cannot be loaded: no such model`) {
		t.Errorf("%v", err)
	}
	all.reread = func(model string) (config.Config, error) {
		c := r.Config()
		s := *c.Service("s1")
		s.Name, s.Version = model, 7
		c.Services = append(slices.Clone(c.Services), s)
		return c, nil
	}
	done := make(chan *query.Error, 1)
	go func() { done <- all.Load(t.Context(), "new") }()
	id := r.joins()
	left, leave := context.WithCancel(t.Context())
	leave()
	if err := all.Load(left, "new"); err == nil || err.Reason != query.ReasonLoading {
		t.Errorf("a client that has left: %v", err)
	}
	r.workers.Revive(id, fakeworkers.Operators)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s := r.backend.Service([]byte("new")); s == nil || !s.Ready() || s.Version != "7" {
		t.Errorf("%+v", s)
	}
}

// When the highest version goes, the next one answers all the time: first under its own name,
// then under the plain one.
func TestHighestVersionGoes(t *testing.T) {
	r, _ := repositoryRig(t)
	find := func() *query.Service {
		t.Helper()
		q := &query.Server{Host: r.backend}
		s, err := q.Find([]byte("s0"), []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if find().Name != "s0:1" {
		t.Errorf("at first it is %s", find().Name)
	}
	r.begin(func(c *config.Config) {
		c.Services = slices.DeleteFunc(c.Services, func(s config.Service) bool { return s.Name == "s0:1" })
		c.Service("s0").Version, c.Service("s0").Threads = 1, 3 // as if it were another model
	})
	id := r.joins()
	if find().Name != "s0:1" {
		t.Errorf("while it loads it is %s", find().Name)
	}
	r.workers.Revive(id, fakeworkers.Operators)
	done := r.end()
	if find().Name != "s0" || !slices.Equal(done.Removed, []string{"s0:1"}) || !slices.Equal(done.Replaced, []string{"s0"}) || len(done.Failed) > 0 {
		t.Errorf("it is %s after %+v", find().Name, done)
	}
	if got := r.names(); got != "s0 s1" {
		t.Errorf("the services are %s", got)
	}
}

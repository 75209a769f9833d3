package daemon

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

// TestReloadKeepsThePredictor replaces a model while a predictor serves: the
// others are predicted as before, and the new model is unknown.
func TestReloadKeepsThePredictor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.predictor.json")
	if err := fakeworkers.Predictor(3).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	r := &reloadRig{rig: startRig(t, rigOptions{services: 3, device: &fakeworkers.Calm, change: func(c *config.Config) { c.Predictor.File = path }}),
		result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	r.await("serving")
	r.begin(func(c *config.Config) { c.Services[1].Threads = 7 })
	id := r.joins()
	r.workers.ReviveAs(id, fakeworkers.Operators, "another model")
	if done := r.end(); len(done.Failed) > 0 {
		t.Fatalf("%+v", done)
	}
	r.gone()
	p := r.predictor()
	if p.Phase != "serving" {
		t.Fatalf("%s: %s", p.Phase, p.Reason)
	}
	says(t, p.Reason, "does not cover s1")
	if n := strings.Count(p.Reason, "s1"); n != 1 {
		t.Errorf("it is told %d times: %s", n, p.Reason)
	}
	if !slices.Equal(p.UnknownServices, []string{"s1"}) {
		t.Errorf("unknown services: %q", p.UnknownServices)
	}
	says(t, p.Remedy, "overlapd profile", "predictor.file")
	r.serves()
	// The next reload of it takes its place again, while the one before still
	// answers: it is named once.
	held := r.backend.Service([]byte("s1"))
	if !held.Hold() {
		t.Fatal("s1 takes no requests")
	}
	r.begin(func(c *config.Config) { c.Services[1].Threads = 8 })
	r.workers.ReviveAs(r.joins(), fakeworkers.Operators, "a third model")
	r.end()
	if p := r.predictor(); !slices.Equal(p.UnknownServices, []string{"s1"}) || strings.Count(p.Reason, "s1") != 1 {
		t.Errorf("%q: %s", p.UnknownServices, p.Reason)
	}
	held.LetGo()
}

// TestReloadOnParts reloads a daemon on a divided GPU: each service comes
// and goes on the instance where it has its place, and gives its memory back.
func TestReloadOnParts(t *testing.T) {
	r := newGPURig(t, "a", "b", "c", "d").divide(
		mig.Want{Profile: "3g.40gb", Services: []string{"a", "c"}}, mig.Want{Profile: "2g.20gb", Services: []string{"b", "d"}})
	r.start()
	r.eventually("ready", r.Ready)
	before := r.devices[1].memory.String()
	stop := r.load()
	reload := func(change func(*config.Config)) *config.Reloaded {
		t.Helper()
		next := r.Daemon.Config()
		next.Services = slices.Clone(next.Services)
		change(&next)
		done, err := r.Reload(context.Background(), next, nil)
		if err != nil || len(done.Failed) > 0 {
			t.Fatalf("%+v, %v\n%s", done, err, r.log)
		}
		return done
	}
	done := reload(func(c *config.Config) {
		c.Services[0].Threads = 3 // a has another worker then
		e := c.Services[1]
		e.Name = "e"
		c.Services = append(c.Services, e)
	})
	if !slices.Equal(done.Added, []string{"e"}) || !slices.Equal(done.Replaced, []string{"a"}) || len(done.Restart) > 0 {
		t.Errorf("%+v", done)
	}
	if status, text := r.ask(http.DefaultClient, "e"); status != http.StatusOK {
		t.Errorf("e: %d %s", status, text)
	}
	o := r.overview()
	if len(o.Services) != 5 || !slices.Equal(o.GPU[1].Services, []string{"b", "d", "e"}) || len(o.Devices) != 2 {
		t.Errorf("%+v", o)
	}
	if now := r.devices[1].memory.String(); !strings.Contains(now, "  e  ") {
		t.Errorf("memory of the second instance:\n%s", now)
	}
	reload(func(c *config.Config) {
		c.Services = slices.Delete(c.Services, 4, 5)
	})
	if stop() == 0 {
		t.Error("no query was answered")
	}
	r.eventually("the memory is given back", func() bool { return r.devices[1].memory.String() == before })
	if status, _ := r.ask(http.DefaultClient, "e"); status != http.StatusNotFound {
		t.Errorf("e: %d", status)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestReloadReadsTokensAgain changes who may ask. A file that cannot be used
// changes nothing.
func TestReloadReadsTokensAgain(t *testing.T) {
	d := serveEmulated(t, emulatedConfig(t, func(c *config.Config) { c.Access.TokenFile = tokenFile(t, testToken) }))
	const next = "0123456789abcdef-next"
	write := func(text string) {
		writeFile(t, d.Config().Access.TokenFile, text)
	}
	write("short\n")
	level := zerolog.GlobalLevel() // which a reload sets
	defer func() { zerolog.SetGlobalLevel(level) }()
	if done, err := d.Reload(context.Background(), d.Config(), nil); !errors.Is(err, access.ErrTokens) || done != nil {
		t.Errorf("%+v, %v", done, err)
	}
	if !d.access.Allows([]byte("Bearer " + testToken)) {
		t.Error("the old token is not taken any more")
	}
	write(next + "\n")
	if _, err := d.Reload(context.Background(), d.Config(), nil); err != nil {
		t.Error(err)
	}
	if !d.access.Allows([]byte("Bearer "+next)) || d.access.Allows([]byte("Bearer "+testToken)) {
		t.Error("the new token is not the one that is taken")
	}
}

// A service that cannot be added, as when no memory file can be made for it,
// leaves nothing behind: the predictor serves on when another goes.
func TestReloadAfterAServiceThatCannotBeAdded(t *testing.T) {
	r := startRig(t, rigOptions{services: 3, device: &fakeworkers.Calm, dir: put(t, fakeworkers.Predictor(3))})
	rr := &reloadRig{rig: r, result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	r.await("serving")
	r.workers.Be(fakeworkers.Full, true)
	if done := rr.reload(func(c *config.Config) { c.Services = append(c.Services, added("new")) }); done.Failed["new"] == "" {
		t.Fatalf("%+v", done)
	}
	rr.reload(func(c *config.Config) { c.Services = c.Services[:2] })
	rr.gone()
	if p := r.predictor(); p.Phase != "serving" {
		t.Errorf("%s: %s", p.Phase, p.Reason)
	}
	r.serves()
}

// TestReloadOfACut replaces a service whose model stays, but is cut otherwise:
// that is another model to the predictor, and no reason to do without it.
func TestReloadOfACut(t *testing.T) {
	r := startRig(t, rigOptions{services: 3, device: &fakeworkers.Calm, dir: put(t, fakeworkers.Predictor(3))})
	rr := &reloadRig{rig: r, result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	r.await("serving")
	rr.begin(func(c *config.Config) { c.Services[1].Cut = fakeworkers.Operators + 1 })
	r.workers.ReviveAs(rr.joins(), fakeworkers.Operators+1, fakeworkers.Hash(1, fakeworkers.Operators))
	if done := rr.end(); len(done.Failed) > 0 {
		t.Fatalf("%+v", done)
	}
	rr.gone()
	p := r.predictor()
	if p.Phase != "serving" {
		t.Errorf("%s: %s", p.Phase, p.Reason)
	}
	says(t, p.Reason, "does not cover s1")
	r.serves()
}

package mps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/fakes/fakemps"
)

func TestControlDies(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	c := start(t, o)
	server, pid := serverOf(t, c), c.State().PID
	kill(t, pid)
	dead := await(t, c, ControlDied)
	if dead.PID != pid || !errors.Is(dead.Err, ErrExited) || !strings.Contains(dead.Err.Error(), "signal: killed") ||
		!strings.Contains(dead.Err.Error(), "Starting new server") {
		t.Errorf("%+v", dead)
	}
	again := await(t, c, Restarted)
	if s := c.State(); again.Starts != 2 || again.PID == pid || s.Phase != PhaseRunning || s.PID != again.PID || s.Err != nil {
		t.Errorf("%+v, state %+v", again, s)
	}
	if alive(server) {
		t.Error("the server outlived its daemon")
	}
	if err := healthy(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// A dead server takes its clients along; the daemon stays and starts another
// for the next client.
func TestServerDies(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	c := start(t, o)
	client, err := fakemps.Connect(o.pipe())
	if err != nil {
		t.Fatal(err)
	}
	server, pid := await(t, c, ServerActive).PID, c.State().PID
	kill(t, server)
	if dead := await(t, c, ServerDied); dead.PID != server {
		t.Errorf("%+v, server %d", dead, server)
	}
	<-client.Lost()
	client.Close()
	if s := c.State(); s.PID != pid || s.Phase != PhaseRunning || len(s.Servers) > 0 {
		t.Errorf("state %+v", s)
	}
	var next *fakemps.Client
	eventually(t, "a new server", func() bool {
		next, err = fakemps.Connect(o.pipe())
		return err == nil
	})
	defer next.Close()
	if again := await(t, c, ServerActive); again.PID != next.Server || again.PID == server {
		t.Errorf("%+v, client has %d", again, next.Server)
	}
}

// A look that began before a server's end lists it once more.
func TestDeadServerIsListed(t *testing.T) {
	c := newControl(Options{}, "", "/d")
	s := newSupervisor(c)
	one := server{pid: pidMax, status: StatusActive, user: 1}
	two := server{pid: pidMax - 1, status: StatusActive, user: 1}
	s.judge(look{servers: []server{one}})
	s.dead[one.pid] = true
	s.lose(s.servers[one.pid])
	s.judge(look{servers: []server{one}})
	s.judge(look{servers: []server{one, two}})
	s.judge(look{servers: []server{two}})
	s.judge(look{servers: []server{one, two}}) // its number is used again
	close(c.events)
	want := []Event{{Kind: ServerActive, PID: one.pid}, {Kind: ServerDied, PID: one.pid}, {Kind: ServerActive, PID: two.pid}, {Kind: ServerActive, PID: one.pid}}
	for i := range want {
		if e := <-c.events; e != want[i] {
			t.Errorf("event %d: %#v, expected %#v", i, e, want[i])
		}
	}
	if e, more := <-c.events; more {
		t.Errorf("event %#v", e)
	}
}

func TestServerFaults(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	c := start(t, o)
	client, err := fakemps.Connect(o.pipe())
	if err != nil {
		t.Fatal(err)
	}
	await(t, c, ServerActive)
	if err := fakemps.Fault(o.pipe(), client.Server); err != nil {
		t.Fatal(err)
	}
	if e := await(t, c, ServerFaulted); e.PID != client.Server {
		t.Errorf("%+v", e)
	}
	// A command fails now and then where the machine has much to do.
	eventually(t, "the server says so", func() bool {
		s := c.State().Servers
		return len(s) == 1 && statusOf(c, s[0]) == StatusFault
	})
	if _, err := fakemps.Connect(o.pipe()); !errors.Is(err, fakemps.ErrNotReady) {
		t.Error(err)
	}
	client.Close()
	if e := await(t, c, ServerActive); e.PID != client.Server {
		t.Errorf("%+v", e)
	}
	if err := healthy(t.Context(), c); err != nil {
		t.Error(err)
	}
}

func TestServerStartsSlowly(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	behave(t, o, "slow")
	c := start(t, o)
	if err := startServer(t.Context(), c.Console()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is known", func() bool { return len(c.State().Servers) == 1 })
	eventually(t, "it says that it starts", func() bool { return statusOf(c, c.State().Servers[0]) == StatusStarting })
	select {
	case e := <-c.Events():
		t.Errorf("event %+v of a server that takes no client", e)
	default:
	}
}

// A daemon that does not answer is told of and not killed: its clients work on.
func TestControlHangs(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	o.CommandTimeout = time.Second // which quit has, too, when it stops
	c := start(t, o)
	pid := c.State().PID
	behave(t, o, "hang get_server_list")
	if e := await(t, c, Unresponsive); !errors.Is(e.Err, ErrNoAnswer) {
		t.Errorf("%+v", e)
	}
	if err := healthy(t.Context(), c); !errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
	if !alive(pid) || c.State().PID != pid {
		t.Error("it was killed")
	}
	behave(t, o)
	eventually(t, "it answers again", func() bool { return healthy(t.Context(), c) == nil })
}

func TestGiveUp(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	o.RestartLimit = 3
	c := start(t, o)
	behave(t, o, "exit no GPU any more")
	kill(t, c.State().PID)
	for i := range 1 + o.RestartLimit {
		dead := await(t, c, ControlDied)
		if i > 0 && (!errors.Is(dead.Err, ErrNotReady) || !strings.Contains(dead.Err.Error(), "no GPU any more")) {
			t.Errorf("death %d: %+v", i, dead)
		}
	}
	if e := await(t, c, GaveUp); !errors.Is(e.Err, ErrRestartLimit) || !strings.Contains(e.Err.Error(), "no GPU any more") {
		t.Errorf("%+v", e)
	}
	if err := healthy(t.Context(), c); !errors.Is(err, ErrRestartLimit) {
		t.Error(err)
	}
}

// Nobody receives the events: the last ones are there.
func TestEventsAreBounded(t *testing.T) {
	c := &Control{events: make(chan Event, eventsMax)}
	for i := range 3 * eventsMax {
		c.emit(Event{Kind: ServerDied, PID: i})
	}
	if n := len(c.events); n != eventsMax {
		t.Errorf("%d events wait", n)
	}
	if e := <-c.events; e.PID != 2*eventsMax {
		t.Errorf("the oldest is %+v", e)
	}
}

func TestExisting(t *testing.T) {
	other := newOptions(t)
	pid := alien(t, other)
	o := other
	o.Directory, o.Device = other.pipe(), ""
	c, err := Existing(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.State(); s.Phase != PhaseRunning || s.PID != 0 {
		t.Errorf("state %+v", s)
	}
	server := serverOf(t, c)
	kill(t, pid)
	if e := await(t, c, ControlDied); !errors.Is(e.Err, ErrNoDaemon) || e.PID != 0 {
		t.Errorf("%+v", e)
	}
	if err := healthy(t.Context(), c); !errors.Is(err, ErrNoDaemon) {
		t.Error(err)
	}
	eventually(t, "the server dies", func() bool { return !alive(server) })
	again := alien(t, other)
	if e := await(t, c, Restarted); e.Starts != 2 {
		t.Errorf("%+v", e)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	t.Setenv(pipeVariable, other.pipe()) // where a client would look
	o.Directory = ""
	if c, err = Existing(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if !alive(again) {
		t.Error("the other's daemon was stopped")
	}
	if _, err := os.Stat(filepath.Join(other.pipe(), "control")); err != nil {
		t.Error(err)
	}
}

func TestExistingIsNotThere(t *testing.T) {
	o := newOptions(t)
	if _, err := Existing(t.Context(), o); !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), "start one there") {
		t.Error(err)
	}
	pipe := o.pipe()
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", pipe)
	o.Directory = ""
	if _, err := Existing(t.Context(), o); !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), pipe) {
		t.Error(err)
	}
}

func TestCheckServers(t *testing.T) {
	for name, test := range map[string]struct {
		server server
		want   error
	}{
		"ours":           {server{pid: 1, status: StatusActive, user: 1000}, nil},
		"several users'": {server{pid: 1, status: StatusActive, user: 0}, nil},
		"unknown user":   {server{pid: 1, status: StatusActive, user: -1}, nil},
		"another's":      {server{pid: 1, status: StatusActive, user: 1001}, ErrUser},
		"faulted":        {server{pid: 1, status: StatusFault, user: 1000}, nil},
	} {
		if err := checkServers([]server{test.server}, 1000); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// statusOf asks for the status of a server, "" if it has none.
func statusOf(c *Control, server int) string {
	status, _ := c.Console().Status(context.Background(), server)
	return status
}

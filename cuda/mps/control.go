package mps

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/overlapd/overlapd/executor/child"
)

// What errors of this package wrap.
var (
	// ErrNoProgram is returned when there is no nvidia-cuda-mps-control.
	ErrNoProgram = errors.New("mps: no MPS control program")

	// ErrDirectory is returned when the directory cannot be made private.
	ErrDirectory = errors.New("mps: unusable directory")

	// ErrInUse is returned by Start when another control has the directory.
	ErrInUse = errors.New("mps: directory is in use")

	// ErrNotReady is returned by Start when the control daemon ended early or
	// did not answer in time.
	ErrNotReady = errors.New("mps: control daemon did not get ready")

	// ErrNoDaemon is returned when no control daemon serves the directory.
	ErrNoDaemon = errors.New("mps: no control daemon")

	// ErrNoAnswer is returned when the control daemon took too long.
	ErrNoAnswer = errors.New("mps: control daemon does not answer")

	// ErrCommand is returned when the control program failed otherwise.
	ErrCommand = errors.New("mps: command failed")

	// ErrOutput is returned when the control program printed what is not
	// known, or too much. The error quotes it.
	ErrOutput = errors.New("mps: output is not understood")

	// ErrNoServer is returned when there is no server, or not the one named.
	ErrNoServer = errors.New("mps: no such server")

	// ErrExited is the reason when the control daemon ended by itself or was
	// killed from outside.
	ErrExited = errors.New("mps: control daemon exited")

	// ErrUser is returned by Existing when a server serves another
	// user.
	ErrUser = errors.New("mps: server serves another user")

	// ErrRestartLimit is the reason when the daemon was given up.
	ErrRestartLimit = errors.New("mps: control daemon died too often")

	// ErrKilled is returned by Stop when the daemon had to be killed.
	ErrKilled = errors.New("mps: control daemon was killed")
)

// Control is one control daemon, ours or somebody else's. All methods may be
// called at the same time.
type Control struct {
	opts    Options
	console *Console
	dir     *directory // nil if the daemon is not ours

	events chan Event
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines
	ended  chan struct{}  // closed when the supervisor has ended
	err    error          // what Stop returns; written before ended is closed

	mu struct {
		sync.Mutex
		state State
	}
}

func newControl(opts Options, program, pipe string) *Control {
	c := &Control{
		opts:    opts,
		console: newConsole(program, pipe, opts.CommandTimeout),
		events:  make(chan Event, eventsMax),
		ended:   make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start runs a control daemon for one device and returns once it answers. What
// a daemon of an earlier overlapd left in the directory is ended first.
func Start(ctx context.Context, opts Options) (*Control, error) {
	opts = opts.withDefaults()
	program, err := findProgram(opts.Program)
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(opts.Directory)
	if err != nil {
		return nil, err
	}
	c := newControl(opts, program, dir.pipe())
	c.dir = dir
	p, err := c.launch(ctx)
	if err != nil {
		c.cancel()
		c.wg.Wait()
		return nil, errors.Join(err, dir.close())
	}
	c.running(p)
	c.wg.Go(func() { newSupervisor(c).run(p) })
	return c, nil
}

// Existing attaches to a control daemon that somebody else runs, after asking
// it once. It is watched, and never stopped.
func Existing(ctx context.Context, opts Options) (*Control, error) {
	opts = opts.withDefaults()
	program, err := findProgram(opts.Program)
	if err != nil {
		return nil, err
	}
	// Workers may stand elsewhere, and must find it too.
	pipe, err := filepath.Abs(cmp.Or(opts.Directory, os.Getenv(pipeVariable), DefaultPipe))
	if err != nil {
		return nil, err
	}
	if err := checkExisting(pipe); err != nil {
		return nil, err
	}
	c := newControl(opts, program, pipe)
	found := c.look(ctx)
	if err := errors.Join(found.err, checkServers(found.servers, os.Geteuid())); err != nil {
		c.cancel()
		return nil, err
	}
	c.running(nil)
	c.wg.Go(func() { newSupervisor(c).run(nil) })
	return c, nil
}

// Console returns the console of this daemon.
func (c *Control) Console() *Console { return c.console }

// Events returns the channel of all events. It is closed by Stop.
func (c *Control) Events() <-chan Event { return c.events }

// State returns how the daemon was when it was last looked at.
func (c *Control) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.mu.state
	state.Servers = append([]int{}, state.Servers...)
	if state.Err != nil {
		state.Fault = state.Err.Error()
	}
	return state
}

func (c *Control) change(f func(*State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.mu.state)
}

// running is called when the daemon serves.
func (c *Control) running(p *child.Process) {
	c.change(func(s *State) {
		s.Phase, s.PID, s.Err = PhaseRunning, 0, nil
		if p != nil {
			s.PID = p.PID()
		}
		s.Starts++
	})
}

// ClientEnv returns the whole environment of a worker that shall be a client
// of this daemon: ours, without what that says of devices and MPS.
func (c *Control) ClientEnv(l Limits) []string {
	env := []string{pipeVariable + "=" + c.console.pipe}
	if c.dir != nil {
		env = c.dir.variables()
	}
	// A UUID means the same device to the daemon and to its clients; numbers
	// are counted anew by the server.
	if device := cmp.Or(c.opts.Device, os.Getenv(deviceVariable)); device != "" {
		env = append(env, deviceVariable+"="+device)
	}
	return environment(append(env, l.variables()...)...)
}

// TerminateClient ends the work of a process on the device, so that it can be
// killed without harm to the other clients of its server. It does nothing to a
// process that is no client.
func (c *Control) TerminateClient(ctx context.Context, pid int) error {
	servers, err := c.console.Servers(ctx)
	if err != nil {
		return err
	}
	for _, server := range servers {
		clients, err := c.console.ClientPIDs(ctx, server)
		if err == nil && slices.Contains(clients, pid) {
			err = c.console.TerminateClient(ctx, server, pid)
		}
		if err != nil && !errors.Is(err, ErrNoServer) {
			return err
		}
	}
	return nil
}

// Stop ends a daemon of ours with its servers, waits for all goroutines and
// gives the directory up. It returns ErrKilled if the daemon did not end when
// asked, which it does not while workers are connected: end them before. A
// second call returns the same.
func (c *Control) Stop() error {
	c.cancel()
	<-c.ended
	c.wg.Wait()
	return c.err
}

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

// Errors that the errors of this package wrap.
var (
	// ErrNoProgram is returned if nvidia-cuda-mps-control is not installed.
	ErrNoProgram = errors.New("mps: no MPS control program")

	// ErrDirectory is returned if the directory cannot be made private.
	ErrDirectory = errors.New("mps: unusable directory")

	// ErrInUse is returned by Start if another Control uses the directory.
	ErrInUse = errors.New("mps: directory is in use")

	// ErrNotReady is returned by Start if the control daemon exited or did not answer
	// in time.
	ErrNotReady = errors.New("mps: control daemon did not get ready")

	// ErrNoDaemon is returned if no control daemon serves the directory.
	ErrNoDaemon = errors.New("mps: no control daemon")

	// ErrNoAnswer is returned if the control daemon took too long to answer.
	ErrNoAnswer = errors.New("mps: control daemon does not answer")

	// ErrCommand is returned if the control program failed for another reason.
	ErrCommand = errors.New("mps: command failed")

	// ErrOutput is returned if the control program printed something unknown, or too
	// much. The error quotes it.
	ErrOutput = errors.New("mps: output is not understood")

	// ErrNoServer is returned if there is no server, or not the one named.
	ErrNoServer = errors.New("mps: no such server")

	// ErrExited is the reason if the control daemon exited or was killed from
	// outside.
	ErrExited = errors.New("mps: control daemon exited")

	// ErrUser is returned by Existing if a server serves another user.
	ErrUser = errors.New("mps: server serves another user")

	// ErrRestartLimit is the reason if the daemon died too often to be restarted.
	ErrRestartLimit = errors.New("mps: control daemon died too often")

	// ErrKilled is returned by Stop if the daemon had to be killed.
	ErrKilled = errors.New("mps: control daemon was killed")
)

// Control is one control daemon, ours or somebody else's. All methods are safe for
// concurrent use.
type Control struct {
	opts    Options
	console *console

	// dir is nil if the daemon is not ours.
	dir *directory

	events chan Event

	// ctx ends with Stop.
	ctx    context.Context
	cancel context.CancelFunc

	// wg counts all goroutines. ended is closed when the supervisor has ended; err, which
	// Stop returns, is written before that.
	wg    sync.WaitGroup
	ended chan struct{}
	err   error

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

// Start runs a control daemon for one device and returns once it answers. It first ends
// what a daemon of an earlier overlapd left in the directory.
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

// Existing attaches to a control daemon that somebody else runs, and returns after it has
// answered once. The daemon is watched but never stopped.
func Existing(ctx context.Context, opts Options) (*Control, error) {
	opts = opts.withDefaults()
	program, err := findProgram(opts.Program)
	if err != nil {
		return nil, err
	}
	// Workers may have another working directory, so the path must be absolute.
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
func (c *Control) Console() *console { return c.console }

// Events returns the channel of all events. Stop closes it.
func (c *Control) Events() <-chan Event { return c.events }

// State returns the condition of the daemon at the last poll.
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

// running records that the daemon serves. p is nil if it is not ours.
func (c *Control) running(p *child.Process) {
	c.change(func(s *State) {
		s.Phase, s.PID, s.Err = PhaseRunning, 0, nil
		if p != nil {
			s.PID = p.PID()
		}
		s.Starts++
	})
}

// ClientEnv returns the complete environment of a worker that is a client of this daemon.
// It is this process's environment, except for its settings of devices and MPS.
func (c *Control) ClientEnv(l Limits) []string {
	env := []string{pipeVariable + "=" + c.console.pipe}
	if c.dir != nil {
		env = c.dir.variables()
	}
	// A UUID means the same device to the daemon and to its clients. The server
	// renumbers devices.
	if device := cmp.Or(c.opts.Device, os.Getenv(deviceVariable)); device != "" {
		env = append(env, deviceVariable+"="+device)
	}
	return environment(append(env, l.variables()...)...)
}

// TerminateClient ends the work of a process on the device, so that killing the process
// does not harm the other clients of its server. It does nothing to a process that is not
// a client.
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

// Stop ends a daemon of ours with its servers, waits for all goroutines and releases the
// directory. It returns ErrKilled if the daemon did not end when asked. A daemon does not
// end while clients are connected, so end the workers first. A second call returns the
// same.
func (c *Control) Stop() error {
	c.cancel()
	<-c.ended
	c.wg.Wait()
	return c.err
}

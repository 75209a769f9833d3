package mps

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/overlapd/overlapd/executor/child"
)

const (
	serversMax = 16 // one daemon has no more
	missesMax  = 3  // looks in a row may fail before there is an event
)

// supervisor is the goroutine that owns a daemon's life.
type supervisor struct {
	*Control
	restarts child.Restarts
	servers  map[int]*server
	gone     chan *server // ended, as the kernel says
	dead     map[int]bool // ended, and maybe still listed: the daemon learns of it later
	looks    chan look
	looking  bool
	misses   int
}

// look is what the console said.
type look struct {
	servers []server
	err     error
}

func newSupervisor(c *Control) *supervisor {
	return &supervisor{
		Control: c, restarts: child.Restarts{Policy: c.opts.Policy},
		servers: map[int]*server{}, dead: map[int]bool{}, gone: make(chan *server, serversMax), looks: make(chan look, 1),
	}
}

// run watches until Stop. p is nil if the daemon is not ours.
func (s *supervisor) run(p *child.Process) {
	defer close(s.ended)
	defer close(s.events)
	defer s.change(func(state *State) { state.Phase, state.PID = PhaseStopped, 0 })
	s.err = s.live(p)
	s.forget()
	if s.dir != nil {
		s.err = errors.Join(s.err, s.dir.close())
	}
}

// live watches one process after the other.
func (s *supervisor) live(p *child.Process) error {
	for {
		stopped := s.watch(p)
		switch {
		case p == nil:
			return nil
		case stopped:
			return s.end(p)
		}
		s.bury(p)
		s.forget()
		if p = s.revive(time.Since(p.Began)); p == nil {
			return s.killRest()
		}
	}
}

// watch returns when the process has ended, or when Stop is called.
func (s *supervisor) watch(p *child.Process) (stopped bool) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer s.cancelLook(cancel)
	var exited <-chan struct{}
	if p != nil {
		exited = p.Done()
	}
	ticker := time.NewTicker(s.opts.Poll)
	defer ticker.Stop()
	s.ask(ctx)
	for {
		select {
		case <-exited:
			return false
		case <-s.ctx.Done():
			return true
		case one := <-s.gone:
			s.dead[one.pid] = true
			s.lose(one)
		case <-ticker.C:
			s.ask(ctx)
		case found := <-s.looks:
			s.looking = false
			s.judge(found)
		}
	}
}

// ask looks, unless it still does.
func (s *supervisor) ask(ctx context.Context) {
	if s.looking {
		return
	}
	s.looking = true
	s.wg.Go(func() { s.looks <- s.look(ctx) })
}

func (s *supervisor) cancelLook(cancel context.CancelFunc) {
	cancel()
	if s.looking {
		<-s.looks
		s.looking = false
	}
}

// end stops a process: first it is asked, at last it is killed.
func (s *supervisor) end(p *child.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.StopTimeout)
	defer cancel()
	began := time.Now()
	_ = s.console.Quit(ctx) // what counts is whether it ends
	if child.Within(p.Done(), s.opts.StopTimeout-time.Since(began)) {
		return s.killRest()
	}
	err := fmt.Errorf("%w: process %d did not end within %v after quit; were its clients still running?", ErrKilled, p.PID(), s.opts.StopTimeout)
	return errors.Join(err, s.kill(p))
}

// bury emits the event of a process that ended by itself.
func (s *supervisor) bury(p *child.Process) {
	err := fmt.Errorf("%w: process %d of device %s (%v)%s", ErrExited, p.PID(), s.opts.Device, p.Status(), s.lastWords(p))
	err = errors.Join(err, s.killRest())
	s.change(func(state *State) { state.Phase, state.PID, state.Err = PhaseRestarting, 0, err })
	s.emit(Event{Kind: ControlDied, PID: p.PID(), Err: err})
}

// revive starts the daemon again after a pause. It returns nil when Stop is
// called.
func (s *supervisor) revive(ranFor time.Duration) *child.Process {
	for {
		s.pause(ranFor)
		if s.ctx.Err() != nil {
			return nil
		}
		p, err := s.launch(s.ctx)
		if err == nil {
			s.running(p)
			s.emit(Event{Kind: Restarted, PID: p.PID(), Starts: s.State().Starts})
			return p
		}
		if s.ctx.Err() != nil {
			return nil
		}
		s.change(func(state *State) { state.Phase, state.PID, state.Err = PhaseRestarting, 0, err })
		s.emit(Event{Kind: ControlDied, Err: err})
		ranFor = 0
	}
}

// pause waits before a restart, without end if the daemon is given up. It
// returns early when Stop is called.
func (s *supervisor) pause(ranFor time.Duration) {
	var over <-chan time.Time
	if delay, ok := s.restarts.Next(time.Now(), ranFor); ok {
		over = time.After(delay)
	} else {
		s.giveUp()
	}
	select {
	case <-over:
	case <-s.ctx.Done():
	}
}

func (s *supervisor) giveUp() {
	err := fmt.Errorf("%w: more than %d times within %v; mend the cause, then restart overlapd: %w",
		ErrRestartLimit, s.opts.RestartLimit, s.opts.RestartWindow, s.State().Err)
	s.change(func(state *State) { state.Phase, state.Err = PhaseGivenUp, err })
	s.emit(Event{Kind: GaveUp, Err: err})
}

// launch starts a daemon of ours and waits until it answers.
func (c *Control) launch(ctx context.Context) (*child.Process, error) {
	sweeping, done := context.WithTimeout(ctx, c.opts.StopTimeout)
	defer done()
	if err := errors.Join(sweep(sweeping, c.console, c.dir), c.dir.clear(), c.dir.rotate()); err != nil {
		return nil, err
	}
	cmd := exec.Command(c.console.program, "-f")
	cmd.Env = environment(append(c.dir.variables(), deviceVariable+"="+c.opts.Device)...)
	p, err := child.Start(cmd, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	if err := c.awaitReady(ctx, p); err != nil {
		c.kill(p)
		return nil, fmt.Errorf("%w: %w%s", ErrNotReady, err, c.lastWords(p))
	}
	return p, nil
}

// Pauses between questions until the first answer.
const (
	readyDelayMin = 5 * time.Millisecond
	readyDelayMax = 250 * time.Millisecond
)

// awaitReady asks until the daemon answers, ends, or has taken too long.
func (c *Control) awaitReady(ctx context.Context, p *child.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.ReadyTimeout, fmt.Errorf("it did not answer within %v", c.opts.ReadyTimeout))
	defer cancel()
	for delay := readyDelayMin; ; delay = min(2*delay, readyDelayMax) {
		_, err := c.console.Servers(ctx)
		if err == nil || errors.Is(err, ErrOutput) {
			return err
		}
		select {
		case <-p.Done():
			return fmt.Errorf("it ended at once (%s)", p.Status())
		case <-ctx.Done():
			if errors.Is(err, ErrNoDaemon) {
				return context.Cause(ctx)
			}
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(delay):
		}
	}
}

// errorLines is how many lines of what the daemon said an error quotes.
const errorLines = 6

// kill ends a daemon at once, with all that serves its directory.
func (c *Control) kill(p *child.Process) error {
	p.Kill()
	<-p.Done()
	return c.killRest()
}

// killRest ends servers whose daemon is gone. It also works during Stop.
func (c *Control) killRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.StopTimeout)
	defer cancel()
	return killLeftovers(ctx, c.dir)
}

// lastWords quotes what a daemon printed last, else what it logged.
func (c *Control) lastWords(p *child.Process) string {
	if lines := child.Excerpt(p.Tail(), errorLines); lines != "" {
		return "; it printed: " + lines
	}
	if lines := child.Excerpt(c.dir.tail("control.log"), errorLines); lines != "" {
		return "; control.log ends: " + lines
	}
	return "; it printed nothing; try it by hand: " + pipeVariable + "=" + c.console.pipe + " " + c.console.program + " -f"
}

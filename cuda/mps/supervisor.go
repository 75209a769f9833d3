package mps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/child"
)

const (
	// serversMax limits the servers of one control daemon. A longer list is rejected
	// as faulty output.
	serversMax = 16

	// missesMax is how many polls must fail in a row before an event is sent.
	missesMax = 3
)

// supervisor is the goroutine that owns a daemon's life.
type supervisor struct {
	*Control
	restarts child.Restarts
	servers  map[int]*server

	// gone receives servers whose end the kernel has reported.
	gone chan *server

	// dead has the servers that have ended but may still be listed, because the daemon
	// notices their end later.
	dead map[int]bool

	// misses counts the failed polls in a row.
	misses int
}

type look struct {
	servers []server
	err     error
}

func newSupervisor(c *Control) *supervisor {
	return &supervisor{
		Control: c, restarts: child.Restarts{Policy: c.opts.Policy},
		servers: map[int]*server{}, dead: map[int]bool{}, gone: make(chan *server, serversMax),
	}
}

// run supervises the daemon until Stop. p is nil if the daemon is not ours.
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

// live watches one process after another, restarting the daemon in between.
func (s *supervisor) live(p *child.Process) error {
	for {
		stopped := s.watch(p)
		switch {
		case p == nil:
			return nil
		case stopped:
			return s.end(p)
		}
		err := fmt.Errorf("%w: process %d of device %s (%v)%s", ErrExited, p.PID(), s.opts.Device, p.Status(), s.lastWords(p))
		s.died(p.PID(), errors.Join(err, s.killRest()))
		s.forget()
		if p = s.revive(time.Since(p.Began)); p == nil {
			return s.killRest()
		}
	}
}

// watch returns when the process has ended, or when Stop is called. It is the only place
// where events of servers are processed.
func (s *supervisor) watch(p *child.Process) (stopped bool) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var exited <-chan struct{}
	if p != nil {
		exited = p.Done()
	}
	looks := make(chan look)
	s.wg.Go(func() { s.poll(ctx, looks) })
	for {
		select {
		case <-exited:
			return false
		case <-s.ctx.Done():
			return true
		case one := <-s.gone:
			s.dead[one.pid] = true
			s.lose(one)
		case found := <-looks:
			s.judge(found)
		}
	}
}

// poll queries the console at an interval. A query that takes longer than the interval
// delays the next one.
func (c *Control) poll(ctx context.Context, looks chan<- look) {
	for ticker := time.Tick(c.opts.Poll); ; {
		found := c.look(ctx)
		select {
		case looks <- found:
		case <-ctx.Done():
			return
		}
		select {
		case <-ticker:
		case <-ctx.Done():
			return
		}
	}
}

// end asks a process to quit, and kills it after StopTimeout.
func (s *supervisor) end(p *child.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.StopTimeout)
	defer cancel()
	began := time.Now()
	_ = s.console.Quit(ctx) // the wait below tells whether it worked
	if child.Within(p.Done(), s.opts.StopTimeout-time.Since(began)) {
		return s.killRest()
	}
	err := fmt.Errorf("%w: process %d did not end within %v after quit; were its clients still running?", ErrKilled, p.PID(), s.opts.StopTimeout)
	return errors.Join(err, s.kill(p))
}

// died records and reports the death of the daemon. pid is 0 if it could not be started or
// is not ours.
func (s *supervisor) died(pid int, err error) {
	s.change(func(state *State) { state.Phase, state.PID, state.Err = PhaseRestarting, 0, err })
	s.emit(Event{Kind: ControlDied, PID: pid, Err: err})
}

// revive restarts the daemon after the back-off, as often as needed. It returns nil when
// Stop is called.
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
		s.died(0, err)
		ranFor = 0
	}
}

// pause waits for the back-off before a restart, or forever if the restart limit is
// reached. It returns early when Stop is called.
func (s *supervisor) pause(ranFor time.Duration) {
	var over <-chan time.Time
	if delay, ok := s.restarts.Next(time.Now(), ranFor); ok {
		over = time.After(delay)
	} else {
		err := fmt.Errorf("%w: more than %d times within %v; fix the cause, then restart overlapd: %w",
			ErrRestartLimit, s.opts.RestartLimit, s.opts.RestartWindow, s.State().Err)
		s.change(func(state *State) { state.Phase, state.Err = PhaseGivenUp, err })
		s.emit(Event{Kind: GaveUp, Err: err})
	}
	select {
	case <-over:
	case <-s.ctx.Done():
	}
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

// Bounds of the growing delay between queries until the first answer.
const (
	readyDelayMin = 5 * time.Millisecond
	readyDelayMax = 250 * time.Millisecond
)

// awaitReady queries the daemon until it answers, exits, or has taken too long.
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

// errorLines is how many lines of the daemon's output an error quotes.
const errorLines = 6

// kill kills a daemon, and everything else that serves its directory.
func (c *Control) kill(p *child.Process) error {
	p.Kill()
	<-p.Done()
	return c.killRest()
}

// killRest kills servers whose daemon is gone. It does not use c.ctx, because it must work
// during Stop.
func (c *Control) killRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.StopTimeout)
	defer cancel()
	return killLeftovers(ctx, c.dir)
}

// lastWords quotes the daemon's last output, or else the end of its log.
func (c *Control) lastWords(p *child.Process) string {
	if lines := child.Excerpt(p.Tail(), errorLines); lines != "" {
		return "; it printed: " + lines
	}
	if lines := child.Excerpt(c.dir.tail("control.log"), errorLines); lines != "" {
		return "; control.log ends: " + lines
	}
	return "; it printed nothing; try it by hand: " + pipeVariable + "=" + c.console.pipe + " " + c.console.program + " -f"
}

// server is an MPS server as the console and the kernel report it.
type server struct {
	pid    int
	status string

	// user is the user it serves, -1 if that is not known.
	user int

	// process is nil if its end cannot be watched.
	process *watched
}

// judge updates the known state with the result of a poll, and emits events for the
// differences.
func (s *supervisor) judge(found look) {
	if err := found.err; err != nil {
		s.change(func(state *State) { state.Err = err })
		if s.misses++; s.misses != missesMax { // a single failure means nothing; report only once
			return
		}
		if s.dir == nil && errors.Is(err, ErrNoDaemon) {
			s.forget()
			s.died(0, err)
			return
		}
		s.emit(Event{Kind: Unresponsive, Err: err})
		return
	}
	s.misses = 0
	if s.State().Phase == PhaseRestarting { // the daemon is not ours, and its owner restarted it
		s.running(nil)
		s.emit(Event{Kind: Restarted, Starts: s.State().Starts})
	}
	listed := map[int]bool{}
	for _, one := range found.servers {
		listed[one.pid] = true
		if !s.dead[one.pid] {
			s.meet(one)
		}
	}
	maps.DeleteFunc(s.dead, func(pid int, _ bool) bool { return !listed[pid] })
	for pid, known := range s.servers {
		if !listed[pid] {
			s.lose(known)
		}
	}
	s.publish()
	s.change(func(state *State) { state.Err = nil })
}

// meet records the state of a server, and emits an event if it changed.
func (s *supervisor) meet(one server) {
	known := s.servers[one.pid]
	if known == nil {
		known = &server{pid: one.pid}
		s.servers[one.pid] = known
		s.follow(known)
	}
	before := known.status
	known.status, known.user = one.status, one.user
	switch {
	case one.status == before:
	case one.status == StatusActive:
		s.emit(Event{Kind: ServerActive, PID: one.pid})
	case one.status == StatusFault:
		s.emit(Event{Kind: ServerFaulted, PID: one.pid})
	}
}

// follow waits for the end of a server on a goroutine. If its process cannot be watched,
// polls find out.
func (s *supervisor) follow(one *server) {
	if userOf(one.pid) < 0 {
		return
	}
	w, err := watchProcess(one.pid)
	if err != nil {
		return
	}
	one.process = w
	s.wg.Go(func() {
		if !w.wait() {
			return
		}
		select {
		case s.gone <- one:
		case <-s.ctx.Done():
		}
	})
}

// lose removes a server and emits the event of its end, once.
func (s *supervisor) lose(one *server) {
	if s.servers[one.pid] != one {
		return
	}
	s.drop(one)
	s.publish()
	s.emit(Event{Kind: ServerDied, PID: one.pid})
}

func (s *supervisor) drop(one *server) {
	delete(s.servers, one.pid)
	if one.process != nil {
		one.process.close()
	}
}

// forget removes all servers without events: the event of their daemon's end covers them.
func (s *supervisor) forget() {
	for _, one := range s.servers {
		s.drop(one)
	}
	clear(s.dead)
	s.misses = 0
	s.publish()
}

// publish makes the list of servers visible to State.
func (s *supervisor) publish() {
	pids := slices.Sorted(maps.Keys(s.servers))
	s.change(func(state *State) { state.Servers = pids })
}

func (c *Control) look(ctx context.Context) (found look) {
	pids, err := c.console.Servers(ctx)
	if err != nil {
		return look{err: err}
	}
	if len(pids) > serversMax {
		return look{err: fmt.Errorf("%w: %d servers, expected at most %d", ErrOutput, len(pids), serversMax)}
	}
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		status, err := c.console.Status(ctx, pid)
		if errors.Is(err, ErrNoServer) {
			continue // it has ended since the list was made
		}
		if err != nil {
			return look{err: err}
		}
		found.servers = append(found.servers, server{pid: pid, status: status, user: userOf(pid)})
	}
	return found
}

// checkServers returns an error if a server serves a user other than self. A server of
// user 0 may serve several users.
func checkServers(servers []server, self int) error {
	for _, s := range servers {
		if s.user > 0 && s.user != self {
			return fmt.Errorf("%w: server %d serves user %d, and we are %d: MPS serves one user at a time, and our workers would wait "+
				"until the other's are gone; run overlapd as that user, or set mps mode = \"own\"", ErrUser, s.pid, s.user, self)
		}
	}
	return nil
}

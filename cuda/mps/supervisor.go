package mps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killSignal = unix.SIGKILL
	serversMax = 16 // that one daemon may have
	missesMax  = 3  // looks in a row that may fail before it is told
)

// supervisor is the goroutine that owns a daemon's life.
type supervisor struct {
	*Control
	restarts restarts
	servers  map[int]*server
	gone     chan *server // ended, as the kernel says
	looks    chan look
	looking  bool
	misses   int
}

// server is one that is watched.
type server struct {
	Server
	process *watched // nil if it cannot be watched
}

// look is what the console said.
type look struct {
	servers []Server
	err     error
}

func newSupervisor(c *Control) *supervisor {
	return &supervisor{
		Control: c, restarts: restarts{opts: &c.opts},
		servers: map[int]*server{}, gone: make(chan *server, serversMax), looks: make(chan look, 1),
	}
}

// run watches until Stop. p is nil if the daemon is not ours.
func (s *supervisor) run(p *process) {
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
func (s *supervisor) live(p *process) error {
	for {
		o, stopped := s.watch(p)
		switch {
		case p == nil:
			return nil
		case stopped:
			return s.end(p)
		case o != nil:
			_ = s.end(p)
		default:
			s.bury(p)
		}
		s.forget()
		if p = s.revive(o, time.Since(p.began)); p == nil {
			return s.killRest()
		}
	}
}

// watch returns when the process has ended, when a restart is ordered, or when
// Stop is called.
func (s *supervisor) watch(p *process) (o *order, stopped bool) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer s.cancelLook(cancel)
	var exited chan struct{}
	if p != nil {
		exited = p.exited
	}
	ticker := time.NewTicker(s.opts.Poll)
	defer ticker.Stop()
	s.ask(ctx)
	for {
		select {
		case <-exited:
			return nil, false
		case <-s.ctx.Done():
			return nil, true
		case o := <-s.orders:
			return o, false
		case dead := <-s.gone:
			s.lose(dead)
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
	s.spawn(func() { s.looks <- s.look(ctx) })
}

func (s *supervisor) cancelLook(cancel context.CancelFunc) {
	cancel()
	if s.looking {
		<-s.looks
		s.looking = false
	}
}

// look asks for all servers and their states.
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
			continue // it ended meanwhile
		}
		if err != nil {
			return look{err: err}
		}
		found.servers = append(found.servers, Server{PID: pid, Status: status, User: userOf(pid)})
	}
	return found
}

// checkServers finds what stands in the way of a client of the user self. A
// server of user 0 may be one for several users.
func checkServers(servers []Server, self int, faults bool) error {
	var errs []error
	for _, s := range servers {
		if s.User > 0 && s.User != self {
			errs = append(errs, fmt.Errorf("%w: server %d serves user %d, and we are %d: MPS serves one user at a time, and our workers would wait "+
				"until the other's are gone; run overlapd as that user, or set mps mode = \"own\"", ErrUser, s.PID, s.User, self))
		}
		if faults && s.Status == StatusFault {
			errs = append(errs, fmt.Errorf("%w: server %d takes no client until all that it has are gone: end all workers, then start them again", ErrFault, s.PID))
		}
	}
	return errors.Join(errs...)
}

// judge compares a look with what was known.
func (s *supervisor) judge(found look) {
	if found.err != nil {
		s.miss(found.err)
		return
	}
	s.misses = 0
	if s.State().Phase == PhaseRestarting { // somebody else restarted it
		s.running(nil)
		s.emit(Restarted{Starts: s.State().Starts})
	}
	listed := map[int]bool{}
	for _, one := range found.servers {
		listed[one.PID] = true
		s.meet(one)
	}
	for pid, known := range s.servers {
		if !listed[pid] {
			s.lose(known)
		}
	}
	s.publish()
	s.change(func(state *State) { state.Err = nil })
}

// miss counts a look that failed: one alone means nothing.
func (s *supervisor) miss(err error) {
	s.misses++
	s.change(func(state *State) { state.Err = err })
	if s.misses != missesMax {
		return
	}
	if s.dir == nil && errors.Is(err, ErrNoDaemon) {
		s.forget()
		s.change(func(state *State) { state.Phase, state.Err = PhaseRestarting, err })
		s.emit(ControlDied{Err: err})
		return
	}
	s.emit(Unresponsive{Err: err})
}

// meet notes a server's state and tells when it changed.
func (s *supervisor) meet(one Server) {
	known := s.servers[one.PID]
	if known == nil {
		known = &server{Server: Server{PID: one.PID}}
		s.servers[one.PID] = known
		s.follow(known)
	}
	before := known.Status
	known.Server = one
	switch {
	case one.Status == before:
	case one.Status == StatusActive:
		s.emit(ServerActive{PID: one.PID})
	case one.Status == StatusFault:
		s.emit(ServerFaulted{PID: one.PID})
	}
}

// follow waits for a server's end. Where the kernel does not allow that, looks
// find it out.
func (s *supervisor) follow(one *server) {
	w, err := watchProcess(one.PID)
	if err != nil {
		return
	}
	one.process = w
	s.spawn(func() {
		if !w.wait() {
			return
		}
		select {
		case s.gone <- one:
		case <-s.ctx.Done():
		}
	})
}

// lose tells of a server's end, once.
func (s *supervisor) lose(one *server) {
	if s.servers[one.PID] != one {
		return
	}
	s.drop(one)
	s.publish()
	s.emit(ServerDied{PID: one.PID})
}

func (s *supervisor) drop(one *server) {
	delete(s.servers, one.PID)
	if one.process != nil {
		one.process.close()
	}
}

// forget drops all servers: whoever hears of their daemon's end knows.
func (s *supervisor) forget() {
	for _, one := range s.servers {
		s.drop(one)
	}
	s.misses = 0
	s.publish()
}

// publish puts what is known where State finds it.
func (s *supervisor) publish() {
	var servers []Server
	for _, pid := range slices.Sorted(maps.Keys(s.servers)) {
		servers = append(servers, s.servers[pid].Server)
	}
	s.change(func(state *State) { state.Servers = servers })
}

// end stops a process: first it is asked, at last it is killed.
func (s *supervisor) end(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.StopTimeout)
	defer cancel()
	began := time.Now()
	_ = s.console.Quit(ctx) // what counts is whether it ends
	if p.awaitExit(s.opts.StopTimeout - time.Since(began)) {
		return s.killRest()
	}
	err := fmt.Errorf("%w: process %d did not end within %v after quit; were its clients still running?", ErrKilled, p.pid(), s.opts.StopTimeout)
	return errors.Join(err, s.kill(p))
}

// bury tells of a process that ended by itself.
func (s *supervisor) bury(p *process) {
	err := fmt.Errorf("%w: process %d of device %s (%v)%s", ErrExited, p.pid(), s.opts.Device, p.cmd.ProcessState, s.lastWords(p))
	err = errors.Join(err, s.killRest())
	s.change(func(state *State) { state.Phase, state.PID, state.Err = PhaseRestarting, 0, err })
	s.emit(ControlDied{PID: p.pid(), Err: err})
}

// revive starts the daemon again, on order or after a pause. It returns nil
// when Stop is called.
func (s *supervisor) revive(o *order, ranFor time.Duration) *process {
	for {
		if o == nil {
			o = s.pause(ranFor)
		}
		if s.ctx.Err() != nil {
			return nil
		}
		if o != nil {
			s.restarts.forgive()
		}
		p, err := s.launch(s.ctx)
		if err == nil {
			s.running(p)
			s.emit(Restarted{PID: p.pid(), Starts: s.State().Starts})
			o.answer(nil)
			return p
		}
		o.answer(err)
		if s.ctx.Err() != nil {
			return nil
		}
		s.change(func(state *State) { state.Phase, state.PID, state.Err = PhaseRestarting, 0, err })
		s.emit(ControlDied{Err: err})
		o, ranFor = nil, 0
	}
}

// answer tells whoever ordered a restart, if somebody did.
func (o *order) answer(err error) {
	if o != nil {
		o.reply <- err
	}
}

// pause waits before a restart, without end if the daemon is given up. It
// returns early with an order, or when Stop is called.
func (s *supervisor) pause(ranFor time.Duration) *order {
	var over <-chan time.Time
	if delay, ok := s.restarts.next(time.Now(), ranFor); ok {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		over = timer.C
	} else {
		s.giveUp()
	}
	select {
	case <-over:
	case <-s.ctx.Done():
	case o := <-s.orders:
		return o
	}
	return nil
}

func (s *supervisor) giveUp() {
	err := fmt.Errorf("%w: more than %d times within %v; mend the cause, then restart it: %w",
		ErrRestartLimit, s.opts.RestartLimit, s.opts.RestartWindow, s.State().Err)
	s.change(func(state *State) { state.Phase, state.Err = PhaseGivenUp, err })
	s.emit(GaveUp{Err: err})
}

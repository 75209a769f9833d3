package mps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// server is one MPS server.
type server struct {
	pid     int
	status  string
	user    int      // whom it serves; -1 if that is not known
	process *watched // nil if it cannot be watched
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
		s.emit(Event{Kind: ControlDied, Err: err})
		return
	}
	s.emit(Event{Kind: Unresponsive, Err: err})
}

// meet takes in what a server is like, and emits an event when that changed.
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

// follow waits for a server's end. Where that cannot be seen, looks find it
// out.
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

// lose emits the event of a server's end, once.
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

// forget drops all servers: whoever hears of their daemon's end knows.
func (s *supervisor) forget() {
	for _, one := range s.servers {
		s.drop(one)
	}
	clear(s.dead)
	s.misses = 0
	s.publish()
}

// publish puts what is known where State finds it.
func (s *supervisor) publish() {
	pids := slices.Sorted(maps.Keys(s.servers))
	s.change(func(state *State) { state.Servers = pids })
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
		found.servers = append(found.servers, server{pid: pid, status: status, user: userOf(pid)})
	}
	return found
}

// checkServers finds what stands in the way of a client of the user self. A
// server of user 0 may be one for several users.
func checkServers(servers []server, self int) error {
	var errs []error
	for _, s := range servers {
		if s.user > 0 && s.user != self {
			errs = append(errs, fmt.Errorf("%w: server %d serves user %d, and we are %d: MPS serves one user at a time, and our workers would wait "+
				"until the other's are gone; run overlapd as that user, or set mps mode = \"own\"", ErrUser, s.pid, s.user, self))
		}
	}
	return errors.Join(errs...)
}

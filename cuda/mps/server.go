package mps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// server is one that is watched.
type server struct {
	Server
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
		listed[one.PID] = true
		if !s.dead[one.PID] {
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
		s.emit(Event{Kind: ServerActive, PID: one.PID})
	case one.Status == StatusFault:
		s.emit(Event{Kind: ServerFaulted, PID: one.PID})
	}
}

// follow waits for a server's end. Where that cannot be seen, looks find it
// out.
func (s *supervisor) follow(one *server) {
	if userOf(one.PID) < 0 {
		return
	}
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
	s.emit(Event{Kind: ServerDied, PID: one.PID})
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
	clear(s.dead)
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
func checkServers(servers []Server, self int) error {
	var errs []error
	for _, s := range servers {
		if s.User > 0 && s.User != self {
			errs = append(errs, fmt.Errorf("%w: server %d serves user %d, and we are %d: MPS serves one user at a time, and our workers would wait "+
				"until the other's are gone; run overlapd as that user, or set mps mode = \"own\"", ErrUser, s.PID, s.User, self))
		}
	}
	return errors.Join(errs...)
}

package mps

import (
	"context"
	"errors"
	"time"

	"github.com/overlapd/overlapd/executor/child"
)

const (
	serversMax = 16 // that one daemon may have
	missesMax  = 3  // looks in a row that may fail before it is told
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
	servers []Server
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
			s.dead[one.PID] = true
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
	s.spawn(func() { s.looks <- s.look(ctx) })
}

func (s *supervisor) cancelLook(cancel context.CancelFunc) {
	cancel()
	if s.looking {
		<-s.looks
		s.looking = false
	}
}

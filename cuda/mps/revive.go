package mps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/executor/child"
)

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

// bury tells of a process that ended by itself.
func (s *supervisor) bury(p *child.Process) {
	err := fmt.Errorf("%w: process %d of device %s (%v)%s", ErrExited, p.PID(), s.opts.Device, p.Status(), s.lastWords(p))
	err = errors.Join(err, s.killRest())
	s.change(func(state *State) { state.Phase, state.PID, state.Err = PhaseRestarting, 0, err })
	s.emit(ControlDied{PID: p.PID(), Err: err})
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
			s.emit(Restarted{PID: p.PID(), Starts: s.State().Starts})
			return p
		}
		if s.ctx.Err() != nil {
			return nil
		}
		s.change(func(state *State) { state.Phase, state.PID, state.Err = PhaseRestarting, 0, err })
		s.emit(ControlDied{Err: err})
		ranFor = 0
	}
}

// pause waits before a restart, without end if the daemon is given up. It
// returns early when Stop is called.
func (s *supervisor) pause(ranFor time.Duration) {
	var over <-chan time.Time
	if delay, ok := s.restarts.Next(time.Now(), ranFor); ok {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		over = timer.C
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
	s.emit(GaveUp{Err: err})
}

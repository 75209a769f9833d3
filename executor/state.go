package executor

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/overlapd/overlapd/segments/wire"
)

// Phase is where a service stands in its life.
type Phase uint8

// The phases of a service.
const (
	Waiting  Phase = iota // for the next start
	Starting              // a process is loading the model
	Ready                 // spans can be run
	GivenUp               // lost too often; Restart tries again
	Closed
)

var phaseNames = [...]string{Waiting: "waiting", Starting: "starting", Ready: "ready", GivenUp: "given up", Closed: "closed"}

func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return ""
}

// State is what is known of a service.
type State struct {
	Phase             Phase
	Since             time.Time  // of the phase
	PID               int        // 0 if there is no process
	Starts            int        // processes started so far
	Err               error      // why the last worker was lost, nil if none was
	Info              *wire.Info // of the last worker that was ready, nil if none was
	InFlight          int        // runs sent and not answered
	IntermediateBytes int64      // held by paused batches, as last reported
	InputBytes        int64      // allocated in the input arena
	OutputLeases      int        // outputs that were not released yet
	ResidentBytes     int64      // of the process, 0 if it is not known
}

func (s *service) state() State {
	s.mu.Lock()
	state, w := s.mu.state, s.mu.worker
	state.OutputLeases = s.leasesLocked()
	s.mu.Unlock()
	state.InputBytes = s.arena.Used()
	if w != nil {
		w.mu.Lock()
		state.InFlight, state.IntermediateBytes = w.mu.flights.count, w.mu.held
		w.mu.Unlock()
	}
	state.ResidentBytes = residentBytes(state.PID)
	return state
}

// residentBytes returns the resident set of a process, or 0.
func residentBytes(pid int) int64 {
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

func (s *service) setPhaseLocked(p Phase) {
	if s.mu.state.Phase != p {
		s.mu.state.Phase, s.mu.state.Since = p, time.Now()
	}
}

func (s *service) setStarting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setPhaseLocked(Starting)
	s.mu.outputs = slices.DeleteFunc(s.mu.outputs, func(o *wire.Outputs) bool { return o.Leases() == 0 })
}

// setSpawned returns why the worker may not stay, if the service was held
// meanwhile, even if it is not any more.
func (s *service) setSpawned(w *worker) (held error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.state.Starts++
	s.mu.state.PID = w.process.PID()
	s.mu.outputs = append(s.mu.outputs, w.outputs)
	s.mu.living = w
	return s.mu.doomed
}

// setGone notes that nothing is left of a worker's process, or that none came
// of a start.
func (s *service) setGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.living = nil
	if s.mu.over != nil {
		close(s.mu.over)
		s.mu.over = nil
	}
}

func (s *service) setReady(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setPhaseLocked(Ready)
	s.mu.worker = w
	s.mu.state.Info = &w.info
}

func (s *service) setDown(p Phase, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setPhaseLocked(p)
	s.mu.worker = nil
	s.mu.state.PID = 0
	s.mu.state.Err = err
}

package mps

import "fmt"

// EventsMax is how many events wait for whoever receives them. When there are
// more, the oldest is forgotten: State says how things are.
const EventsMax = 64

// Event is one of the types below.
type Event interface{ isEvent() }

// ServerActive tells that a server takes clients: it is new, or has recovered
// from a fault.
type ServerActive struct{ PID int }

// ServerFaulted tells that a client's kernel failed. All clients of the server
// get errors now, and it takes no new one until all of them have ended: end
// the workers, all of them, then start them again.
type ServerFaulted struct{ PID int }

// ServerDied tells that a server is gone, and with it all its clients' CUDA
// contexts. The control daemon starts a new one for the next client: start the
// workers again.
type ServerDied struct{ PID int }

// ControlDied tells that the control daemon is gone, with its servers and
// their clients. PID is 0 if a restart failed, and when the daemon is not
// ours.
type ControlDied struct {
	PID int
	Err error // wraps ErrExited, ErrNotReady or ErrNoDaemon; holds the last it said
}

// Restarted tells that the control daemon serves again: start the workers.
type Restarted struct {
	PID    int // 0 if it is not ours
	Starts int // including the first
}

// Unresponsive tells that the control daemon lives and does not answer.
// Clients that are connected work on; new ones hang. It is not killed for
// that, since they would die with it.
type Unresponsive struct{ Err error }

// GaveUp tells that the control daemon died too often. It is not started again.
type GaveUp struct{ Err error }

func (ServerActive) isEvent()  {}
func (ServerFaulted) isEvent() {}
func (ServerDied) isEvent()    {}
func (ControlDied) isEvent()   {}
func (Restarted) isEvent()     {}
func (Unresponsive) isEvent()  {}
func (GaveUp) isEvent()        {}

// emit passes an event on and never waits. Only the supervisor calls it.
func (c *Control) emit(e Event) {
	for {
		select {
		case c.events <- e:
			return
		default:
		}
		select {
		case <-c.events:
		default:
		}
	}
}

// Phase is where a control daemon stands.
type Phase uint8

// The phases.
const (
	PhaseRunning    Phase = iota // it serves, as far as is known
	PhaseRestarting              // it died and is about to be started
	PhaseGivenUp                 // it died too often
	PhaseStopped                 // Stop was called
)

// String returns the phase in one word.
func (p Phase) String() string {
	if names := [...]string{"running", "restarting", "given up", "stopped"}; int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("Phase(%d)", p)
}

// Server is one MPS server.
type Server struct {
	PID    int
	Status Status
	User   int // whom it serves; -1 if that is not known
}

// State is how a control daemon was when it was last looked at.
type State struct {
	Phase   Phase
	PID     int // 0 if there is no process of ours
	Starts  int
	Servers []Server // by PID
	Err     error    // of the last look, or of the last death
}

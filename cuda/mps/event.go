package mps

// eventsMax is how many events wait for whoever receives them. When there are
// more, the oldest is forgotten: State says how things are.
const eventsMax = 64

// Event is what happened to a control daemon or one of its servers.
type Event struct {
	Kind   EventKind
	PID    int   // the process it happened to, 0 if that is not ours or did not start
	Starts int   // Restarted: how often the control daemon was started, the first time included
	Err    error // ControlDied, Unresponsive, GaveUp: the cause
}

// EventKind is what happened, and with it what the owner of the workers does.
type EventKind uint8

// The kinds of events.
const (
	// ServerActive: a server takes clients. It is new, or has recovered from a
	// fault.
	ServerActive EventKind = iota

	// ServerFaulted: a client's kernel failed. All clients of the server get
	// errors now, and it takes no new one until all of them have ended: end the
	// workers, all of them, then start them again.
	ServerFaulted

	// ServerDied: a server is gone, and with it all its clients' CUDA contexts.
	// The control daemon starts a new one for the next client: start the workers
	// again.
	ServerDied

	// ControlDied: the control daemon is gone, with its servers and their clients,
	// or could not be started again. Err wraps ErrExited, ErrNotReady or
	// ErrNoDaemon and holds the last it said.
	ControlDied

	// Restarted: the control daemon serves again: start the workers.
	Restarted

	// Unresponsive: the control daemon lives and does not answer. Clients that are
	// connected work on; new ones hang. It is not killed for that, since they
	// would die with it.
	Unresponsive

	// GaveUp: the control daemon died too often. It is not started again.
	GaveUp
)

// String returns the kind in words.
func (k EventKind) String() string {
	return [...]string{"server active", "server faulted", "server died", "control died", "restarted", "unresponsive", "gave up"}[k]
}

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

// The phases of a control daemon.
const (
	PhaseRunning    = "running"    // it serves, as far as is known
	PhaseRestarting = "restarting" // it died and is about to be started
	PhaseGivenUp    = "given up"   // it died too often
	PhaseStopped    = "stopped"    // Stop was called
)

// State is how a control daemon was when it was last looked at. PID is 0 if there
// is no process of ours, Servers are the PIDs of its servers, in order, and Err, or
// Fault in words, is why the last look failed or the daemon died.
type State struct {
	Phase   string `json:"phase"`
	PID     int    `json:"pid,omitempty"`
	Starts  int    `json:"starts"`
	Servers []int  `json:"server_pids"`
	Err     error  `json:"-"`
	Fault   string `json:"fault,omitempty"`
}

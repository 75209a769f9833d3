package mps

// eventsMax limits the events that have not been received. If there are more, the oldest
// is dropped; State always has the current condition.
const eventsMax = 64

// Event is a change of a control daemon or of one of its servers.
type Event struct {
	Kind eventKind

	// PID is the process in question, 0 if it is not ours or did not start.
	PID int

	// Starts belongs to Restarted: how often the control daemon was started, including
	// the first time.
	Starts int

	// Err is the cause of ControlDied, Unresponsive and GaveUp.
	Err error
}

// eventKind identifies an event, and with it what the owner of the workers must do.
type eventKind uint8

// The kinds of events.
const (
	// ServerActive: a server accepts clients. It is new, or has recovered from a fault.
	ServerActive eventKind = iota

	// ServerFaulted: a client's kernel failed. All clients of the server get errors
	// now, and it accepts no new one until all of them have exited. End all workers,
	// then start them again.
	ServerFaulted

	// ServerDied: a server is gone, and with it the CUDA contexts of all its clients.
	// The control daemon starts a new server for the next client. Restart the workers.
	ServerDied

	// ControlDied: the control daemon is gone, with its servers and their clients, or
	// could not be restarted. Err wraps ErrExited, ErrNotReady or ErrNoDaemon and
	// quotes the daemon's last output.
	ControlDied

	// Restarted: the control daemon serves again. Start the workers.
	Restarted

	// Unresponsive: the control daemon runs but does not answer. Connected clients
	// continue to work; new ones hang. The daemon is not killed, because its clients
	// would die with it.
	Unresponsive

	// GaveUp: the control daemon died too often. It is not restarted.
	GaveUp
)

// String returns the kind in words.
func (k eventKind) String() string {
	return [...]string{"server active", "server faulted", "server died", "control died", "restarted", "unresponsive", "gave up"}[k]
}

// emit sends an event without blocking; it drops the oldest event if the channel is full.
// Only the supervisor calls it, so the loop ends after one drop.
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
	// PhaseRunning: the daemon serves, as far as is known.
	PhaseRunning = "running"

	// PhaseRestarting: the daemon died and will be restarted after the back-off.
	PhaseRestarting = "restarting"

	// PhaseGivenUp: the daemon died too often.
	PhaseGivenUp = "given up"

	// PhaseStopped: Stop was called.
	PhaseStopped = "stopped"
)

// State is the condition of a control daemon at the last poll. PID is 0 if there is no
// process of ours. Servers lists the PIDs of its servers, sorted. Err, or Fault as text,
// is why the last poll failed or the daemon died.
type State struct {
	Phase   string `json:"phase"`
	PID     int    `json:"pid,omitempty"`
	Starts  int    `json:"starts"`
	Servers []int  `json:"server_pids"`
	Err     error  `json:"-"`
	Fault   string `json:"fault,omitempty"`
}

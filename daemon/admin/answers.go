package admin

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// Error is the error of a request, as the client receives it. Kind is one of the Kind
// constants.
type Error struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Kinds of errors. They are part of the protocol.
const (
	KindConfig    = "config"    // the configuration is invalid, and nothing was changed
	KindBusy      = "busy"      // another reload is running
	kindStopping  = "stopping"  // the daemon is stopping
	kindForbidden = "forbidden" // the peer may not administer the daemon
	KindNotFound  = "not_found" // no such service or path
	KindState     = "state"     // the service is in the wrong state for the request
	kindFailed    = "failed"    // anything else
)

// statuses maps kinds to HTTP statuses. A missing kind maps to 500.
var statuses = map[string]int{
	KindConfig: http.StatusUnprocessableEntity, KindBusy: http.StatusConflict, kindStopping: http.StatusServiceUnavailable,
	kindForbidden: http.StatusForbidden, KindNotFound: http.StatusNotFound, KindState: http.StatusConflict,
}

// status returns the HTTP status of the error.
func (e *Error) status() int { return cmp.Or(statuses[e.Kind], http.StatusInternalServerError) }

// Errors of requesting a reload.
var (
	// ErrBusy is returned while another reload is running.
	ErrBusy = &Error{KindBusy, "a reload is in progress; try again when it has ended (overlapd reload --last shows it)"}

	// ErrStopping is returned when the daemon is about to exit.
	ErrStopping = &Error{kindStopping, "the daemon is stopping; the next one reads the changed file"}
)

// errPathTooLong is returned for a path that does not fit into the kernel's sockaddr_un.
var errPathTooLong = errors.New("the path of a socket has at most 107 bytes; set admin_socket to a shorter one")

// line is one line of the response to POST /reload. Exactly one field is set; the last line
// has no step.
type line struct {
	Step     *config.Step     `json:"step,omitempty"`
	Reloaded *config.Reloaded `json:"reloaded,omitempty"`
	Error    *Error           `json:"error,omitempty"`
}

// States of a Report.
const (
	ReportNone    = "none" // no reload has run yet
	reportRunning = "running"
	reportDone    = "done"   // services may still have failed: see Reloaded
	reportFailed  = "failed" // see Error
)

// Report is the state of a reload, and the response to GET /reload. Steps has the latest
// step of each service.
type Report struct {
	State    string           `json:"state"`
	Began    time.Time        `json:"began,omitzero"`
	Steps    []config.Step    `json:"steps,omitempty"`
	Reloaded *config.Reloaded `json:"reloaded,omitempty"`
	Error    *Error           `json:"error,omitempty"`
}

// told converts an error to the form that clients receive.
func told(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if faults, ok := errors.AsType[config.Faults](err); ok {
		return &Error{KindConfig, faults.Error()}
	}
	return &Error{kindFailed, err.Error()}
}

package admin

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// Error is a request that was not fulfilled, as the client is told.
type Error struct {
	Kind    string `json:"kind"` // one of the Kind constants
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// The kinds of errors. They are part of the protocol.
const (
	KindConfig    = "config"    // the configuration is wrong, and nothing was changed
	KindBusy      = "busy"      // another reload runs
	kindStopping  = "stopping"  // the daemon ends
	kindForbidden = "forbidden" // by who the peer is
	KindNotFound  = "not_found" // no such service or path
	KindState     = "state"     // the service is in no state for it
	kindFailed    = "failed"    // anything else
)

// statuses are those of HTTP. A kind that is missing is a 500.
var statuses = map[string]int{
	KindConfig: http.StatusUnprocessableEntity, KindBusy: http.StatusConflict, kindStopping: http.StatusServiceUnavailable,
	kindForbidden: http.StatusForbidden, KindNotFound: http.StatusNotFound, KindState: http.StatusConflict,
}

func (e *Error) status() int { return cmp.Or(statuses[e.Kind], http.StatusInternalServerError) }

// These errors are for those who ask for a reload.
var (
	// ErrBusy is returned when another reload runs.
	ErrBusy = &Error{KindBusy, "a reload is in progress; try again when it is over (overlapd reload --last shows it)"}

	// ErrStopping is returned when the daemon is about to end.
	ErrStopping = &Error{kindStopping, "the daemon is stopping; the next one reads the file as it is then"}
)

// errPathTooLong is returned when the kernel takes no path as long.
var errPathTooLong = errors.New("the path of a socket has at most 107 bytes; set admin_socket to a shorter one")

// line is one line of the answer to POST /reload. One of the fields is set; the
// last line has no step.
type line struct {
	Step     *config.Step     `json:"step,omitempty"`
	Reloaded *config.Reloaded `json:"reloaded,omitempty"`
	Error    *Error           `json:"error,omitempty"`
}

// States of a Report.
const (
	ReportNone    = "none" // there was no reload yet
	reportRunning = "running"
	reportDone    = "done"   // services may have failed: see Reloaded
	reportFailed  = "failed" // see Error
)

// Report is how a reload stands, and the answer to GET /reload.
type Report struct {
	State    string           `json:"state"`
	Began    time.Time        `json:"began,omitzero"`
	Steps    []config.Step    `json:"steps,omitempty"` // the latest of each service
	Reloaded *config.Reloaded `json:"reloaded,omitempty"`
	Error    *Error           `json:"error,omitempty"`
}

// told returns an error as a client is told it.
func told(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if faults, ok := errors.AsType[config.Faults](err); ok {
		return &Error{KindConfig, faults.Error()}
	}
	return &Error{kindFailed, err.Error()}
}

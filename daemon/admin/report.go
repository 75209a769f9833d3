package admin

import (
	"time"

	"github.com/overlapd/overlapd/daemon"
)

// Line is one line of the answer to POST /reload. One of the fields is set; the
// last line has no step.
type Line struct {
	Step     *daemon.ReloadStep `json:"step,omitempty"`
	Reloaded *daemon.Reloaded   `json:"reloaded,omitempty"`
	Error    *Error             `json:"error,omitempty"`
}

// States of a Report.
const (
	ReportNone    = "none" // there was no reload yet
	ReportRunning = "running"
	ReportDone    = "done"   // services may have failed: see Reloaded
	ReportFailed  = "failed" // see Error
)

// Report is the answer to GET /reload.
type Report struct {
	State    string              `json:"state"`
	Began    time.Time           `json:"began,omitzero"`
	Steps    []daemon.ReloadStep `json:"steps,omitempty"` // the latest of each service
	Reloaded *daemon.Reloaded    `json:"reloaded,omitempty"`
	Error    *Error              `json:"error,omitempty"`
}

// report says how a reload stands. There may be none.
func report(r *Reload) Report {
	if r == nil {
		return Report{State: ReportNone}
	}
	steps, _, _ := r.since(0)
	out := Report{State: ReportRunning, Began: r.began, Steps: steps}
	select {
	case <-r.Done():
	default:
		return out
	}
	end := r.end()
	out.State, out.Reloaded, out.Error = ReportDone, end.Reloaded, end.Error
	if end.Error != nil {
		out.State = ReportFailed
	}
	return out
}

// end returns the last line of a reload that is over.
func (r *Reload) end() Line {
	reloaded, err := r.Result()
	if err != nil {
		return Line{Error: told(err)}
	}
	return Line{Reloaded: reloaded}
}

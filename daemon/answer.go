package daemon

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// reply makes the reply of a query that is over.
func (l *loop) reply(p *pending, a *overlap.Answer) query.Reply {
	r := query.Reply{Queue: a.Queue, Compute: a.Run}
	if a.Result != overlap.Finished {
		r.Err = l.failure(p, a)
		return r
	}
	p.reply = p.reply[:0]
	for _, out := range p.outputs.Outputs {
		p.reply = append(p.reply, query.Tensor{Type: out.Type, Shape: out.Shape, Data: out.Data})
	}
	r.Outputs = p.reply
	return r
}

// failure tells a client why a query has no outputs.
func (l *loop) failure(p *pending, a *overlap.Answer) *query.Error {
	name := p.call.Service.Name
	if errors.Is(p.failure, executor.ErrClosed) {
		return query.ErrDraining
	}
	switch a.Reason {
	case overlap.ReasonDeadlinePassed:
		if !p.call.Service.Ready() {
			return query.Unavailable(a.Reason.String(), fmt.Sprintf(
				"service %s: the deadline passed while its worker was being started again", name))
		}
		return query.Unavailable(a.Reason.String(), fmt.Sprintf(
			"service %s: the deadline passed after %v in the queue; send less, or allow more time", name, a.Queue))
	case overlap.ReasonCannotFinish:
		return query.Unavailable(a.Reason.String(), fmt.Sprintf(
			"service %s: the query could not have finished before its deadline; send less, or allow more time", name))
	case overlap.ReasonDraining:
		return query.ErrDraining
	case overlap.ReasonCancelled:
		return query.Unavailable(query.ReasonCancelled, "the client left")
	case overlap.ReasonWorkerLost:
		return &query.Error{Status: http.StatusInternalServerError, Reason: a.Reason.String(), Message: fmt.Sprintf(
			"service %s: its worker failed, and there was no time to run the query again", name)}
	}
	switch {
	case errors.Is(p.failure, wire.ErrMemory), errors.Is(p.failure, wire.ErrArenaFull):
		return query.Unavailable(query.ReasonNoMemory, fmt.Sprintf("service %s: %v", name, p.failure))
	case p.failure != nil:
		return &query.Error{Status: http.StatusInternalServerError, Reason: a.Reason.String(), Message: fmt.Sprintf("service %s: %v", name, p.failure)}
	}
	return &query.Error{Status: http.StatusInternalServerError, Reason: a.Reason.String(), Message: fmt.Sprintf("service %s: the model failed", name)}
}

// errGivenUp answers the queries of a service whose worker does not come back.
func errGivenUp(s *query.Service) *query.Error {
	return query.Unavailable(query.ReasonLoading, fmt.Sprintf(
		"service %s was given up: its worker was lost too often, or its model cannot be served; the log of overlapd says why; overlapd restart %s tries again", s.Name, s.Name))
}

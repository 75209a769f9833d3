package observe

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/models"
)

// traces is the listener that records what the scheduler does with traced queries, from
// when they are accepted until they are answered. Without traced queries an event costs one
// comparison. It is owned by the scheduler goroutine.
type traces struct {
	epoch time.Time

	// devices describes the devices, names has their names in the configuration.
	devices []string
	names   []string

	// open holds the traced queries that are not answered.
	open map[models.QueryID]*tracing.Query

	// ran lists the traced queries in the rounds that run.
	ran []tracedRun
}

// tracedRun is a traced query, and the round and the batch it runs in.
type tracedRun struct {
	round uint64
	query models.QueryID
	batch models.BatchID
}

// NewTraces returns a listener for a scheduler of the given devices. Its times count from
// epoch.
func NewTraces(epoch time.Time, devices, names []string) *traces {
	return &traces{epoch: epoch, devices: devices, names: names, open: map[models.QueryID]*tracing.Query{}}
}

// Observe implements [Listener].
func (t *traces) Observe(e *Event) {
	switch e.Kind {
	case Accepted:
		if q := e.Call.Trace; q != nil {
			t.open[e.Call.QueryID] = q
			q.Epoch, q.Device = t.epoch, t.devices[0]
		}
	case Dispatched:
		if len(t.open) > 0 {
			t.dispatched(e)
		}
	case Ended:
		t.ended(e)
	case Answered:
		if q := t.open[e.Answer.Query]; q != nil {
			delete(t.open, e.Answer.Query) // from now on it belongs to the codec
			a := e.Answer
			q.Answered = true
			to := &q.Answer
			to.At, to.Queue, to.Run, to.Retries = a.At, a.Queue, a.Run, a.Retries
			to.Result, to.Reason = a.Result.String(), a.Reason.String()
		}
	}
}

// dispatched adds a run to each traced query of the round.
func (t *traces) dispatched(e *Event) {
	r := e.Round
	var group []tracing.Member // shared by all runs, which do not change it
	for i, span := range r.Group.Spans {
		for _, id := range r.Queries[i] {
			q := t.open[id]
			if q == nil {
				continue
			}
			if group == nil {
				for _, s := range r.Group.Spans {
					group = append(group, tracing.Member{Service: e.Services[s.Service].Name, Start: s.Start, End: s.End})
				}
			}
			q.Ran(tracing.Run{
				Device: t.names[r.Device], Round: r.Number, Batch: uint64(span.Batch), BatchSize: span.Size * span.Times(len(r.Queries[i])), Start: span.Start, End: span.End, Of: e.Services[span.Service].Operators,
				Group: group, Planned: r.Planned, Predicted: r.Predicted.Latency, Bound: r.Predicted.Bound, Began: r.Start,
			})
			q.Device = t.devices[r.Device]
			t.ran = append(t.ran, tracedRun{r.Number, id, span.Batch})
		}
	}
}

// ended completes the runs of the round. A query that was answered before, because its
// client has disconnected, is no longer open.
func (t *traces) ended(e *Event) {
	for _, ran := range t.ran {
		q := t.open[ran.query]
		if q == nil || ran.round != e.Outcome.Round {
			continue
		}
		run := q.Last(e.Outcome.Round)
		if run == nil {
			continue
		}
		run.Ended, run.RoundTook = e.At, e.Outcome.Took
		for i := range e.Outcome.Spans {
			if s := &e.Outcome.Spans[i]; s.Span.Batch == ran.batch {
				run.Took, run.Reached, run.Status = s.Took, s.Reached, s.Status.String()
			}
		}
	}
	t.ran = slices.DeleteFunc(t.ran, func(ran tracedRun) bool { return ran.round == e.Outcome.Round })
}

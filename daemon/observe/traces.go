package observe

import (
	"time"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/models"
)

// Traces is the listener that writes what the scheduler does into the records of
// the queries that are traced, from when they are accepted until they are answered.
// While none is, every event costs a look at a number.
type Traces struct {
	epoch   time.Time
	devices []string // in words
	names   []string // of the devices in the configuration
	open    map[models.QueryID]*tracing.Query
	ran     [][]tracedRun // the traced queries in the round that runs on each device
}

// tracedRun is a query that is traced, and the batch that it runs in.
type tracedRun struct {
	query models.QueryID
	batch models.BatchID
}

// NewTraces returns a listener for a scheduler of these devices, in words and by their names
// in the configuration, whose times count from epoch.
func NewTraces(epoch time.Time, devices, names []string) *Traces {
	return &Traces{epoch: epoch, devices: devices, names: names, open: map[models.QueryID]*tracing.Query{}, ran: make([][]tracedRun, len(devices))}
}

// Observe implements [Listener].
func (t *Traces) Observe(e *Event) {
	switch e.Kind {
	case Accepted:
		if q := e.Call.Trace; q != nil {
			t.open[e.Call.QueryID] = q
			q.Epoch, q.Device = t.epoch, t.devices[0]
		}
	case Dispatched:
		t.ran[e.Round.Device] = t.ran[e.Round.Device][:0]
		if len(t.open) > 0 {
			t.dispatched(e)
		}
	case Ended:
		t.ended(e)
	case Answered:
		if q := t.open[e.Answer.Query]; q != nil {
			delete(t.open, e.Answer.Query) // from now on it is the codec's
			a := e.Answer
			q.Answered = true
			to := &q.Answer
			to.At, to.Queue, to.Run, to.Retries = a.At, a.Queue, a.Run, a.Retries
			to.Result, to.Reason = a.Result.String(), a.Reason.String()
		}
	}
}

func (t *Traces) dispatched(e *Event) {
	r := e.Round
	var group []tracing.Member // shared by all runs
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
				Device: t.names[r.Device], Round: r.Number, Batch: uint64(span.Batch), BatchSize: span.Size, Start: span.Start, End: span.End, Of: e.Services[span.Service].Operators,
				Group: group, Planned: r.Planned, Predicted: r.Predicted.Latency, Bound: r.Predicted.Bound, Began: r.Start,
			})
			q.Device = t.devices[r.Device]
			t.ran[r.Device] = append(t.ran[r.Device], tracedRun{id, span.Batch})
		}
	}
}

// ended completes the runs of the round. Queries that were answered before, as their
// client left, are not open any more.
func (t *Traces) ended(e *Event) {
	device := e.Outcome.Device
	for _, ran := range t.ran[device] {
		q := t.open[ran.query]
		if q == nil {
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
	t.ran[device] = t.ran[device][:0]
}

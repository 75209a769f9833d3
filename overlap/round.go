package overlap

import (
	"cmp"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Round is one group to run. It belongs to the scheduler and is valid until its device is given
// the next one.
type Round struct {
	// Number counts from 1, over all devices, and Device is the position in Config.Devices.
	Number uint64 `json:"number"`
	Device int    `json:"dev,omitempty"`
	models.Group

	// Start is when the round was given out. Planned is set if it was decided ahead.
	Start     time.Duration   `json:"start"`
	Predicted models.Estimate `json:"predicted"`
	Planned   bool            `json:"planned,omitempty"`

	// Queries are those in the batch of each span, in the order in which their
	// tensors are gathered. Where the span starts at operator 0 the worker
	// gathers them; in later spans the batch is the same.
	Queries [][]models.QueryID `json:"q"`
}

// clone returns a copy that shares no memory with the round.
func (r Round) clone() Round {
	r.Spans, r.Queries = slices.Clone(r.Spans), slices.Clone(r.Queries)
	for i, ids := range r.Queries {
		r.Queries[i] = slices.Clone(ids)
	}
	return r
}

// Held names a batch by the worker that holds its intermediates: that of a service on
// a device.
type Held struct {
	Service models.ServiceID `json:"sv"`
	Batch   models.BatchID   `json:"b"`
	Device  int              `json:"dev,omitempty"`
}

// outcomeOf returns the outcome of a span of the batch. If there is none that is
// possible, the span counts as failed.
func outcomeOf(o *models.Outcome, b *batch, span models.Span) (so models.SpanOutcome, ok bool) {
	for _, so := range o.Spans {
		switch so.Status {
		case models.SpanDone:
			ok = so.Reached == span.End
		case models.SpanStopped:
			ok = so.Reached >= span.Start && so.Reached <= span.End
		default:
			ok = so.Status >= models.SpanLost && so.Status <= models.SpanCrashed || so.Status == models.SpanOverrun && b.Overrun == 0
		}
		if ok && so.Span.Batch == b.id {
			return so, true
		}
	}
	return models.SpanOutcome{Span: span, Status: models.SpanFailed}, false
}

// device is a device of the pool: what predicts it, and the round that it runs, or
// else the last one that it ran.
type device struct {
	index   int
	kind    int // the first device that is like it
	predict prediction
	alone   bool // its groups have one span
	paused  int  // batches
	busy    bool
	round   Round
	running []*batch // the batch of each span, none once the round is over
}

// open begins a round without spans.
func (v *device) open(number uint64, now time.Duration, predicted models.Estimate, planned bool) {
	v.busy = true
	v.running = v.running[:0]
	r := &v.round
	r.Number, r.Start, r.Predicted, r.Planned = number, now, predicted, planned
	r.Group.Spans, r.Queries = r.Group.Spans[:0], r.Queries[:0]
}

// start adds the operators up to end of a batch to the round.
func (v *device) start(b *batch, end int) {
	b.running = true
	v.running = append(v.running, b)
	r := &v.round
	r.Group.Spans = append(r.Group.Spans, b.span(end))
	n := len(r.Queries)
	if n < cap(r.Queries) {
		r.Queries = r.Queries[:n+1] // its memory is used again
	} else {
		r.Queries = append(r.Queries, nil)
	}
	ids := r.Queries[n][:0]
	for _, q := range b.members {
		ids = append(ids, q.ID)
	}
	r.Queries[n] = ids
}

// ends returns when the round that runs is predicted to end.
func (v *device) ends() time.Duration { return v.round.Start + v.round.Predicted.Latency }

// runs reports whether a batch of the service is in the round that runs.
func (v *device) runs(sv *service) bool {
	return slices.ContainsFunc(v.running, func(b *batch) bool { return b.service == sv })
}

// host is the devices of a pool.
type host struct {
	devices  []*device
	idle     bitset   // devices that run no round
	holding  bitset   // devices on which batches are paused
	overruns []*batch // that run beside the rounds, by service, then by device
}

// newHost returns the devices of a configuration, which run nothing.
func newHost(c *Config) host {
	predictors := c.Devices
	devices := make([]*device, len(predictors))
	for i, p := range predictors {
		devices[i] = &device{index: i, kind: i, predict: prediction{Predictor: p}}
		devices[i].round.Device = i
		devices[i].alone = len(c.Alone) > 0 && c.Alone[i]
		if like := slices.Index(predictors[:i], p); like >= 0 {
			devices[i].kind = like
		}
	}
	h := host{devices: devices, idle: newBitset(len(devices)), holding: newBitset(len(devices))}
	for i := range devices {
		h.idle.set(i)
	}
	return h
}

// predict returns what predicts work of a service that is not bound to a device yet:
// that of the first device that it is up on.
func (h *host) predict(sv *service) *prediction {
	return &h.devices[max(sv.up.next(0), 0)].predict
}

// hold takes in that a batch is paused on a device, or, with less than 0, that one is not
// any more.
func (h *host) hold(v *device, more int) {
	if v.paused += more; v.paused > 0 {
		h.holding.set(v.index)
	} else {
		h.holding.clear(v.index)
	}
}

// runs returns on how many devices batches of a service run.
func (h *host) runs(sv *service) (n int) {
	for _, v := range h.devices {
		if v.runs(sv) {
			n++
		}
	}
	return n
}

// setApart makes an overrun of a batch, which holds its worker until end.
func (h *host) setApart(b *batch, end int) {
	b.Overrun, b.running = end, true
	b.service.busy.set(b.device.index)
	at, _ := slices.BinarySearchFunc(h.overruns, b, func(a, b *batch) int {
		return cmp.Or(cmp.Compare(a.service.ID, b.service.ID), cmp.Compare(a.device.index, b.device.index))
	})
	h.overruns = slices.Insert(h.overruns, at, b)
}

// land ends an overrun.
func (h *host) land(b *batch) {
	b.Overrun, b.running = 0, false
	b.service.busy.clear(b.device.index)
	at := slices.Index(h.overruns, b)
	h.overruns = slices.Delete(h.overruns, at, at+1)
}

// overrunOf returns the overrun with this ID, nil if there is none.
func (h *host) overrunOf(id models.BatchID) *batch {
	for _, b := range h.overruns {
		if b.id == id {
			return b
		}
	}
	return nil
}

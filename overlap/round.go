package overlap

import (
	"cmp"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Round is one group to run. It belongs to the scheduler and is valid until its slot is given
// the next one.
type Round struct {
	// Number counts from 1, over all devices, and Device is the position in Config.Devices. Slot is
	// the position among the rounds that run on the device at once, 0 where that has one unit.
	Number uint64 `json:"number"`
	Device int    `json:"dev,omitempty"`
	Slot   int    `json:"slot,omitempty"`
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
	r.Spans, r.Beside, r.Queries = slices.Clone(r.Spans), append([]models.ServiceID(nil), r.Beside...), slices.Clone(r.Queries)
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
			ok = so.Status >= models.SpanLost && so.Status <= models.SpanCrashed || so.Status == models.SpanOverrun && b.Overrun.End == 0
		}
		if ok && so.Span.Batch == b.id {
			return so, true
		}
	}
	return models.SpanOutcome{Span: span, Status: models.SpanFailed}, false
}

// device is a device of the pool: what predicts it, and the rounds that it runs.
type device struct {
	index   int
	kind    int // the first device that is like it
	predict prediction
	alone   bool  // its groups have one span
	paused  int   // batches
	units   int   // that rounds may have a share of; 1 where all spans of a round have the device together
	free    int   // of these, less what overruns have taken that the device could not spare
	shares  []int // that a batch may run on, the least first; the last is 0, all units
	slots   []slot
	crowd   crowd
}

// slot is a round that runs, or else the last one that ran there.
type slot struct {
	busy    bool
	round   Round
	running []*batch // the batch of each span, none once the round is over
}

// width returns how many units a share is.
func (v *device) width(share int) int {
	if share == 0 {
		return v.units
	}
	return share
}

// open begins a round without spans.
func (v *device) open(number uint64, now time.Duration, predicted models.Estimate, planned bool) *slot {
	o := &v.slots[slices.IndexFunc(v.slots, func(o slot) bool { return !o.busy })]
	r := &o.round
	r.Beside = v.beside(r.Beside[:0])
	o.busy, o.running = true, o.running[:0]
	r.Number, r.Start, r.Predicted, r.Planned = number, now, predicted, planned
	r.Group.Spans, r.Queries = r.Group.Spans[:0], r.Queries[:0]
	return o
}

// beside adds the services to a list whose spans run.
func (v *device) beside(to []models.ServiceID) []models.ServiceID {
	for i := range v.slots {
		for _, b := range v.slots[i].running {
			to = append(to, b.service.ID)
		}
	}
	return to
}

// startable returns how many units a round may have that starts now. Overruns do not keep the last
// one from all others.
func (v *device) startable() int {
	if v.free < 1 && !v.busy() {
		return 1
	}
	return v.free
}

// busy reports whether a round runs.
func (v *device) busy() bool {
	return slices.ContainsFunc(v.slots, func(o slot) bool { return o.busy })
}

// rounds returns how many rounds run.
func (v *device) rounds() (n int) {
	for i := range v.slots {
		if v.slots[i].busy {
			n++
		}
	}
	return n
}

// slot returns the slot in which a round runs, nil if it does not.
func (v *device) slot(round uint64) *slot {
	for i := range v.slots {
		if o := &v.slots[i]; o.busy && o.round.Number == round {
			return o
		}
	}
	return nil
}

// start adds a span of a batch to the round.
func (o *slot) start(b *batch, s models.Span) {
	b.running = true
	o.running = append(o.running, b)
	r := &o.round
	s.Batch, s.Size = b.id, b.Size
	r.Group.Spans = append(r.Group.Spans, s)
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

// ends returns when the round that ends first is predicted to end.
func (v *device) ends() time.Duration {
	first := forever
	for i := range v.slots {
		if o := &v.slots[i]; o.busy {
			first = min(first, o.ends())
		}
	}
	if first == forever {
		return v.slots[0].ends()
	}
	return first
}

// ends returns when the round is predicted to end.
func (o *slot) ends() time.Duration { return o.round.Start + o.round.Predicted.Latency }

// runs returns how many batches of the service are in the rounds that run.
func (v *device) runs(sv *service) (n int) {
	for i := range v.slots {
		for _, b := range v.slots[i].running {
			if b.service == sv {
				n++
			}
		}
	}
	return n
}

// frees appends to a list when each unit of the device is free, one time if it has no shares: none
// earlier than a time.
func (v *device) frees(to []time.Duration, at time.Duration) []time.Duration {
	for range v.units {
		to = append(to, at)
	}
	for i, k := 0, 0; i < len(v.slots) && v.units > 1; i++ {
		if o := &v.slots[i]; o.busy {
			for range v.width(o.round.Spans[0].Share) {
				to[k] = max(at, o.ends())
				k++
			}
		}
	}
	return to
}

// exclusive reports whether a service may start nothing more while its batches run: one of them, or
// the first that waits, is suspected to crash its worker, and would take the others along.
func (v *device) exclusive(sv *service) bool {
	if len(v.slots) == 1 || v.runs(sv) == 0 {
		return false
	}
	for i := range v.slots {
		for _, b := range v.slots[i].running {
			if b.service == sv && b.members[0].suspect() {
				return true
			}
		}
	}
	return sv.queue.len() > 0 && sv.queue.top().suspect()
}

// host is the devices of a pool.
type host struct {
	devices  []*device
	idle     bitset   // devices on which a round may start
	holding  bitset   // devices on which batches are paused
	overruns []*batch // that run beside the rounds, by service, then by device
}

// newHost returns the devices of a configuration, which run nothing.
func newHost(c *Config) host {
	predictors, units := c.Devices, c.each()
	devices := make([]*device, len(predictors))
	for i, p := range predictors {
		devices[i] = &device{index: i, kind: i, predict: prediction{Predictor: p}}
		devices[i].alone = len(c.Alone) > 0 && c.Alone[i]
		devices[i].divide(max(units[i], 1))
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

// first returns the device that predicts work of a service that is not bound to one yet: the first
// that it is up on.
func (h *host) first(sv *service) *device { return h.devices[max(sv.up.next(0), 0)] }

// predict returns what predicts such work.
func (h *host) predict(sv *service) *prediction { return &h.first(sv).predict }

// units returns of how many units each device consists.
func (h *host) units() (each []int) {
	for _, v := range h.devices {
		each = append(each, v.units)
	}
	return each
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

// divide gives a device units, on each of which a round may run by itself.
func (v *device) divide(units int) {
	v.units, v.free, v.slots = units, units, make([]slot, units)
	for share := 1; share < units; share *= 2 {
		v.shares = append(v.shares, share)
	}
	v.shares = append(v.shares, 0)
	for i := range v.slots {
		v.slots[i].round.Device, v.slots[i].round.Slot = v.index, i
	}
}

// take has a round or an overrun take units of a device, or with less than 0 give them back.
func (h *host) take(v *device, units int) {
	if v.free -= units; v.startable() > 0 {
		h.idle.set(v.index)
	} else {
		h.idle.clear(v.index)
	}
}

// runs returns how many batches of a service run.
func (h *host) runs(sv *service) (n int) {
	for _, v := range h.devices {
		n += v.runs(sv)
	}
	return n
}

// setApart makes an overrun of a span of a batch, which holds its worker until it ends.
func (h *host) setApart(b *batch, s models.Span) {
	b.Overrun, b.running = overrun{s.End, s.Share}, true
	b.service.busy.set(b.device.index)
	at, _ := slices.BinarySearchFunc(h.overruns, b, func(a, b *batch) int {
		return cmp.Or(cmp.Compare(a.service.ID, b.service.ID), cmp.Compare(a.device.index, b.device.index))
	})
	h.overruns = slices.Insert(h.overruns, at, b)
	if b.device.units > 1 {
		h.take(b.device, b.device.width(s.Share))
	}
}

// land ends an overrun.
func (h *host) land(b *batch) {
	share := b.Overrun.Share
	b.Overrun, b.running = overrun{}, false
	at := slices.Index(h.overruns, b)
	h.overruns = slices.Delete(h.overruns, at, at+1)
	if !slices.ContainsFunc(h.overruns, func(o *batch) bool { return o.service == b.service && o.device == b.device }) {
		b.service.busy.clear(b.device.index)
	}
	if b.device.units > 1 {
		h.take(b.device, -b.device.width(share))
	}
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

package loop

import (
	"errors"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// pending is what the backend keeps of a call, in Call.Backend.
type pending struct {
	call    *query.Call
	tensors []wire.Tensor
	outputs executor.QueryOutputs
	reply   []query.Tensor // memory of Reply.Outputs
	failure error          // why its batch failed, if it did, or a refusal
	under   *probation     // of its service
	lent    bool           // its memory is held until its batch ends, which has overrun
}

// desk is where the calls of a service are handed in, by any goroutine: its
// [query.Backend].
type desk struct {
	env    *env
	inputs *wire.InputArena
}

// Alloc implements Backend.
func (d *desk) Alloc(_ *query.Service, bytes int64) (query.Memory, error) {
	if bytes > d.inputs.Bytes() {
		return query.Memory{}, query.ErrTooLarge
	}
	offset, data, err := d.inputs.Alloc(bytes)
	switch {
	case errors.Is(err, wire.ErrArenaFull):
		return query.Memory{}, query.ErrNoMemory
	case err != nil:
		return query.Memory{}, query.ErrUnavailable
	}
	return query.Memory{Bytes: data, Offset: offset}, nil
}

// Free implements Backend.
func (d *desk) Free(s *query.Service, m query.Memory) {
	if err := d.inputs.Free(m.Offset); err != nil {
		d.env.log.Error().Err(err).Str("service", s.Name).Msg("releasing the memory of a query failed")
	}
}

// Submit implements Backend.
func (d *desk) Submit(c *query.Call) error {
	if d.env.mail.draining.Load() {
		return query.ErrDraining
	}
	p, ok := c.Backend.(*pending)
	if !ok {
		p = new(pending)
		c.Backend = p
	}
	p.call = c
	p.tensors = p.tensors[:0]
	for i := range c.Inputs {
		in := &c.Inputs[i]
		p.tensors = append(p.tensors, wire.Tensor{
			Type: in.Type, Shape: in.Shape, Offset: in.Offset, Bytes: int64(len(in.Data)),
		})
	}
	c.QueryID = models.QueryID(d.env.mail.lastID.Add(1))
	select {
	case d.env.mail.inbox <- message{call: c}:
	default:
		return query.ErrQueueFull
	}
	select {
	case <-d.env.mail.ending:
		d.env.mail.refuseAll() // the loop may have looked for the last time
	default:
	}
	return nil
}

// Cancel implements Backend. If the inbox is full the query runs in vain.
func (d *desk) Cancel(c *query.Call) {
	select {
	case d.env.mail.inbox <- message{cancel: c.QueryID}:
	default:
	}
}

// Release implements Backend.
func (d *desk) Release(c *query.Call) {
	p := c.Backend.(*pending)
	p.outputs.Release()
	p.outputs.Outputs = nil
	if !p.lent {
		d.Free(c.Service, c.Memory)
	}
	p.call, p.failure, p.under, p.lent = nil, nil, nil, false
}

package loop

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

const (
	// inboxLimit is how many messages may wait for the scheduler goroutine.
	// A query that finds the inbox full is refused as if its queue were full.
	inboxLimit = 8192

	// heartbeat is how often the scheduler goroutine shows that it is alive.
	heartbeat = time.Second

	// Stalled is for how long it may show nothing before it counts as hanging.
	Stalled = 10 * time.Second
)

// mailbox is how other goroutines reach the scheduler goroutine, and how they see
// that it is alive.
type mailbox struct {
	epoch    time.Time
	inbox    chan message
	board    status.Board
	ending   chan struct{} // closed when no more messages are taken
	done     chan struct{} // closed when the goroutine has ended
	draining atomic.Bool
	leaving  atomic.Bool   // it says that it is not ready, and still takes queries
	lastID   atomic.Uint64 // of a query
	beat     atomic.Int64  // when the goroutine last rested, since the epoch
}

// message is for the scheduler goroutine. One of the fields is set, or none to wake it.
type message struct {
	call   *query.Call
	cancel models.QueryID
	ask    func() // run by the loop, for what only it may read
}

func newMailbox() *mailbox {
	return &mailbox{epoch: time.Now(), inbox: make(chan message, inboxLimit), ending: make(chan struct{}), done: make(chan struct{})}
}

// now returns the time since the loop was made, by the monotonic clock.
func (m *mailbox) now() time.Duration { return time.Since(m.epoch) }

// ask runs f in the loop and waits for it. It reports false if the loop has ended.
func (m *mailbox) ask(f func()) bool {
	ran := make(chan struct{})
	m.tell(func() { f(); close(ran) })
	select {
	case <-ran:
		return true
	case <-m.done:
		return false
	}
}

// tell runs f in the loop. The message may not be lost, so tell waits: the loop drains its
// inbox for as long as there is somebody to tell.
func (m *mailbox) tell(f func()) {
	select {
	case m.inbox <- message{ask: f}:
	case <-m.ending:
	}
}

// refuseAll answers the calls that the loop will not take any more. Every
// call in the inbox is answered by it: the loop runs it after ending is
// closed, and so does whoever put a call there and then finds ending closed.
func (m *mailbox) refuseAll() {
	for {
		select {
		case x := <-m.inbox:
			if x.call != nil {
				x.call.Answer(query.Reply{Err: query.ErrDraining})
			}
		default:
			return
		}
	}
}

// pending is what the backend keeps of a call, in Call.Backend.
type pending struct {
	call    *query.Call
	outputs executor.QueryOutputs
	failure error      // why its batch failed, if it did, or a refusal
	under   *probation // of its service
	lent    bool       // its memory is held until its batch ends, which has overrun
}

// submitter is where the calls of a service are handed in, by any goroutine: its
// [query.Backend].
type submitter struct {
	env    *env
	inputs *wire.InputArena
}

// Alloc implements Backend.
func (d *submitter) Alloc(_ *query.Service, bytes int64) (query.Memory, error) {
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
func (d *submitter) Free(s *query.Service, m query.Memory) {
	if err := d.inputs.Free(m.Offset); err != nil {
		d.env.log.Error().Err(err).Str("service", s.Name).Msg("releasing the memory of a query failed")
	}
}

// Submit implements Backend.
func (d *submitter) Submit(c *query.Call) error {
	if d.env.mail.draining.Load() {
		return query.ErrDraining
	}
	p, ok := c.Backend.(*pending)
	if !ok {
		p = new(pending)
		c.Backend = p
	}
	p.call = c
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
func (d *submitter) Cancel(c *query.Call) {
	select {
	case d.env.mail.inbox <- message{cancel: c.QueryID}:
	default:
	}
}

// Release implements Backend.
func (d *submitter) Release(c *query.Call) {
	p := c.Backend.(*pending)
	p.outputs.Release()
	p.outputs.Outputs = nil
	if !p.lent {
		d.Free(c.Service, c.Memory)
	}
	p.call, p.failure, p.under, p.lent = nil, nil, nil, false
}

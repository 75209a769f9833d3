package gpu

import (
	"time"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/segments/wire"
)

// Limits on how far the host runs ahead of the device. Queued work hides launches that take
// longer than their kernels, and the time that the host needs to wake up. Queued work also
// completes after a stop word is set, so running ahead delays a pause.
const (
	// leastAhead is how many segments the host launches before it waits for the first of
	// them. It launches at most mostAhead before it waits.
	leastAhead = 4
	mostAhead  = 128

	// timeAhead is how much work the host keeps queued when the count is between the two
	// limits. The estimate uses the shortest time that each segment has taken. A segment
	// can take as little as 5 µs, and waking up takes 60 µs.
	timeAhead = 300 * time.Microsecond

	// pollTime is how long a wait polls the driver before it sleeps.
	pollTime = 50 * time.Microsecond
)

// ahead is the work launched since the last wait for everything. It counts segments from
// that wait. Segment n has entry n of the ring, modulo its length.
type ahead struct {
	least          int
	ring           []mark
	launched, done int

	// work is the estimated time of the segments that are launched and not known to be
	// done.
	work time.Duration
}

// mark is an event recorded after a segment, with the time that the segment takes, or 0 if
// that is not known.
type mark struct {
	event *driver.Event
	takes time.Duration
}

// oldest returns the mark of the segment that completes next.
func (a *ahead) oldest() *mark { return &a.ring[a.done%len(a.ring)] }

// enough reports whether the host may wait for the oldest segment, because the device has
// enough queued work after it.
func (a *ahead) enough() bool {
	n, oldest := a.launched-a.done, a.oldest().takes
	return n >= len(a.ring) || n >= a.least && (oldest == 0 || a.work-oldest >= timeAhead)
}

// Begin marks the start of a span.
func (d *Device) Begin() error {
	d.pending = true
	return d.Fault(d.first.Record(d.stream))
}

// Launched is called after each segment is launched, with the time that it usually takes,
// or 0. It waits while more work is queued than the device needs.
func (d *Device) Launched(takes time.Duration) error {
	a := &d.ahead
	m := &a.ring[a.launched%len(a.ring)]
	err := m.event.Record(d.stream)
	m.takes = takes
	a.launched++
	a.work += takes
	for err == nil && a.enough() {
		err = a.oldest().event.Sync(d.poll)
		a.work -= a.oldest().takes
		a.done++
	}
	return d.Fault(err)
}

// Sync waits for all queued work within a span.
func (d *Device) Sync() error {
	d.ahead.launched, d.ahead.done, d.ahead.work = 0, 0, 0
	err := d.last.Record(d.stream)
	if err == nil {
		err = d.last.Sync(d.poll)
	}
	if err == nil {
		d.staging.used = 0
	}
	return d.Fault(err)
}

// End waits for a span and for the copies queued after it. Bytes that were copied out are
// then valid.
func (d *Device) End() error {
	later := d.later
	d.later = nil
	err := d.Sync()
	if err == nil {
		d.took, err = d.last.Since(d.first)
		err = d.Fault(err)
	}
	if d.pending = err != nil; d.pending {
		return err
	}
	for _, f := range later {
		f()
	}
	return nil
}

// Settle waits for all queued work, if there is any, and forgets copies that were to be made
// at the end of a span.
func (d *Device) Settle() error {
	d.later = nil
	if !d.pending {
		return nil
	}
	d.pending = false
	return d.Sync()
}

// Took returns how long the device took for the last span that has ended.
func (d *Device) Took() time.Duration { return d.took }

// directCopyBytes is the size from which a part of a tensor is copied to the device
// directly. The host gathers smaller parts first, because each separate copy costs several
// microseconds.
const directCopyBytes = 64 << 10

// CopyIn queues copies of all parts to the device, one after another from an address on. The
// parts must not change before the next wait.
func (d *Device) CopyIn(to uint64, parts ...[]byte) error {
	d.pending = true
	if len(parts) > 1 && len(parts[0]) < directCopyBytes {
		gathered, err := d.gather(parts)
		if err != nil {
			return err
		}
		return d.Fault(d.stream.CopyIn(to, gathered))
	}
	for _, part := range parts {
		if err := d.Fault(d.stream.CopyIn(to, part)); err != nil {
			return err
		}
		to += uint64(len(part))
	}
	return nil
}

// CopyOut queues a copy from the device. The bytes are valid after End.
func (d *Device) CopyOut(dst []byte, from uint64) error {
	return d.Fault(d.stream.CopyOut(dst, from))
}

// CopyHost copies bytes of the host's memory once the span has ended, because the device may
// still be writing them.
func (d *Device) CopyHost(dst, from []byte) {
	d.later = append(d.later, func() { copy(dst, from) })
}

// staging is memory of the host in which small parts are gathered before they are copied.
// What is in use becomes free with the next wait.
type staging struct {
	memory []byte
	used   int
	pinned bool
}

// leastStaging is the size in bytes of the smallest staging memory.
const leastStaging = 64 << 10

// gather copies parts to the staging memory, one after another. If they do not fit, it waits
// for the copies from there, and makes the memory larger if that is not enough.
func (d *Device) gather(parts [][]byte) ([]byte, error) {
	bytes := 0
	for _, part := range parts {
		bytes += len(part)
	}
	s := &d.staging
	if bytes > len(s.memory)-s.used && s.used > 0 {
		if err := d.Sync(); err != nil {
			return nil, err
		}
	}
	if bytes > len(s.memory) {
		if err := s.open(d.context, max(bytes, 2*len(s.memory), leastStaging)); err != nil {
			return nil, err
		}
	}
	begin := s.used
	for _, part := range parts {
		s.used += copy(s.memory[s.used:], part)
	}
	return s.memory[begin:s.used], nil
}

// open replaces the memory. No queued work may still use the old memory.
func (s *staging) open(c *driver.Context, bytes int) error {
	memory, err := wire.MapPrivate(int64(bytes), "for gathering inputs")
	if err != nil {
		return err
	}
	s.close(c)
	s.memory, s.pinned = memory, c.Pin(memory) == nil
	return nil
}

// close unpins and frees the memory.
func (s *staging) close(c *driver.Context) {
	if s.pinned {
		_ = c.Unpin(s.memory) // an error means that the device is lost, and the pin with it
	}
	wire.Unmap(s.memory)
	*s = staging{}
}

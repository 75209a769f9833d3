package wire

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
)

// ErrBadOutput is returned if a worker reports an impossible output: it lies outside
// the arena, overlaps another output, has a slot that is taken, or has a size that
// does not match its shape.
var ErrBadOutput = errors.New("segments: worker reported an invalid output")

// Outputs is the daemon's side of the output arena and control page of one worker
// process. It checks everything that the worker reports. The memory stays mapped, the
// outputs read-only, until the worker is gone and the last lease is released. Outputs
// is safe for concurrent use.
type Outputs struct {
	file    *os.File
	mapped  []byte
	control controlPage
	data    []byte

	mu struct {
		sync.Mutex

		// leases are the live leases, sorted by their start.
		leases []span

		// slots holds the serial number of each slot's live lease, 0 for none. A
		// serial is never reused, so a second Release of a lease has no effect.
		slots  [MaxSlots]uint64
		serial uint64
		closed bool
	}
}

type span struct {
	start, end int64
	slot       uint32
}

// Lease is the right to read one output until Release.
type Lease struct {
	outputs *Outputs
	serial  uint64
	slot    uint32
}

// NewOutputs creates the output arena and the control page for one worker.
func NewOutputs(bytes int64) (*Outputs, error) {
	file, mapped, err := newMemory("overlapd-outputs", controlBytes, bytes, 0)
	if err != nil {
		return nil, err
	}
	o := &Outputs{file: file, mapped: mapped, control: controlPage(mapped[:controlBytes]), data: mapped[controlBytes:]}
	if err := unix.Mprotect(o.data, unix.PROT_READ); err != nil {
		o.Close()
		return nil, os.NewSyscallError("mprotect", err)
	}
	return o, nil
}

// File returns the memory as a file that the worker inherits. CloseFile closes it.
func (o *Outputs) File() *os.File { return o.file }

// CloseFile closes the file once the worker has inherited it.
func (o *Outputs) CloseFile() { o.file.Close() }

// Stop ends the run with this stop word at its next operator boundary.
func (o *Outputs) Stop(word uint32) { atomic.StoreUint32(o.control.stop(word), 1) }

// Held returns how many bytes the worker says its engine holds for intermediates.
func (o *Outputs) Held() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		return 0 // the control page may be unmapped
	}
	return max(atomic.LoadInt64(o.control.held()), 0)
}

// ClearStop makes the stop word available to another run. The run that had it must
// have been answered.
func (o *Outputs) ClearStop(word uint32) { atomic.StoreUint32(o.control.stop(word), 0) }

// Acquire checks an output that the worker reported, and leases it. The bytes remain
// valid until the lease is released.
func (o *Outputs) Acquire(t *OutputTensor) (Lease, []byte, error) {
	data := window(o.data, t.Offset, t.Bytes)
	switch {
	case data == nil:
		return Lease{}, nil, fmt.Errorf("%w: %d bytes at %d of %d", ErrBadOutput, t.Bytes, t.Offset, len(o.data))
	case t.Slot >= MaxSlots:
		return Lease{}, nil, fmt.Errorf("%w: slot %d", ErrBadOutput, t.Slot)
	case !fits(t.Type, t.Shape, t.Bytes):
		return Lease{}, nil, fmt.Errorf("%w: %s%v in %d bytes", ErrBadOutput, t.Type, t.Shape, t.Bytes)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	serial, err := o.leaseLocked(span{t.Offset, t.Offset + max(t.Bytes, 1), t.Slot})
	return Lease{o, serial, t.Slot}, data, err
}

// leaseLocked adds a lease, unless its slot is taken or its bytes overlap another's.
func (o *Outputs) leaseLocked(s span) (uint64, error) {
	if o.mu.closed {
		return 0, fmt.Errorf("%w: its worker is gone", ErrBadOutput)
	}
	if o.mu.slots[s.slot] != 0 {
		return 0, fmt.Errorf("%w: slot %d is already in use", ErrBadOutput, s.slot)
	}
	at, _ := slices.BinarySearchFunc(o.mu.leases, s.start, func(s span, start int64) int { return cmp.Compare(s.start, start) })
	if at > 0 && o.mu.leases[at-1].end > s.start || at < len(o.mu.leases) && o.mu.leases[at].start < s.end {
		return 0, fmt.Errorf("%w: bytes [%d, %d) are already in use", ErrBadOutput, s.start, s.end)
	}
	o.mu.leases = slices.Insert(o.mu.leases, at, s)
	o.mu.serial++
	o.mu.slots[s.slot] = o.mu.serial
	return o.mu.serial, nil
}

// Release ends the lease; its bytes must not be read afterwards. A second call, or a
// call on a zero Lease, does nothing.
func (l Lease) Release() {
	o := l.outputs
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.serial == 0 || o.mu.slots[l.slot] != l.serial {
		return
	}
	o.mu.slots[l.slot] = 0
	o.mu.leases = slices.DeleteFunc(o.mu.leases, func(s span) bool { return s.slot == l.slot })
	if !o.mu.closed {
		o.control.release(l.slot)
	} else if len(o.mu.leases) == 0 {
		Unmap(o.mapped)
	}
}

// Leases returns how many outputs are leased.
func (o *Outputs) Leases() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.leases)
}

// Close is called when the worker is gone and no run will be stopped any more. The
// memory is unmapped when the last lease is released.
func (o *Outputs) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		return
	}
	o.mu.closed = true
	o.file.Close()
	if len(o.mu.leases) == 0 {
		Unmap(o.mapped)
	}
}

// fits reports whether a tensor of this type and shape can have this many bytes. For
// strings only a lower bound is known: each has a length of four bytes.
func fits(t models.DataType, shape []int64, bytes int64) bool {
	element := int64(t.Bytes())
	if t == models.String {
		element = 4
	}
	if element == 0 || slices.Contains(shape, 0) {
		return element > 0 && bytes == 0
	}
	n, ok := models.Elements(shape)
	return ok && (n*element == bytes || t == models.String && n*element <= bytes)
}

// WorkerOutputs is the worker's side of the output arena. It allocates outputs there,
// and reuses them once the control page shows that the daemon released their slots.
type WorkerOutputs struct {
	mapped  []byte
	control controlPage
	data    []byte
	space   *allocator
	free    []uint32
	leases  []outputLease

	// releases is the daemon's count of releases at the last sweep.
	releases uint32
}

type outputLease struct {
	slot   uint32
	offset int64
}

// OpenOutputs maps the file that the daemon created for this worker.
func OpenOutputs(fd uintptr) (*WorkerOutputs, error) {
	size, err := memoryBytes(fd)
	if err != nil {
		return nil, err
	}
	if size <= controlBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrArenaSize, size)
	}
	mapped, err := mapMemory(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	a := &WorkerOutputs{
		mapped:  mapped,
		control: controlPage(mapped[:controlBytes]),
		data:    mapped[controlBytes:],
		space:   newAllocator(size - controlBytes),
		free:    make([]uint32, MaxSlots),
	}
	for i := range a.free {
		a.free[i] = uint32(MaxSlots - 1 - i)
	}
	return a, nil
}

// Alloc allocates memory for one output and leases it to the daemon. It returns
// ErrArenaFull if the daemon has not released enough earlier outputs.
func (a *WorkerOutputs) Alloc(t models.DataType, shape []int64, bytes int64) (OutputTensor, []byte, error) {
	a.sweep()
	if len(a.free) == 0 {
		return OutputTensor{}, nil, fmt.Errorf("%w: all %d output slots in use", ErrArenaFull, MaxSlots)
	}
	offset, err := a.space.alloc(bytes)
	if err != nil {
		return OutputTensor{}, nil, fmt.Errorf("outputs: %w", err)
	}
	slot := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	a.leases = append(a.leases, outputLease{slot, offset})
	atomic.StoreUint32(a.control.slot(slot), slotLeased)
	out := OutputTensor{Tensor: models.Tensor{Type: t, Shape: shape, Offset: offset, Bytes: bytes}, Slot: slot}
	return out, window(a.data, offset, bytes), nil
}

// Leased returns how many outputs the daemon had not released at the last Alloc.
func (a *WorkerOutputs) Leased() int { return len(a.leases) }

// Trim returns the pages of the arena to the system if no output is leased. The arena
// must not be pinned for a device.
func (a *WorkerOutputs) Trim() error {
	if a.sweep(); len(a.leases) > 0 {
		return nil
	}
	return os.NewSyscallError("madvise(MADV_REMOVE)", unix.Madvise(a.data, unix.MADV_REMOVE))
}

// Abandon releases an output that was never reported to the daemon.
func (a *WorkerOutputs) Abandon(out OutputTensor) { a.control.release(out.Slot) }

// sweep frees the outputs that were released since the last sweep.
func (a *WorkerOutputs) sweep() {
	releases := atomic.LoadUint32(a.control.releases())
	if releases == a.releases {
		return
	}
	a.releases = releases
	kept := a.leases[:0]
	for _, l := range a.leases {
		if atomic.CompareAndSwapUint32(a.control.slot(l.slot), slotReleased, slotFree) {
			_ = a.space.release(l.offset) // cannot fail: each lease has a block
			a.free = append(a.free, l.slot)
		} else {
			kept = append(kept, l)
		}
	}
	a.leases = kept
}

// SetHeld publishes how many bytes the engine holds for intermediates.
func (a *WorkerOutputs) SetHeld(bytes int64) { atomic.StoreInt64(a.control.held(), bytes) }

// Stop returns a stop word, which the daemon sets to end a run.
func (a *WorkerOutputs) Stop(word uint32) *uint32 { return a.control.stop(word) }

// Memory returns the whole mapping, including the control page.
func (a *WorkerOutputs) Memory() []byte { return a.mapped }

// Close unmaps the arena.
func (a *WorkerOutputs) Close() error {
	return os.NewSyscallError("munmap", unix.Munmap(a.mapped))
}

package wire

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
)

// WorkerOutputs is the worker's side of the output arena: it allocates there,
// and learns from the control page what the daemon is done with.
type WorkerOutputs struct {
	mapped   []byte
	control  controlPage
	data     []byte
	space    *allocator
	free     []uint32 // slots
	leases   []outputLease
	releases uint32 // value of the control page's word at the last sweep
}

type outputLease struct {
	slot   uint32
	offset int64
}

// OpenOutputs maps the file that the daemon made for this worker.
func OpenOutputs(fd uintptr) (*WorkerOutputs, error) {
	size, err := memoryBytes(fd)
	if err != nil {
		return nil, err
	}
	if size <= controlBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrArenaSize, size)
	}
	mapped, err := mapMemory(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE)
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

// Alloc leases memory for one output to the daemon.
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
	out := OutputTensor{Tensor: Tensor{Type: t, Shape: shape, Offset: offset, Bytes: bytes}, Slot: slot}
	return out, window(a.data, offset, bytes), nil
}

// Abandon takes back an output that the daemon was never told of.
func (a *WorkerOutputs) Abandon(out OutputTensor) { a.control.release(out.Slot) }

// sweep frees what the daemon has released since the last time.
func (a *WorkerOutputs) sweep() {
	releases := atomic.LoadUint32(a.control.releases())
	if releases == a.releases {
		return
	}
	a.releases = releases
	kept := a.leases[:0]
	for _, l := range a.leases {
		if atomic.CompareAndSwapUint32(a.control.slot(l.slot), slotReleased, slotFree) {
			_ = a.space.release(l.offset) // a lease is of a block
			a.free = append(a.free, l.slot)
		} else {
			kept = append(kept, l)
		}
	}
	a.leases = kept
}

// Stop returns the stop word of that index, which the daemon sets to end a run.
func (a *WorkerOutputs) Stop(word uint32) *uint32 { return a.control.stop(word) }

// Memory returns the whole mapping.
func (a *WorkerOutputs) Memory() []byte { return a.mapped }

// Close unmaps the arena.
func (a *WorkerOutputs) Close() error {
	return os.NewSyscallError("munmap", unix.Munmap(a.mapped))
}

package wire

import (
	"sync/atomic"
	"unsafe"
)

// Limits of the control page.
const (
	// StopWords is how many runs can be in flight in one worker.
	StopWords = 64

	// MaxSlots is how many outputs of one worker can be leased.
	MaxSlots = 4096
)

// The control page lies before the outputs in the same file. Every word has
// one writer at a time:
//
//   - releases: the daemon adds one after it has released slots. The worker
//     looks at its slots only if the number changed.
//   - a stop word belongs to one run in flight, which names it. The daemon
//     sets it to end that run at the next operator boundary, and clears it
//     when the run has been answered, before another run may name it. So a
//     stop can come too late, but it never reaches another run.
//   - a slot goes from free to leased (worker), to released (daemon), to free
//     (worker).
const (
	releasesOffset = 64
	stopsOffset    = 1024
	slotsOffset    = 4096
	controlBytes   = 64 << 10 // of which slotsOffset + 4*MaxSlots are used: outputs begin on a page, whatever its size
)

const (
	slotFree uint32 = iota
	slotLeased
	slotReleased
)

// controlPage is a mapping that starts with the control page.
type controlPage []byte

func (c controlPage) word(offset int) *uint32 {
	return (*uint32)(unsafe.Pointer(&c[offset : offset+4 : offset+4][0]))
}

func (c controlPage) releases() *uint32     { return c.word(releasesOffset) }
func (c controlPage) stop(i uint32) *uint32 { return c.word(stopsOffset + 4*int(i%StopWords)) }
func (c controlPage) slot(i uint32) *uint32 { return c.word(slotsOffset + 4*int(i%MaxSlots)) }

func (c controlPage) release(slot uint32) {
	atomic.StoreUint32(c.slot(slot), slotReleased)
	atomic.AddUint32(c.releases(), 1)
}

package wire

import (
	"errors"
	"fmt"
	"math/bits"
)

// Limits of an arena.
const (
	// ArenaAlign is the alignment of every block, in bytes: a cache line, and
	// what the vector units of the engine want.
	ArenaAlign = 64

	// MaxArenaBytes is the largest size of an arena.
	MaxArenaBytes = 1 << 40

	// classSteps is how many size classes lie between two powers of two. A
	// block is found in the first class whose blocks all fit, so at most
	// 1/classSteps of an arena is passed over by a search.
	classSteps     = 16
	classStepsBits = 4
	classLevels    = 40 - 6 - classStepsBits + 2

	// classSearchLimit bounds the search of the one class whose blocks may
	// or may not fit, which is tried when every larger class is empty.
	classSearchLimit = 16
)

// Errors of an arena.
var (
	// ErrArenaFull is returned when an arena has no free block that is large
	// enough, or no free slot.
	ErrArenaFull = errors.New("segments: shared memory is full")

	// ErrNotAllocated is returned when an offset is freed that is not the
	// start of an allocated block.
	ErrNotAllocated = errors.New("segments: offset is not allocated")

	// ErrArenaSize is returned when the size of an arena is zero, negative or
	// above MaxArenaBytes.
	ErrArenaSize = errors.New("segments: arena size out of bounds")
)

// allocator divides a range of bytes into blocks. Blocks of one size class
// are linked, bitmaps say which classes have any, and neighbours are joined
// when freed, so that both alloc and release take constant time (two-level
// segregated fit). Its state lies outside of the memory it divides: the
// other process can damage tensors, never the allocator. It is not safe for
// concurrent use.
type allocator struct {
	bytes, used int64

	// Blocks are named by their index. Those of spare are not in use, those of
	// starts are allocated, by offset.
	blocks []block
	spare  []int32
	starts map[int64]int32

	// The bitmaps have the levels with a free block and their steps, and free the
	// first free block of each class.
	levels uint64
	steps  [classLevels]uint32
	free   [classLevels][classSteps]int32
}

// block has as neighbours before and after it in memory, and prev and next in the
// list of its class while it is free.
type block struct {
	offset, bytes int64
	before, after int32
	prev, next    int32
	allocated     bool
}

// none is the index of no block.
const none int32 = -1

func newAllocator(bytes int64) *allocator {
	a := &allocator{bytes: bytes, starts: make(map[int64]int32)}
	for level := range a.free {
		for step := range a.free[level] {
			a.free[level][step] = none
		}
	}
	a.link(a.newBlock(block{bytes: bytes, before: none, after: none}))
	return a
}

// alloc returns the offset of a block of at least n bytes.
func (a *allocator) alloc(n int64) (int64, error) {
	if n < 0 || n > a.bytes {
		return 0, fmt.Errorf("%w: %d bytes asked for, %d of %d in use", ErrArenaFull, n, a.used, a.bytes)
	}
	n = alignUp(max(n, 1), ArenaAlign)
	i := a.find(n)
	if i == none {
		return 0, fmt.Errorf("%w: %d bytes asked for, %d of %d in use", ErrArenaFull, n, a.used, a.bytes)
	}
	a.unlink(i)
	a.split(i, n)
	b := &a.blocks[i]
	b.allocated = true
	a.starts[b.offset] = i
	a.used += b.bytes
	return b.offset, nil
}

// release gives back the block at offset.
func (a *allocator) release(offset int64) error {
	i, ok := a.starts[offset]
	if !ok {
		return fmt.Errorf("%w: %d", ErrNotAllocated, offset)
	}
	delete(a.starts, offset)
	b := &a.blocks[i]
	b.allocated = false
	a.used -= b.bytes
	i = a.join(b.before, i)
	i = a.join(i, a.blocks[i].after)
	a.link(i)
	return nil
}

// find returns a free block of at least n bytes, or none.
func (a *allocator) find(n int64) int32 {
	level, step := classAtLeast(n)
	if level < classLevels {
		if steps := a.steps[level] &^ (1<<step - 1); steps != 0 {
			return a.free[level][bits.TrailingZeros32(steps)]
		}
		if levels := a.levels &^ (1<<(level+1) - 1); levels != 0 {
			level = bits.TrailingZeros64(levels)
			return a.free[level][bits.TrailingZeros32(a.steps[level])]
		}
	}
	level, step = classOf(n)
	i := a.free[level][step]
	for tries := 0; i != none && tries < classSearchLimit; tries++ {
		if a.blocks[i].bytes >= n {
			return i
		}
		i = a.blocks[i].next
	}
	return none
}

// split cuts what exceeds n bytes off block i and frees it.
func (a *allocator) split(i int32, n int64) {
	b := a.blocks[i]
	if b.bytes == n {
		return
	}
	rest := a.newBlock(block{offset: b.offset + n, bytes: b.bytes - n, before: i, after: b.after})
	if b.after != none {
		a.blocks[b.after].before = rest
	}
	a.blocks[i].bytes, a.blocks[i].after = n, rest
	a.link(rest)
}

// join makes one block of the neighbours i and j if both are free or being
// freed, and returns the block that holds what was asked to be joined.
func (a *allocator) join(i, j int32) int32 {
	switch {
	case i == none:
		return j
	case j == none:
		return i
	case a.blocks[i].allocated:
		return j
	case a.blocks[j].allocated:
		return i
	}
	a.unlink(i)
	a.unlink(j)
	b := a.blocks[j]
	a.blocks[i].bytes += b.bytes
	a.blocks[i].after = b.after
	if b.after != none {
		a.blocks[b.after].before = i
	}
	a.spare = append(a.spare, j)
	return i
}

func (a *allocator) newBlock(b block) int32 {
	b.prev, b.next = none, none
	if n := len(a.spare); n > 0 {
		i := a.spare[n-1]
		a.spare = a.spare[:n-1]
		a.blocks[i] = b
		return i
	}
	a.blocks = append(a.blocks, b)
	return int32(len(a.blocks) - 1)
}

// link puts a free block at the head of its class: memory that was used last
// is used first, while it is in the caches.
func (a *allocator) link(i int32) {
	level, step := classOf(a.blocks[i].bytes)
	head := a.free[level][step]
	a.blocks[i].prev, a.blocks[i].next = none, head
	if head != none {
		a.blocks[head].prev = i
	}
	a.free[level][step] = i
	a.steps[level] |= 1 << step
	a.levels |= 1 << level
}

// unlink takes a block out of its class. A block that is being freed is in
// none.
func (a *allocator) unlink(i int32) {
	level, step := classOf(a.blocks[i].bytes)
	b := &a.blocks[i]
	switch {
	case b.prev != none:
		a.blocks[b.prev].next = b.next
	case a.free[level][step] == i:
		a.free[level][step] = b.next
	default:
		return
	}
	if b.next != none {
		a.blocks[b.next].prev = b.prev
	}
	b.prev, b.next = none, none
	if a.free[level][step] == none {
		a.steps[level] &^= 1 << step
		if a.steps[level] == 0 {
			a.levels &^= 1 << level
		}
	}
}

// classOf returns the class of a block of n bytes, a multiple of ArenaAlign.
func classOf(n int64) (level, step int) {
	units := uint64(n) / ArenaAlign
	if units < classSteps {
		return 0, int(units)
	}
	shift := bits.Len64(units) - 1 - classStepsBits
	return shift + 1, int(units>>shift) & (classSteps - 1)
}

// classAtLeast returns the first class all of whose blocks have n bytes.
func classAtLeast(n int64) (level, step int) {
	units := uint64(n) / ArenaAlign
	if units < classSteps {
		return 0, int(units)
	}
	shift := bits.Len64(units) - 1 - classStepsBits
	return classOf(int64(units+1<<shift-1) * ArenaAlign)
}

func alignUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

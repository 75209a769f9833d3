package wire

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

const (
	// ArenaAlign is the alignment of every block in bytes: a cache line, which
	// also suits the vector instructions of the engine.
	ArenaAlign = 64

	// MaxArenaBytes is the largest size of an arena.
	MaxArenaBytes = 1 << 40
)

// Errors of an arena.
var (
	// ErrArenaFull is returned if no free block is large enough, or no slot is
	// free.
	ErrArenaFull = errors.New("segments: shared memory is full")

	// ErrNotAllocated is returned if a freed offset is not the start of an
	// allocated block.
	ErrNotAllocated = errors.New("segments: offset is not allocated")

	// ErrArenaSize is returned if the size of an arena is not between 1 and
	// MaxArenaBytes.
	ErrArenaSize = errors.New("segments: arena size out of bounds")
)

// allocator divides a range of bytes into blocks. It places each at the lowest
// offset where it fits, so recently used memory is reused while it is in the caches.
// The allocator's state lies outside the memory it divides: the other process can
// corrupt tensors, but not the allocator. It is not safe for concurrent use.
type allocator struct {
	bytes, used int64

	// free is sorted by offset. Adjacent extents are always joined.
	free []extent

	// starts maps the offset of each allocated block to its size.
	starts map[int64]int64
}

type extent struct{ offset, bytes int64 }

func newAllocator(bytes int64) *allocator {
	return &allocator{bytes: bytes, free: []extent{{0, bytes}}, starts: make(map[int64]int64)}
}

// alloc returns the offset of a block of at least n bytes. A request for 0 bytes gets
// a block as well, so that every block has an offset of its own.
func (a *allocator) alloc(n int64) (int64, error) {
	want := alignUp(min(max(n, 1), a.bytes+1), ArenaAlign)
	i := 0
	for i < len(a.free) && a.free[i].bytes < want {
		i++
	}
	if n < 0 || i == len(a.free) {
		return 0, fmt.Errorf("%w: %d bytes requested, %d of %d in use", ErrArenaFull, n, a.used, a.bytes)
	}
	e := &a.free[i]
	offset := e.offset
	e.offset += want
	e.bytes -= want
	if e.bytes == 0 {
		a.free = slices.Delete(a.free, i, i+1)
	}
	a.starts[offset] = want
	a.used += want
	return offset, nil
}

// release frees the block at offset and joins it with free neighbours.
func (a *allocator) release(offset int64) error {
	bytes, ok := a.starts[offset]
	if !ok {
		return fmt.Errorf("%w: %d", ErrNotAllocated, offset)
	}
	delete(a.starts, offset)
	a.used -= bytes
	i, _ := slices.BinarySearchFunc(a.free, offset, func(e extent, at int64) int { return cmp.Compare(e.offset, at) })
	if i < len(a.free) && a.free[i].offset == offset+bytes {
		a.free[i] = extent{offset, bytes + a.free[i].bytes}
	} else {
		a.free = slices.Insert(a.free, i, extent{offset, bytes})
	}
	if i > 0 && a.free[i-1].offset+a.free[i-1].bytes == offset {
		a.free[i-1].bytes += a.free[i].bytes
		a.free = slices.Delete(a.free, i, i+1)
	}
	return nil
}

func alignUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

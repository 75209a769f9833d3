package wire

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

const (
	// ArenaAlign is the alignment of every block, in bytes: a cache line, and
	// what the vector units of the engine want.
	ArenaAlign = 64

	// MaxArenaBytes is the largest size of an arena.
	MaxArenaBytes = 1 << 40
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

// allocator divides a range of bytes into blocks, each at the lowest offset where
// it fits: memory that was used lately is used again while it is in the caches.
// Its state lies outside of the memory it divides: the other process can damage
// tensors, never the allocator. It is not safe for concurrent use.
type allocator struct {
	bytes, used int64
	free        []extent        // sorted by offset, no two of them neighbours
	starts      map[int64]int64 // the bytes of each allocated block, by offset
}

type extent struct{ offset, bytes int64 }

func newAllocator(bytes int64) *allocator {
	return &allocator{bytes: bytes, free: []extent{{0, bytes}}, starts: make(map[int64]int64)}
}

// alloc returns the offset of a block of at least n bytes.
func (a *allocator) alloc(n int64) (int64, error) {
	want := alignUp(min(max(n, 1), a.bytes+1), ArenaAlign)
	i := 0
	for i < len(a.free) && a.free[i].bytes < want {
		i++
	}
	if n < 0 || i == len(a.free) {
		return 0, fmt.Errorf("%w: %d bytes asked for, %d of %d in use", ErrArenaFull, n, a.used, a.bytes)
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

// release gives back the block at offset.
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

package wire

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// InputArena is memory in which the daemon places the inputs of a service's queries.
// It outlives the worker, so a query whose worker was lost can run again without
// copying its inputs. It is safe for concurrent use.
type InputArena struct {
	file *os.File
	data []byte

	mu struct {
		sync.Mutex
		*allocator
		closed bool
	}
}

// NewInputArena returns an arena of at least the given size. Workers can only read
// it, unless pinned is set: a GPU's driver may refuse to pin read-only memory.
func NewInputArena(bytes int64, pinned bool) (*InputArena, error) {
	seals := unix.F_SEAL_FUTURE_WRITE // rejects writable mappings other than the existing one
	if pinned {
		seals = 0
	}
	return newArena("overlapd-inputs", bytes, seals)
}

// NewMoveArena returns an arena through which batches of a service move between its
// workers, which write to it. The daemon only allocates there and never reads.
func NewMoveArena(bytes int64) (*InputArena, error) { return newArena("overlapd-moves", bytes, 0) }

func newArena(name string, bytes int64, seals int) (*InputArena, error) {
	file, data, err := newMemory(name, 0, bytes, seals)
	if err != nil {
		return nil, err
	}
	a := &InputArena{file: file, data: data}
	a.mu.allocator = newAllocator(int64(len(data)))
	return a, nil
}

// File returns the memory as a file that a worker inherits.
func (a *InputArena) File() *os.File { return a.file }

// Alloc returns a block of n bytes and its offset, aligned to ArenaAlign. The block
// is not cleared. Alloc returns ErrArenaFull if there is no room.
func (a *InputArena) Alloc(n int64) (offset int64, data []byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return 0, nil, fmt.Errorf("%w: closed", ErrArenaFull)
	}
	offset, err = a.mu.alloc(n)
	if err != nil {
		return 0, nil, err
	}
	return offset, window(a.data, offset, n), nil
}

// Free frees a block. No worker may be running a query that uses it. The last Free
// after Close unmaps the memory.
func (a *InputArena) Free(offset int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.mu.release(offset); err != nil {
		return err
	}
	if a.mu.closed && a.mu.used == 0 {
		return a.unmap()
	}
	return nil
}

// Contains reports whether a range lies inside the arena.
func (a *InputArena) Contains(offset, bytes int64) bool {
	return window(a.data, offset, bytes) != nil
}

// Bytes returns the size of the arena.
func (a *InputArena) Bytes() int64 { return int64(len(a.data)) }

// Used returns how many bytes are allocated.
func (a *InputArena) Used() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.used
}

// Close makes further allocations fail, and returns how many blocks are still
// allocated. The memory is unmapped when the last of them is freed.
func (a *InputArena) Close() (leaked int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return len(a.mu.starts), nil
	}
	a.mu.closed = true
	err = a.file.Close()
	if a.mu.used == 0 {
		err = a.unmap()
	}
	return len(a.mu.starts), err
}

func (a *InputArena) unmap() error {
	return os.NewSyscallError("munmap", unix.Munmap(a.data))
}

package wire

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newMemory returns an anonymous file of head bytes, plus bytes rounded up to a page,
// and maps it. Seals keep every process from shrinking or growing it: otherwise one
// process could make another fault on a page that is mapped but gone. More seals may
// be given. Pages are committed when they are first touched.
func newMemory(name string, head, bytes int64, seals int) (*os.File, []byte, error) {
	if bytes <= 0 || bytes > MaxArenaBytes {
		return nil, nil, fmt.Errorf("%w: %d bytes", ErrArenaSize, bytes)
	}
	bytes = head + alignUp(bytes, int64(os.Getpagesize()))
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), name)
	var data []byte
	if err = file.Truncate(bytes); err == nil {
		data, err = mapMemory(file.Fd(), bytes, unix.PROT_READ|unix.PROT_WRITE)
	}
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL|seals)
		err = os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
	}
	if err != nil {
		Unmap(data)
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, data, nil
}

func mapMemory(fd uintptr, bytes int64, protection int) ([]byte, error) {
	data, err := unix.Mmap(int(fd), 0, int(bytes), protection, unix.MAP_SHARED|unix.MAP_NORESERVE)
	return data, os.NewSyscallError("mmap", err)
}

// MapPrivate maps zeroed memory of this process alone, to be released with Unmap. what names
// its purpose in errors.
func MapPrivate(bytes int64, what string) ([]byte, error) {
	memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory %s (%d bytes): %w", what, bytes, err)
	}
	return memory, nil
}

// Unmap unmaps a whole mapping. It does nothing for nil.
func Unmap(data []byte) { _ = unix.Munmap(data) }

// MapArena maps an arena of the daemon in a worker. The inputs of a GPU, which are to
// be pinned, are writable as well, because the driver may require that; nothing writes
// to them.
func MapArena(fd uintptr, writable bool) ([]byte, error) {
	size, err := memoryBytes(fd)
	if err != nil {
		return nil, err
	}
	protection := unix.PROT_READ
	if writable {
		protection |= unix.PROT_WRITE
	}
	return mapMemory(fd, size, protection)
}

func memoryBytes(fd uintptr) (int64, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(fd), &stat); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return stat.Size, nil
}

// window returns data[offset:offset+bytes], or nil if the range lies outside.
func window(data []byte, offset, bytes int64) []byte {
	if offset < 0 || bytes < 0 || offset > int64(len(data)) || bytes > int64(len(data))-offset {
		return nil
	}
	return data[offset : offset+bytes : offset+bytes]
}

// Limits of the control page.
const (
	// StopWords limits the runs in flight in one worker.
	StopWords = 256

	// MaxSlots limits the leased outputs of one worker.
	MaxSlots = 4096
)

// The control page precedes the outputs in the same file. Every word has one writer
// at a time:
//
//   - releases: the daemon increments it after it has released slots. The worker
//     checks its slots only if the number changed.
//   - held: the worker writes how many bytes its engine holds for batches.
//   - A stop word belongs to the run in flight that names it. The daemon sets it to
//     end that run at the next operator boundary. It clears the word after the run
//     was answered, before another run may name it. A stop can thus come too late,
//     but can never reach another run.
//   - A slot goes from free to leased (by the worker), to released (by the daemon),
//     to free (by the worker).
const (
	releasesOffset = 64
	heldOffset     = 128
	stopsOffset    = 1024
	slotsOffset    = 4096

	// controlBytes exceeds slotsOffset + 4*MaxSlots. The outputs follow it, and begin
	// on a page for every page size up to 64 KiB.
	controlBytes = 64 << 10
)

const (
	slotFree uint32 = iota
	slotLeased
	slotReleased
)

// controlPage is a mapping that begins with the control page. Its words are shared
// with another process and must be accessed atomically.
type controlPage []byte

func (c controlPage) word(offset int) *uint32 {
	return (*uint32)(unsafe.Pointer(&c[offset : offset+4 : offset+4][0]))
}

func (c controlPage) held() *int64          { return (*int64)(unsafe.Pointer(c.word(heldOffset))) }
func (c controlPage) releases() *uint32     { return c.word(releasesOffset) }
func (c controlPage) stop(i uint32) *uint32 { return c.word(stopsOffset + 4*int(i%StopWords)) }
func (c controlPage) slot(i uint32) *uint32 { return c.word(slotsOffset + 4*int(i%MaxSlots)) }

// release marks a slot as released. The slot is stored before the counter, so that a
// worker that sees the new count also sees the slot.
func (c controlPage) release(slot uint32) {
	atomic.StoreUint32(c.slot(slot), slotReleased)
	atomic.AddUint32(c.releases(), 1)
}

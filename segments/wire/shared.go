package wire

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newMemory returns an anonymous file of at least head and bytes, the second rounded
// up to a page, and maps it. Nobody can shrink or grow it: no process can make another
// one fault on a page that is mapped but gone. More seals may be given. Pages are
// committed when they are first touched.
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

// Unmap unmaps a whole mapping. Of none it does nothing.
func Unmap(data []byte) { _ = unix.Munmap(data) }

// MapInputs maps the input arena of a worker: to read, and to write as well where a GPU's
// driver is to pin it, which nobody does.
func MapInputs(fd uintptr, pinned bool) ([]byte, error) {
	if !pinned {
		return mapWhole(fd, unix.PROT_READ)
	}
	return mapWhole(fd, unix.PROT_READ|unix.PROT_WRITE)
}

// MapMoves maps the memory through which batches move.
func MapMoves(fd uintptr) ([]byte, error) { return mapWhole(fd, unix.PROT_READ|unix.PROT_WRITE) }

func mapWhole(fd uintptr, protection int) ([]byte, error) {
	size, err := memoryBytes(fd)
	if err != nil {
		return nil, err
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

// window returns data[offset:offset+bytes], or nil if that is not inside.
func window(data []byte, offset, bytes int64) []byte {
	if offset < 0 || bytes < 0 || offset > int64(len(data)) || bytes > int64(len(data))-offset {
		return nil
	}
	return data[offset : offset+bytes : offset+bytes]
}

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
//   - held: the worker writes what its engine holds for batches, the daemon reads it.
//   - a stop word belongs to one run in flight, which names it. The daemon
//     sets it to end that run at the next operator boundary, and clears it
//     when the run has been answered, before another run may name it. So a
//     stop can come too late, but it never reaches another run.
//   - a slot goes from free to leased (worker), to released (daemon), to free
//     (worker).
const (
	releasesOffset = 64
	heldOffset     = 128
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

func (c controlPage) held() *int64          { return (*int64)(unsafe.Pointer(c.word(heldOffset))) }
func (c controlPage) releases() *uint32     { return c.word(releasesOffset) }
func (c controlPage) stop(i uint32) *uint32 { return c.word(stopsOffset + 4*int(i%StopWords)) }
func (c controlPage) slot(i uint32) *uint32 { return c.word(slotsOffset + 4*int(i%MaxSlots)) }

func (c controlPage) release(slot uint32) {
	atomic.StoreUint32(c.slot(slot), slotReleased)
	atomic.AddUint32(c.releases(), 1)
}

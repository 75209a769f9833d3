package segments

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// device is the memory that intermediates lie in and whoever computes on it.
// What it queues it does in that order, together with the sessions that run on
// it, and sync waits for all of it.
type device interface {
	// far reports whether its memory is not the host's, so that inputs and
	// outputs are copied, and work is queued instead of done at once.
	far() bool

	// name is for people, "" for the processor of this machine.
	name() string

	// key names what an optimized model depends on, besides ONNX Runtime.
	key() string

	// session makes a session with these options run here.
	session(o *ort.SessionOptions)
	program(sessions []*ort.Session) (*ort.Program, error)

	// onHost reports whether what lies in m is read by the host as it is.
	onHost(m ort.MemoryInfo) bool

	alloc(bytes int64) (region, error)
	free(b region) error
	tensor(b region, offset, bytes int64, elem ort.ElementType, dims []int64) (*ort.Value, error)

	// copyIn and copyOut queue a copy; the host's side of it must stay as it is
	// until sync.
	copyIn(b region, offset int64, src []byte) error
	copyOut(dst []byte, address uint64) error

	// begin marks the start of a span, end its end; end waits for it and
	// returns how long the device took from one to the other.
	begin() error
	end() (time.Duration, error)

	// launched is called after each segment, and waits when too many of them
	// are queued.
	launched() error
	sync() error

	// pin keeps host memory in place for copies, unpin lets it go.
	pin(memory []byte, readOnly bool) error
	unpin(memory []byte) error

	// memory returns what is free and what this process may take in all, 0 for
	// no limit.
	memory() (free, given int64, err error)

	// fault tells what an error of ONNX Runtime means for the device.
	fault(err error) error
}

// region is memory of a device.
type region struct {
	address uint64
	bytes   int64
	host    []byte // the same memory as the host sees it, nil if it cannot
}

// hostDevice is the processor that this process runs on.
type hostDevice struct{ env *ort.Env }

func (hostDevice) far() bool                     { return false }
func (hostDevice) name() string                  { return "" }
func (hostDevice) key() string                   { return "cpu " + cpuFeatures() }
func (hostDevice) session(*ort.SessionOptions)   {}
func (hostDevice) onHost(ort.MemoryInfo) bool    { return true }
func (hostDevice) begin() error                  { return nil }
func (hostDevice) end() (time.Duration, error)   { return 0, nil }
func (hostDevice) launched() error               { return nil }
func (hostDevice) sync() error                   { return nil }
func (hostDevice) pin([]byte, bool) error        { return nil }
func (hostDevice) unpin([]byte) error            { return nil }
func (hostDevice) fault(err error) error         { return err }
func (hostDevice) copyOut([]byte, uint64) error  { return errFar }
func (hostDevice) memory() (int64, int64, error) { return 0, 0, nil }

func (hostDevice) program(sessions []*ort.Session) (*ort.Program, error) {
	return ort.NewProgram(sessions)
}

func (hostDevice) alloc(bytes int64) (region, error) {
	memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return region{}, fmt.Errorf("memory for intermediates (%d bytes): %w", bytes, err)
	}
	return region{bytes: bytes, host: memory}, nil
}

func (hostDevice) free(b region) error {
	wire.Unmap(b.host)
	return nil
}

func (d hostDevice) tensor(b region, offset, bytes int64, elem ort.ElementType, dims []int64) (*ort.Value, error) {
	return d.env.TensorOn(b.host[offset:offset+bytes], elem, dims)
}

func (hostDevice) copyIn(b region, offset int64, src []byte) error {
	copy(b.host[offset:], src)
	return nil
}

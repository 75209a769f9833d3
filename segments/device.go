package segments

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// device is where sessions run, and the memory that holds their intermediates.
type device interface {
	// Name returns a name for people, or "" for this machine's CPU.
	Name() string

	// key names everything that an optimized model depends on, besides the version of ONNX
	// Runtime.
	key() string

	// Session sets the options so that a session runs on this device. half is set for a
	// session that has convolutions of half precision.
	Session(o *ort.SessionOptions, half bool)
	program(sessions []*ort.Session) (*ort.Program, error)

	// admit returns an error if there is not enough memory for a model. It is called before
	// any part of the model is loaded. findHomes then finds out where the inputs and
	// outputs of its sessions lie.
	admit(m *loaded) error
	findHomes(m *loaded) error

	// alloc allocates memory, and release frees it. tensor returns a tensor on a part of a
	// region.
	alloc(bytes int64) (region, error)
	release(r region)
	tensor(r region, offset, bytes int64, elem models.DataType, dims []int64) (*ort.Value, error)

	// free returns the free memory, and how much this process may use in all, or 0 for no
	// limit.
	free() (free, given int64, err error)

	// fault wraps an error of ONNX Runtime in the error that it means for the device.
	fault(err error) error
}

// region is a block of a device's memory.
type region struct {
	address uint64
	bytes   int64

	// host is the same memory as the host sees it, nil if the host cannot access it.
	host []byte
}

// hostDevice is the CPU that this process runs on.
type hostDevice struct{ env *ort.Env }

func (hostDevice) Name() string                      { return "" }
func (hostDevice) key() string                       { return "cpu " + cpuFeatures() }
func (hostDevice) Session(*ort.SessionOptions, bool) {}
func (hostDevice) admit(*loaded) error               { return nil }
func (hostDevice) findHomes(*loaded) error           { return nil }
func (hostDevice) fault(err error) error             { return err }
func (hostDevice) free() (int64, int64, error)       { return math.MaxInt64, 0, nil }
func (hostDevice) release(r region)                  { wire.Unmap(r.host) }

func (hostDevice) program(sessions []*ort.Session) (*ort.Program, error) {
	return ort.NewProgram(sessions)
}

func (hostDevice) alloc(bytes int64) (region, error) {
	memory, err := hostMemory(bytes, "for intermediates")
	return region{bytes: int64(len(memory)), host: memory}, err
}

// hostMemory returns zeroed memory of the host, to be released with wire.Unmap. what names
// its purpose in errors.
func hostMemory(bytes int64, what string) ([]byte, error) {
	memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory %s (%d bytes): %w", what, bytes, err)
	}
	return memory, nil
}

func (d hostDevice) tensor(r region, offset, bytes int64, elem models.DataType, dims []int64) (*ort.Value, error) {
	return d.env.TensorOn(r.host[offset:offset+bytes], elem, dims)
}

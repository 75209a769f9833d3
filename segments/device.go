package segments

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// device is where sessions run, and the memory that their intermediates lie in.
type device interface {
	// Name is for people, "" for the processor of this machine.
	Name() string

	// key names what an optimized model depends on, besides ONNX Runtime.
	key() string

	// Session makes a session with these options run here, one with convolutions of half
	// precision if half is true.
	Session(o *ort.SessionOptions, half bool)
	program(sessions []*ort.Session) (*ort.Program, error)

	// admit refuses a model for which there is not enough memory, before anything
	// of it is loaded, and findHomes asks its sessions where their ends lie.
	admit(m *loaded) error
	findHomes(m *loaded) error

	alloc(bytes int64) (region, error)
	release(r region)
	tensor(r region, offset, bytes int64, elem models.DataType, dims []int64) (*ort.Value, error)

	// free returns what is free and what this process may take in all, 0 for no
	// limit.
	free() (free, given int64, err error)

	// fault adds to an error of ONNX Runtime what it means for the device.
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

// hostMemory returns memory of the host, all zeros, which wire.Unmap gives back.
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

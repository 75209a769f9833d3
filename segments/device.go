package segments

import (
	"math"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
)

// device is where sessions run, and the memory that holds their intermediates.
type device interface {
	// Name returns a name for people, or "" for this machine's CPU.
	Name() string

	// Key names everything that an optimized model depends on, besides the version of ONNX
	// Runtime.
	Key() string

	// Session sets the options so that a session runs on this device. half is set for a
	// session that has convolutions of half precision.
	Session(o *ort.SessionOptions, half bool)
	Program(sessions []*ort.Session) (*ort.Program, error)

	// Free returns the free memory, and how much this process may use in all, or 0 for no
	// limit.
	Free() (free, limit int64, err error)

	// Fault wraps an error of ONNX Runtime in the error that it means for the device.
	Fault(err error) error

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
func (hostDevice) Key() string                       { return "cpu " + cpuFeatures() }
func (hostDevice) Session(*ort.SessionOptions, bool) {}
func (hostDevice) admit(*loaded) error               { return nil }
func (hostDevice) findHomes(*loaded) error           { return nil }
func (hostDevice) Fault(err error) error             { return err }
func (hostDevice) Free() (int64, int64, error)       { return math.MaxInt64, 0, nil }
func (hostDevice) release(r region)                  { wire.Unmap(r.host) }

func (hostDevice) Program(sessions []*ort.Session) (*ort.Program, error) {
	return ort.NewProgram(sessions)
}

func (hostDevice) alloc(bytes int64) (region, error) {
	memory, err := wire.MapPrivate(bytes, "for intermediates")
	return region{bytes: int64(len(memory)), host: memory}, err
}

func (d hostDevice) tensor(r region, offset, bytes int64, elem models.DataType, dims []int64) (*ort.Value, error) {
	return d.env.TensorOn(r.host[offset:offset+bytes], elem, dims)
}

// gpuDevice is a GPU.
type gpuDevice struct{ *gpu.Device }

// admit estimates the memory that the cut model needs and compares it with what is free.
func (d gpuDevice) admit(m *loaded) (err error) {
	m.memory = wire.SegmentsMemory(func(yield func(int64, bool) bool) {
		for p := range m.cut.pieces {
			if !yield(m.cut.weightsOf(p), m.cut.pieces[p].convolves) {
				return
			}
		}
	}, 1+len(m.more))
	if m.memory.Free, m.memory.Given, err = d.Free(); err != nil {
		return err
	}
	return m.memory.Check()
}

func (d gpuDevice) alloc(bytes int64) (region, error) {
	address, err := d.Alloc(bytes)
	if err != nil {
		return region{}, err
	}
	return region{address: address, bytes: bytes}, nil
}

func (d gpuDevice) release(r region) { d.Release(r.address) }

func (d gpuDevice) tensor(r region, offset, bytes int64, elem models.DataType, dims []int64) (*ort.Value, error) {
	return d.Tensor(r.address+uint64(offset), bytes, elem, dims)
}

// findHomes finds out where each value lies. The home of a value is the device, or the host
// for values that sessions produce or expect there, such as shapes. Values on the device
// are planned and count toward the budget. Values on the host are small and left to ONNX
// Runtime.
func (d gpuDevice) findHomes(m *loaded) (err error) {
	m.hostHome = make([]bool, len(m.types))
	m.waits = make([]bool, len(m.cut.pieces))
	wants := make([][]bool, len(m.sessions)) // which inputs a session expects in the host's memory
	for p, s := range m.sessions {
		var made []bool
		if wants[p], made, err = d.Homes(s); err != nil {
			return err
		}
		for pos, id := range m.cut.pieces[p].outputs {
			m.hostHome[id] = made[pos]
		}
	}
	for i, id := range m.inputs {
		m.hostHome[id] = true
		for _, u := range m.uses[i] {
			m.hostHome[id] = m.hostHome[id] && wants[u.piece][u.pos]
		}
	}
	for p := range m.cut.pieces {
		for pos, id := range m.cut.pieces[p].inputs {
			made := m.made[id].piece >= 0
			// The host reads this input, so the device must have written it; and ONNX
			// Runtime copies between homes without waiting for the stream.
			m.waits[p] = m.waits[p] || made && m.hostHome[id] || !m.hostHome[id] && wants[p][pos]
		}
	}
	for id := range m.hostHome {
		if m.hostHome[id] {
			m.known[id].shape = false // it has no place in the device's memory
		}
	}
	return nil
}

package segments

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// segmentsAhead is how many segments the host launches before it waits for the
// device to finish the first of them, if nothing else is said. A stop word that
// is set takes effect after as many segments at the most. More of them hide
// launches that take longer than their kernels.
const segmentsAhead = 4

// Device is a GPU that models run on, or one of its MIG instances, with the one
// stream on which all of their work is queued. It belongs to the goroutine that
// runs the models, which are closed before it.
type Device struct{ device }

// OpenCUDA takes the GPU into use: it makes a context and a stream, and one
// arena for the sessions of env. The error is ort.ErrNoProvider or
// ort.ErrProvider if ONNX Runtime cannot use a GPU, and one of cuda/driver if
// there is none.
func OpenCUDA(env *ort.Env, spec wire.CUDASpec) (*Device, error) {
	lib, err := driver.Open("")
	if err != nil {
		return nil, err
	}
	d, err := openCUDA(lib, env, spec)
	if err != nil {
		return nil, err
	}
	err = env.RegisterCUDAArena(d.options.Device, d.options.Arena)
	if err == nil {
		d.gpu, err = env.NewMemory(ort.CUDAMemory, d.options.Device)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return &Device{d}, nil
}

// Session makes a session with these options run on the device.
func (d *Device) Session(o *ort.SessionOptions) { d.session(o) }

// Name returns the name of the GPU and its compute capability.
func (d *Device) Name() string { return d.name() }

// Close gives the GPU back.
func (d *Device) Close() error {
	if c, ok := d.device.(interface{ close() error }); ok {
		return c.close()
	}
	return nil
}

// cudaDevice is the device that the CUDA driver gives.
type cudaDevice struct {
	env     *ort.Env
	context *driver.Context
	stream  *driver.Stream
	gpu     *ort.Memory // what ONNX Runtime calls the memory of the device
	options ort.CUDAOptions
	given   int64

	first, last *driver.Event   // of the span
	ring        []*driver.Event // one after each of the last segments
	queued      int             // segments since the last wait for all
}

func openCUDA(lib *driver.Library, env *ort.Env, spec wire.CUDASpec) (*cudaDevice, error) {
	found, err := lib.Find(spec.Device)
	if err != nil {
		return nil, err
	}
	context, err := lib.Retain(found, driver.ContextOptions{Spin: spec.Spin})
	if err != nil {
		return nil, err
	}
	d := &cudaDevice{env: env, context: context, given: spec.MemoryBytes}
	if err := d.open(spec); err != nil {
		return nil, errors.Join(err, d.close())
	}
	search := ort.ConvSearch(spec.ConvSearch)
	if search == "" {
		// Trying all algorithms takes a moment for each convolution and shape, and
		// what wins differs from start to start.
		search = ort.ConvHeuristic
	}
	d.options = ort.CUDAOptions{
		Device:     found.Ordinal,
		Stream:     d.stream.Pointer(),
		Arena:      ort.ArenaOptions{ExtendAsRequested: spec.ExtendAsRequested, LimitBytes: uint64(max(spec.MemoryBytes, 0))},
		ConvSearch: search,
		TF32:       spec.TF32,
	}
	return d, nil
}

func (d *cudaDevice) open(spec wire.CUDASpec) (err error) {
	if d.stream, err = d.context.NewStream(0); err != nil {
		return err
	}
	ahead := segmentsAhead
	if spec.Ahead > 0 {
		ahead = spec.Ahead
	}
	d.ring = make([]*driver.Event, ahead)
	for i := range d.ring {
		if d.ring[i], err = d.context.NewEvent(spec.Spin); err != nil {
			return err
		}
	}
	if d.first, err = d.context.NewEvent(spec.Spin); err != nil {
		return err
	}
	d.last, err = d.context.NewEvent(spec.Spin)
	return err
}

func (d *cudaDevice) close() error {
	var errs []error
	if d.gpu != nil {
		errs = append(errs, d.gpu.Close())
	}
	for _, e := range append(d.ring, d.first, d.last) {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if d.stream != nil {
		errs = append(errs, d.stream.Close())
	}
	return errors.Join(append(errs, d.context.Release())...)
}

func (d *cudaDevice) far() bool { return true }

func (d *cudaDevice) name() string {
	found := d.context.Device()
	return fmt.Sprintf("%s, compute capability %s", found.Name, found.Capability())
}

// key tells apart what the optimizer may: the GPU, and options that choose
// kernels.
func (d *cudaDevice) key() string {
	return fmt.Sprintf("%s %s tf32=%t", ort.CUDAProvider, d.name(), d.options.TF32)
}

// keyDeviceInitializers keeps weights out of the arena, which would round their
// memory up.
const keyDeviceInitializers = "session.use_device_allocator_for_initializers"

func (d *cudaDevice) session(o *ort.SessionOptions) {
	o.CUDA = &d.options
	config := map[string]string{keyDeviceInitializers: "1"}
	for key, value := range o.Config {
		config[key] = value
	}
	o.Config = config
}

func (d *cudaDevice) program(sessions []*ort.Session) (*ort.Program, error) {
	return ort.NewBoundProgram(sessions)
}

func (d *cudaDevice) onHost(m ort.MemoryInfo) bool { return m.Host }

func (d *cudaDevice) alloc(bytes int64) (region, error) {
	address, err := d.context.Alloc(bytes)
	if err != nil {
		return region{}, d.fault(fmt.Errorf("memory for intermediates: %w", err))
	}
	return region{address: uint64(address), bytes: bytes}, nil
}

func (d *cudaDevice) free(b region) error { return d.context.Free(driver.Address(b.address)) }

func (d *cudaDevice) tensor(b region, offset, bytes int64, elem ort.ElementType, dims []int64) (*ort.Value, error) {
	return d.env.TensorAt(d.gpu, b.address+uint64(offset), bytes, elem, dims)
}

func (d *cudaDevice) copyIn(b region, offset int64, src []byte) error {
	return d.fault(d.stream.CopyIn(driver.Address(b.address)+driver.Address(offset), src))
}

func (d *cudaDevice) copyOut(dst []byte, address uint64) error {
	return d.fault(d.stream.CopyOut(dst, driver.Address(address)))
}

func (d *cudaDevice) begin() error { return d.fault(d.first.Record(d.stream)) }

func (d *cudaDevice) end() (time.Duration, error) {
	d.queued = 0
	err := d.last.Record(d.stream)
	if err == nil {
		err = d.last.Sync()
	}
	if err != nil {
		return 0, d.fault(err)
	}
	took, err := d.last.Since(d.first)
	return took, d.fault(err)
}

func (d *cudaDevice) launched() error {
	mark := d.ring[d.queued%len(d.ring)]
	err := mark.Record(d.stream)
	d.queued++
	if err == nil && d.queued >= len(d.ring) {
		err = d.ring[d.queued%len(d.ring)].Sync() // the oldest one
	}
	return d.fault(err)
}

func (d *cudaDevice) sync() error {
	d.queued = 0
	return d.fault(d.stream.Sync())
}

func (d *cudaDevice) pin(memory []byte, readOnly bool) error {
	return d.context.Pin(memory, readOnly)
}

func (d *cudaDevice) unpin(memory []byte) error { return d.context.Unpin(memory) }

func (d *cudaDevice) memory() (free, given int64, err error) {
	free, _, err = d.context.MemInfo()
	return free, d.given, d.fault(err)
}

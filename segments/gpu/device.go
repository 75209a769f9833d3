package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// Device is a GPU, or one of its MIG instances, on which models run. Close the models before
// the device.
type Device struct {
	provider provider
	env      *ort.Env
	context  *driver.Context
	memory   *ort.Memory
	options  ort.CUDAOptions

	// limit is the memory that this process may use in all, or 0 for no limit.
	limit int64

	// graphs is set if segments may run as CUDA graphs. serving is set once the calling
	// thread is the one that serves: graphs are captured on that thread only.
	graphs  bool
	serving bool

	stream  *driver.Stream
	ahead   ahead
	staging staging

	// pins lists memory to unpin.
	pins [][]byte

	// first and last are the events before and after a span, and took is the time between
	// them for the last span that has ended.
	first, last *driver.Event
	took        time.Duration

	// poll is pollTime, except in tests.
	poll time.Duration

	// pending is set if work was queued since the last wait.
	pending bool

	// later holds copies from memory of the host, to be made after the next wait.
	later []func()
}

// provider is the part of a device that ONNX Runtime decides. Tests replace it to run
// sessions of the host on a device without a GPU.
type provider interface {
	// Memory prepares ONNX Runtime for sessions with these options, and describes the
	// memory in which their values lie.
	Memory(env *ort.Env, cuda ort.CUDAOptions) (*ort.Memory, error)

	// Key names everything that the optimizer's result depends on. Session sets the options
	// so that a session runs on the device. half is set for a session that has convolutions
	// of half precision.
	Key(device string, cuda ort.CUDAOptions) string
	Session(o *ort.SessionOptions, cuda ort.CUDAOptions, half bool)

	// Homes reports, for each input and output of a session, whether it lies in memory that
	// the host can read.
	Homes(s *ort.Session) (inputs, outputs []bool, err error)
}

// Open opens a GPU: it creates a context, a stream, and one arena for all sessions of env.
// The error is ort.ErrNoProvider or ort.ErrProvider if ONNX Runtime cannot use a GPU, and an
// error of cuda/driver if there is none.
func Open(env *ort.Env, spec wire.CUDASpec) (*Device, error) {
	lib, err := driver.Open("")
	if err != nil {
		return nil, err
	}
	return OpenWith(lib, env, spec, cuda{}, leastAhead)
}

// OpenWith is Open with a driver, a provider and a number of segments to launch at least
// before a wait that a test chooses.
func OpenWith(lib *driver.Library, env *ort.Env, spec wire.CUDASpec, p provider, least int) (*Device, error) {
	context, err := lib.Retain(spec.Device, spec.Spin)
	if err != nil {
		return nil, err
	}
	d := &Device{provider: p, env: env, context: context, limit: spec.MemoryBytes, graphs: spec.Graphs, poll: pollTime}
	d.ahead = ahead{least: least, ring: make([]mark, max(least, mostAhead))}
	if err := errors.Join(checkMPS(context, spec.MPS), d.open(spec)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Errors for a driver whose use of MPS contradicts the configuration.
var (
	errMPS   = errors.New("the CUDA driver uses an MPS server")
	errNoMPS = errors.New("the CUDA driver uses no MPS server")
)

// checkMPS returns an error if the driver uses MPS although the configuration says
// otherwise, or the reverse. The check is necessary because the driver runs a process
// without MPS if it cannot connect to the server, and reports nothing.
func checkMPS(context *driver.Context, want *bool) error {
	on, known := context.MPS()
	switch {
	case want == nil || !known || on == *want:
		return nil
	case on:
		return fmt.Errorf(`%w, and mode is "off" in [mps]; set mode = "existing", or stop that server`, errMPS)
	}
	return fmt.Errorf(`%w: its control daemon cannot be reached, or serves another user; see its log, or set mode = "off" in [mps]`, errNoMPS)
}

// open creates the stream and the events, and prepares ONNX Runtime.
func (d *Device) open(spec wire.CUDASpec) (err error) {
	if d.stream, err = d.context.NewStream(); err != nil {
		return err
	}
	for _, e := range d.events() {
		if *e, err = d.context.NewEvent(spec.Spin); err != nil {
			return err
		}
	}
	d.options = ort.CUDAOptions{
		Device:     d.context.Ordinal(),
		Stream:     d.stream.Pointer(),
		LimitBytes: uint64(max(spec.MemoryBytes, 0)),
		TF32:       spec.TF32,

		// An exhaustive search takes noticeable time for each convolution and shape, and
		// its winner differs between starts.
		ConvSearch: cmp.Or(spec.ConvSearch, ort.ConvHeuristic),
	}
	d.memory, err = d.provider.Memory(d.env, d.options)
	return err
}

// events returns where the events are stored.
func (d *Device) events() []**driver.Event {
	all := []**driver.Event{&d.first, &d.last}
	for i := range d.ahead.ring {
		all = append(all, &d.ahead.ring[i].event)
	}
	return all
}

// Close releases the GPU. It first waits for queued work, because ONNX Runtime's callbacks
// in the stream release pinned memory, and its arenas are closed with the Env.
func (d *Device) Close() error {
	var errs []error
	if d.stream != nil {
		errs = append(errs, d.stream.Sync())
	}
	if d.memory != nil {
		errs = append(errs, d.memory.Close())
	}
	d.staging.close(d.context)
	for _, memory := range d.pins {
		errs = append(errs, d.context.Unpin(memory))
	}
	for _, e := range d.events() {
		if *e != nil {
			errs = append(errs, (*e).Close())
		}
	}
	if d.stream != nil {
		errs = append(errs, d.stream.Close())
	}
	return errors.Join(append(errs, d.context.Release())...)
}

// Name returns the name of the GPU and its compute capability.
func (d *Device) Name() string { return d.context.Name() }

// Key names everything on the device that the optimizer's result depends on.
func (d *Device) Key() string { return d.provider.Key(d.Name(), d.options) }

// Session sets the options so that a session runs on this device. half is set for a session
// that has convolutions of half precision.
func (d *Device) Session(o *ort.SessionOptions, half bool) {
	d.provider.Session(o, d.options, half)
}

// Homes reports, for each input and output of a session, whether it lies in memory that the
// host can read.
func (d *Device) Homes(s *ort.Session) (inputs, outputs []bool, err error) {
	return d.provider.Homes(s)
}

// Program binds sessions whose values lie in the memory of the device.
func (d *Device) Program(sessions []*ort.Session) (*ort.Program, error) {
	return ort.NewBoundProgram(sessions)
}

// Graphs reports whether segments may be prepared for CUDA graphs. Captures reports whether
// they may be captured now, which Serve permits.
func (d *Device) Graphs() bool   { return d.graphs }
func (d *Device) Captures() bool { return d.graphs && d.serving }

// Serve says that the calling thread is the one that serves.
func (d *Device) Serve() { d.serving = true }

// Alloc allocates memory, and Release frees it.
func (d *Device) Alloc(bytes int64) (address uint64, err error) {
	at, err := d.context.Alloc(bytes)
	if err != nil {
		return 0, d.Fault(fmt.Errorf("memory for intermediates: %w", err))
	}
	return uint64(at), nil
}

// Release frees memory. An error means that the device is lost, and the next call that uses
// the device returns it.
func (d *Device) Release(address uint64) { _ = d.context.Free(address) }

// Tensor returns a tensor on the memory at an address.
func (d *Device) Tensor(address uint64, bytes int64, elem models.DataType, dims []int64) (*ort.Value, error) {
	return d.env.TensorAt(d.memory, address, bytes, elem, dims)
}

// Free returns the free memory, and how much this process may use in all, or 0 for no limit.
func (d *Device) Free() (free, limit int64, err error) {
	free, _, err = d.context.MemInfo()
	return free, d.limit, d.Fault(err)
}

// maxPinnedBytes is the largest range that is pinned, because all pages of a pinned range
// stay allocated.
const maxPinnedBytes = 1 << 30

// Pin locks memory of the host in place until Close, so that the device can copy it
// directly. If it returns an error, copies are only slower.
func (d *Device) Pin(memory []byte) error {
	if len(memory) == 0 {
		return nil
	}
	if int64(len(memory)) > maxPinnedBytes {
		return fmt.Errorf("%d bytes of shared memory are not pinned, because the limit is %d: copies to the GPU are slower", len(memory), int64(maxPinnedBytes))
	}
	if err := d.context.Pin(memory); err != nil {
		return fmt.Errorf("shared memory cannot be pinned, copies to the GPU are slower: %w", err)
	}
	d.pins = append(d.pins, memory)
	return nil
}

// Fault wraps an error of the device in the error that it means for the worker, such as
// wire.ErrDeviceLost. ONNX Runtime reports driver errors only as text, and may report a
// kernel's error later; Fault therefore asks the driver as well.
func (d *Device) Fault(err error) error {
	if err == nil || errors.Is(err, wire.ErrDeviceMemory) || errors.Is(err, wire.ErrDeviceLost) {
		return err
	}
	if r, ok := resultOf(err); ok {
		return deviceError(r, err)
	}
	var said *ort.Error
	if errors.As(err, &said) {
		var r driver.Result
		if errors.As(d.stream.Sync(), &r) {
			return deviceError(r, err)
		}
	}
	return err
}

// deviceError wraps err according to the driver's result that caused it.
func deviceError(r driver.Result, err error) error {
	switch {
	case r.OutOfMemory():
		return fmt.Errorf("%w: %w", wire.ErrDeviceMemory, err)
	case r.Sticky():
		return fmt.Errorf("%w: %w", wire.ErrDeviceLost, err)
	}
	return err
}

// resultOf finds the driver's result in an error, either as the error itself or in the text
// of an error of ONNX Runtime.
func resultOf(err error) (driver.Result, bool) {
	var r driver.Result
	if errors.As(err, &r) {
		return r, true
	}
	var said *ort.Error
	if !errors.As(err, &said) {
		return 0, false
	}
	if _, rest, ok := strings.Cut(said.Message, "CUDA failure "); ok {
		if _, err := fmt.Sscanf(rest, "%d:", &r); err == nil {
			return r, true
		}
	}
	for _, words := range [...]string{"Failed to allocate memory for requested buffer", "Available memory of", "CUDA out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"} {
		if strings.Contains(said.Message, words) {
			return driver.OutOfMemory, true
		}
	}
	return 0, false
}

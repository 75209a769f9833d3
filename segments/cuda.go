package segments

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// Limits on how far the host runs ahead of the device. Queued work hides launches that take
// longer than their kernels, and the time that the host needs to wake up. Queued work also
// completes after a stop word is set, so running ahead delays a pause.
const (
	// leastAhead is how many segments the host launches before it waits for the first of
	// them. It launches at most mostAhead before it waits.
	leastAhead = 4
	mostAhead  = 128

	// timeAhead is how much work the host keeps queued when the count is between the two
	// limits. The estimate uses the shortest time that each segment has taken. A segment
	// can take as little as 5 µs, and waking up takes 60 µs.
	timeAhead = 300 * time.Microsecond

	// pollTime is how long a wait polls the driver before it sleeps.
	pollTime = 50 * time.Microsecond
)

// Device is a GPU, or one of its MIG instances, on which models run, with the one stream
// for all of their work. It belongs to the goroutine that runs the models. Close the models
// before the device.
type Device struct {
	provider
	env     *ort.Env
	context *driver.Context
	stream  *driver.Stream
	memory  *ort.Memory
	options ort.CUDAOptions

	// given is the memory that this process may use in all, or 0 for no limit.
	given int64

	// graphs is set if segments may run as CUDA graphs. serving is set once the calling
	// thread is the one that serves: graphs are captured on that thread only.
	graphs  bool
	serving bool

	// first and last are the events before and after a span.
	first, last *driver.Event

	// poll is pollTime, except in tests.
	poll time.Duration
	ahead
}

// ahead is the work launched since the last wait for everything. It counts segments from
// that wait. Segment n has entry n of the ring, modulo its length.
type ahead struct {
	least          int
	ring           []mark
	launched, done int

	// work is the estimated time of the segments that are launched and not known to be
	// done.
	work time.Duration
}

// mark is an event recorded after a segment, with the time that the segment takes, or 0 if
// that is not known.
type mark struct {
	*driver.Event
	takes time.Duration
}

// oldest returns the mark of the segment that completes next.
func (a *ahead) oldest() *mark { return &a.ring[a.done%len(a.ring)] }

// enough reports whether the host may wait for the oldest segment, because the device has
// enough queued work after it.
func (a *ahead) enough() bool {
	n, oldest := a.launched-a.done, a.oldest().takes
	return n >= len(a.ring) || n >= a.least && (oldest == 0 || a.work-oldest >= timeAhead)
}

// provider is the part of a device that ONNX Runtime decides. Tests replace it to run
// sessions of the host on a device without a GPU.
type provider interface {
	key() string
	Session(o *ort.SessionOptions, half bool)
	// homes reports, for each input and output of a session, whether it lies in memory that
	// the host can read.
	homes(s *ort.Session) (inputs, outputs []bool, err error)
}

// OpenCUDA opens a GPU: it creates a context, a stream, and one arena for all sessions of
// env. The error is ort.ErrNoProvider or ort.ErrProvider if ONNX Runtime cannot use a GPU,
// and an error of cuda/driver if there is none.
func OpenCUDA(env *ort.Env, spec wire.CUDASpec) (*Device, error) {
	lib, err := driver.Open("")
	if err != nil {
		return nil, err
	}
	d, err := openCUDA(lib, env, spec, leastAhead)
	if err != nil {
		return nil, err
	}
	err = env.RegisterCUDAArena(d.options)
	if err == nil {
		if pinned := env.RegisterPinnedArena(d.options); pinned != nil {
			fmt.Fprintln(os.Stderr, "overlapd worker: warning: each session has its own arena of pinned memory, and closing it may end the worker:", pinned)
		}
		d.memory, err = env.NewMemory(ort.CUDAMemory, d.options.Device)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// openCUDA opens a GPU through lib. The host launches at least the given number of segments
// before it waits.
func openCUDA(lib *driver.Library, env *ort.Env, spec wire.CUDASpec, least int) (*Device, error) {
	context, err := lib.Retain(spec.Device, spec.Spin)
	if err != nil {
		return nil, err
	}
	d := &Device{env: env, context: context, given: spec.MemoryBytes, graphs: spec.Graphs, poll: pollTime}
	d.least, d.ring = least, make([]mark, max(least, mostAhead))
	if err := errors.Join(checkMPS(context, spec.MPS), d.open(spec)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.options = ort.CUDAOptions{
		Device:     context.Ordinal(),
		Stream:     d.stream.Pointer(),
		LimitBytes: uint64(max(spec.MemoryBytes, 0)),
		TF32:       spec.TF32,

		// An exhaustive search takes noticeable time for each convolution and shape, and
		// its winner differs between starts.
		ConvSearch: cmp.Or(spec.ConvSearch, ort.ConvHeuristic),
	}
	d.provider = cudaProvider{d}
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

// open creates the stream and the events.
func (d *Device) open(spec wire.CUDASpec) (err error) {
	d.stream, err = d.context.NewStream()
	events := []**driver.Event{&d.first, &d.last}
	for i := range d.ring {
		events = append(events, &d.ring[i].Event)
	}
	for i := 0; i < len(events) && err == nil; i++ {
		*events[i], err = d.context.NewEvent(spec.Spin)
	}
	return err
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
	for _, e := range append(d.ring, mark{Event: d.first}, mark{Event: d.last}) {
		if e.Event != nil {
			errs = append(errs, e.Close())
		}
	}
	if d.stream != nil {
		errs = append(errs, d.stream.Close())
	}
	return errors.Join(append(errs, d.context.Release())...)
}

// Name returns the name of the GPU and its compute capability.
func (d *Device) Name() string { return d.context.Name() }

// cudaProvider is ONNX Runtime's CUDA execution provider.
type cudaProvider struct{ *Device }

// key names everything on the device that the optimizer's result depends on: the GPU, and
// the options that select kernels.
func (p cudaProvider) key() string {
	return fmt.Sprintf("%s %s tf32=%t", ort.CUDAProvider, p.Name(), p.options.TF32)
}

// keyDeviceInitializers is an option of ONNX Runtime that keeps weights out of the arena,
// which would round up the size of their memory.
const keyDeviceInitializers = "session.use_device_allocator_for_initializers"

// Session enables TF32 for convolutions of half precision, because cuDNN does not use the
// tensor cores for them otherwise. It disables ONNX Runtime's single block for all
// intermediates of a session: older versions do not return blocks that another thread has
// allocated, and all sessions share the arena.
func (p cudaProvider) Session(o *ort.SessionOptions, half bool) {
	cuda := p.options
	cuda.TF32 = cuda.TF32 || half
	o.CUDA, o.NoMemoryPattern = &cuda, true
	config := map[string]string{keyDeviceInitializers: "1"}
	maps.Copy(config, o.Config)
	o.Config = config
}

func (p cudaProvider) homes(s *ort.Session) (inputs, outputs []bool, err error) {
	return s.OnHost()
}

func (d *Device) program(sessions []*ort.Session) (*ort.Program, error) {
	return ort.NewBoundProgram(sessions)
}

// admit implements [device]. It estimates the memory that the cut model needs and compares
// it with what is free.
func (d *Device) admit(m *loaded) (err error) {
	m.memory = wire.SegmentsMemory(func(yield func(int64, bool) bool) {
		for p := range m.cut.pieces {
			if !yield(m.cut.weightsOf(p), m.cut.pieces[p].convolves) {
				return
			}
		}
	}, m.rungs)
	if m.memory.Free, m.memory.Given, err = d.free(); err != nil {
		return err
	}
	return m.memory.Check()
}

func (d *Device) alloc(bytes int64) (region, error) {
	address, err := d.context.Alloc(bytes)
	if err != nil {
		return region{}, d.fault(fmt.Errorf("memory for intermediates: %w", err))
	}
	return region{address: uint64(address), bytes: bytes}, nil
}

// release frees memory. An error means that the device is lost, and the next call that uses
// the device returns it.
func (d *Device) release(r region) { _ = d.context.Free(r.address) }

func (d *Device) tensor(r region, offset, bytes int64, elem models.DataType, dims []int64) (*ort.Value, error) {
	return d.env.TensorAt(d.memory, r.address+uint64(offset), bytes, elem, dims)
}

func (d *Device) free() (free, given int64, err error) {
	free, _, err = d.context.MemInfo()
	return free, d.given, d.fault(err)
}

// copyIn queues a copy to the device, and copyOut one from it. The host's side of a copy
// must not change before the next wait.
func (d *Device) copyIn(r region, offset int64, src []byte) error {
	return d.fault(d.stream.CopyIn(r.address+uint64(offset), src))
}

func (d *Device) copyOut(dst []byte, address uint64) error {
	return d.fault(d.stream.CopyOut(dst, address))
}

// begin marks the start of a span and end marks its end. end also waits for the span, and
// returns how long the device took for it.
func (d *Device) begin() error { return d.fault(d.first.Record(d.stream)) }

func (d *Device) end() (time.Duration, error) {
	if err := d.sync(); err != nil {
		return 0, err
	}
	took, err := d.last.Since(d.first)
	return took, d.fault(err)
}

// follow is called after each segment is launched, with the time that it usually takes. It
// waits while more work is queued than the device needs.
func (d *Device) follow(takes time.Duration) error {
	m := &d.ring[d.launched%len(d.ring)]
	err := m.Record(d.stream)
	m.takes = takes
	d.launched++
	d.work += takes
	for err == nil && d.enough() {
		err = d.oldest().Sync(d.poll)
		d.work -= d.oldest().takes
		d.done++
	}
	return d.fault(err)
}

// sync waits for all queued work.
func (d *Device) sync() error {
	d.launched, d.done, d.work = 0, 0, 0
	err := d.last.Record(d.stream)
	if err == nil {
		err = d.last.Sync(d.poll)
	}
	return d.fault(err)
}

// fault wraps an error of the device in the error that it means for the worker, such as
// wire.ErrDeviceLost. ONNX Runtime reports driver errors only as text, and may report a
// kernel's error later; fault therefore asks the driver as well.
func (d *Device) fault(err error) error {
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

// findHomes finds out where each value lies. The home of a value is the device, or the host
// for values that sessions produce or expect there, such as shapes. Values on the device
// are planned and count toward the budget. Values on the host are small and left to ONNX
// Runtime.
func (d *Device) findHomes(m *loaded) error {
	m.hostHome = make([]bool, len(m.types))
	m.waits = make([]bool, len(m.cut.pieces))
	wants, err := d.homesOfSessions(m)
	if err != nil {
		return err
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

// homesOfSessions sets the homes of the values that sessions produce. It returns, for each
// input of each session, whether the session expects it in the host's memory.
func (d *Device) homesOfSessions(m *loaded) (wants [][]bool, err error) {
	wants = make([][]bool, len(m.sessions))
	for p, s := range m.sessions {
		var made []bool
		if wants[p], made, err = d.homes(s); err != nil {
			return nil, err
		}
		for pos, id := range m.cut.pieces[p].outputs {
			m.hostHome[id] = made[pos]
		}
	}
	return wants, nil
}

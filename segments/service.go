package segments

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
	"github.com/overlapd/overlapd/stats"
)

var _ worker.Engine = (*service)(nil)

// service is the model of a worker process, together with the runtime that
// the process has for it alone.
type service struct {
	*CutModel
	env    *ort.Env
	device *Device         // nil for the CPU
	choice *wire.CutChoice // nil if none was asked for
	solo   []wire.Solo
	fault  string // why the first run of warming up failed
	moves  []byte // to be pinned when the first batch moves, nil if there is none
}

// LoadONNX loads the model of a worker process with ONNX Runtime and warms it
// up. It is the LoadFunc of a real worker.
func LoadONNX(spec wire.LoadSpec, memory worker.Memory, progress worker.ProgressFunc) (worker.Engine, error) {
	progress("runtime", 0, 1)
	var lib *ort.Library
	err := kindly(func() (err error) {
		lib, err = ort.Load()
		return err
	})
	if err != nil {
		return nil, err
	}
	// The threads of the pool have the priority of the one that makes them.
	env, err := lib.NewEnv(ort.EnvOptions{
		Name:         spec.Service,
		IntraThreads: max(spec.Threads, 1),
		Spin:         spec.Spin,
	})
	if err != nil {
		return nil, err
	}
	s, err := openService(env, OpenCUDA, spec, memory, progress)
	if err != nil {
		return nil, errors.Join(err, env.Close())
	}
	return s, nil
}

// openService loads the model on the device that the spec names, which open opens if
// it is a GPU. It is called on the thread that will serve.
func openService(env *ort.Env, open func(*ort.Env, wire.CUDASpec) (*Device, error), spec wire.LoadSpec, memory worker.Memory, progress worker.ProgressFunc) (s *service, err error) {
	var device *Device
	if spec.CUDA != nil {
		// The driver's threads, too, have the priority of the one that makes them.
		progress("device", 0, 1)
		if device, err = open(env, *spec.CUDA); err != nil {
			return nil, err
		}
	}
	err = kindly(func() error {
		s, err = loadService(env, device, spec, progress)
		return err
	})
	if err != nil || device == nil {
		if device != nil {
			err = errors.Join(err, device.Close())
		}
		return s, err
	}
	progress("pin", 0, 1)
	s.pin(memory)
	device.serving = true
	if err = s.warmThread(progress); err != nil {
		return nil, errors.Join(err, s.CutModel.Close(), device.Close())
	}
	return s, nil
}

// loadNice is by how much loading yields to what serves, as nice(1) has it. It
// still gets about a tenth of a busy core.
const loadNice = 10

// kindly runs f on a thread of low priority. A worker that loads, above all
// one that comes back after a crash, must not make its neighbours late.
func kindly(f func() error) error {
	done := make(chan error)
	go func() {
		// The thread is never unlocked, so it ends with its goroutine and
		// nothing else runs at its priority.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), loadNice)
		done <- f()
	}()
	return <-done
}

func loadService(env *ort.Env, device *Device, spec wire.LoadSpec, progress worker.ProgressFunc) (*service, error) {
	rungs := 1
	if device != nil {
		rungs += models.Rung(spec.MaxBatch)
	}
	m, choice, err := openChosen(env, Config{
		Path:              spec.ModelPath,
		CacheDir:          spec.CacheDir,
		Device:            device,
		IntermediateBytes: spec.IntermediateBytes,
		OneThread:         spec.OneThread && device == nil,
		Slow:              spec.Slow,
		Rungs:             rungs,
		Progress:          progress,
	}, &spec)
	if err != nil {
		return nil, err
	}
	if err := servable(m.Model()); err != nil {
		return nil, errors.Join(judge(err), m.Close())
	}
	s := &service{CutModel: m, env: env, device: device, choice: choice}
	err = s.warm(spec, progress)
	if err == nil && device != nil {
		err = m.DeviceMemory().Check()
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return s, nil
}

// servable refuses models whose inputs and outputs the endpoint cannot carry.
func servable(m *models.Model) error {
	for _, list := range [2][]models.TensorSpec{m.Inputs, m.Outputs} {
		for _, t := range list {
			if t.Type.Kind != models.KindTensor || t.Type.Elem.Protocol() == "" {
				return fmt.Errorf("%w: %q is %s", ErrUnservable, t.Name, t.Type)
			}
		}
	}
	return nil
}

// maxWarmSizes is up to which batch size each one is warmed up on a GPU, where
// the first run of a shape chooses kernels. Above that, and where there are convolutions,
// sizes on the ladder and the largest are.
const maxWarmSizes = 32

// warmSizes returns the batch sizes to warm up: on the CPU the ends are enough.
func warmSizes(largest int, far, convolves bool) []int {
	sizes := []int{1}
	for n := 2; n < largest && far; n++ {
		if !convolves && largest <= maxWarmSizes || models.OnLadder(n) {
			sizes = append(sizes, n)
		}
	}
	if largest > 1 {
		sizes = append(sizes, largest)
	}
	return sizes
}

// warm runs batches of several sizes and lengths. A model that cannot run on
// zeros is served all the same, and learns from its first queries. An error is
// one that ends the worker.
func (s *service) warm(spec wire.LoadSpec, progress worker.ProgressFunc) error {
	sizes := warmSizes(max(spec.MaxBatch, 1), s.device != nil, s.convolves)
	lengths := []int{warmSeqLen}
	if s.device != nil && len(spec.WarmSeqLens) > 0 && models.HasSeqLen(s.Model().Inputs) {
		lengths = spec.WarmSeqLens
	}
	for i, length := range lengths {
		for j, size := range sizes {
			progress("warm", int64(i*len(sizes)+j), int64(len(lengths)*len(sizes)))
			solo, err := s.WarmAt(size, length)
			switch {
			case wire.Ends(err):
				return err
			case errors.Is(err, wire.ErrInput):
				return nil // nothing can be made up for this model
			case errors.Is(err, wire.ErrMemory) && s.device != nil:
				return fmt.Errorf("%w: a batch of %d does not: %w; %s", wire.ErrDeviceFull, size, err, s.DeviceMemory())
			case err != nil:
				fmt.Fprintf(os.Stderr, "warming up with a batch of %d: %v\n", size, err)
				if len(s.solo) == 0 {
					s.fault = err.Error()
				}
				return nil
			}
			s.solo = append(s.solo, solo)
		}
	}
	return nil
}

// maxThreadBatches is how many batches warm the thread that serves, at most.
const maxThreadBatches = 32

// warmThread runs a batch of zeros of each size that is a power of two, and of the
// largest, on the thread that calls it. The model was warmed on one that has ended since,
// and what CUDA's libraries keep for each thread has gone with it: the first query
// would wait for that. On the CPU nothing is kept so. An error is one that ends the worker.
func (s *service) warmThread(progress worker.ProgressFunc) error {
	var sizes []wire.Solo // of those that the model ran
	for i, solo := range s.solo {
		n, largest := solo.Size, i == len(s.solo)-1 || s.solo[i+1].Size < solo.Size // of a length
		if (models.OnLadder(n) || largest) && len(sizes) < maxThreadBatches {
			sizes = append(sizes, solo)
		}
	}
	for i, solo := range sizes {
		progress("warm", int64(i), int64(len(sizes)))
		q, _, err := s.zeroQuery(solo.Size, solo.SeqLen)
		if err == nil {
			err = s.runOnce(q)
			unmapQuery(q)
		}
		if wire.Ends(err) {
			return err
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "warming up the thread that serves with a batch of %d: %v\n", solo.Size, err)
			return nil
		}
	}
	return nil
}

// pin keeps the shared memory in place. What cannot be pinned is copied more
// slowly, and that is all.
func (s *service) pin(memory worker.Memory) {
	for _, err := range []error{s.Pin(memory.Inputs), s.Pin(memory.Outputs)} {
		if err != nil {
			fmt.Fprintln(os.Stderr, "overlapd worker: warning:", err)
		}
	}
	s.moves = memory.Moves
}

// pinMoves pins the memory for moves when the first batch moves: a service whose batches
// stay where they are does not take all of its pages.
func (s *service) pinMoves() {
	if err := s.Pin(s.moves); err != nil {
		fmt.Fprintln(os.Stderr, "overlapd worker: warning:", err)
	}
	s.moves = nil
}

// Describe implements [worker.Engine], and Import does.
func (s *service) Describe(id models.BatchID) ([]wire.Tensor, uint64, error) {
	s.pinMoves()
	return s.CutModel.Describe(id)
}

func (s *service) Import(id models.BatchID, at int, queries []worker.Query, cut uint64, values []worker.Tensor) (bool, error) {
	s.pinMoves()
	return s.CutModel.Import(id, at, queries, cut, values)
}

// Run runs operators of a batch, and finishes it at its end.
func (s *service) Run(id models.BatchID, start, end, threads int, stop *uint32, out worker.OutputFunc) (worker.Ran, error) {
	s.one = threads == 1
	reached, err := s.CutModel.Run(id, start, end, stop)
	if err == nil && reached == len(s.sessions) {
		err = s.Finish(id, out)
	}
	return worker.Ran{Reached: reached, DeviceTime: s.DeviceTime()}, err
}

// Trim gives back to the system what no batch needs, what Go keeps included.
func (s *service) Trim() {
	s.trim()
	debug.FreeOSMemory()
}

// Info returns what the daemon is told of the model.
func (s *service) Info() wire.Info {
	m := s.Model()
	info := wire.Info{
		Inputs:     m.Inputs,
		Outputs:    m.Outputs,
		Operators:  m.Operators,
		Hash:       m.Hash,
		ORTVersion: s.env.Library().Version(),
		CacheHit:   s.cacheHit,
		LoadNanos:  int64(s.loadTook),
		Cut:        s.choice,
		Solo:       s.solo,
		WarmFault:  s.fault,

		Convolutions: s.convolves,
	}
	if s.device != nil {
		info.Device = s.device.Name()
	}
	return info
}

// Close frees the model and the runtime.
func (s *service) Close() error {
	err := s.CutModel.Close()
	if s.device != nil {
		err = errors.Join(err, s.device.Close())
	}
	return errors.Join(err, s.env.Close())
}

// Limits of warming up.
const (
	// warmRuns is how often a batch is run to be timed, after the run that
	// teaches its shapes.
	warmRuns = 3

	// warmSeqLen is the sequence length that is tried where a model leaves
	// it open.
	warmSeqLen = 64

	// maxWarmBytes is the largest input that is made up to warm a model.
	maxWarmBytes = 1 << 30

	// warmBatch is a batch ID that no scheduler gives.
	warmBatch = models.BatchID(math.MaxUint64)
)

// Warm runs a batch of zeros of the given size a few times, so that its memory
// is laid out before the first query comes, and returns how long its operators
// took.
func (m *CutModel) Warm(size int) (wire.Solo, error) { return m.WarmAt(size, warmSeqLen) }

// WarmAt is Warm with a sequence length, which a model that has none ignores.
func (m *CutModel) WarmAt(size, seqLen int) (wire.Solo, error) {
	q, seqLen, err := m.zeroQuery(size, seqLen)
	if err != nil {
		return wire.Solo{}, err
	}
	defer unmapQuery(q)
	times := make([][]int64, 0, warmRuns)
	for run := range 1 + warmRuns {
		if err := m.Start(warmBatch, []worker.Query{q}); err != nil {
			return wire.Solo{}, err
		}
		nanos := make([]int64, len(m.sessions))
		err := m.runTimed(warmBatch, nanos)
		m.Release(warmBatch)
		if err != nil {
			return wire.Solo{}, err
		}
		if run > 0 {
			times = append(times, nanos)
		}
	}
	return wire.Solo{Size: size, SeqLen: seqLen, Nanos: stats.Medians(times)}, nil
}

// runTimed runs a whole batch and writes how long each operator took.
func (m *CutModel) runTimed(id models.BatchID, nanos []int64) error {
	b := m.batches[id]
	known := b.shapes == nil && !m.far
	for p := range nanos {
		if known {
			if _, err := b.frame.program.RunTimed(p, p+1, nil, nanos); err != nil {
				return err
			}
			continue
		}
		started := time.Now()
		if _, err := m.Run(id, p, p+1, nil); err != nil {
			return err
		}
		if p == len(nanos)-1 { // the others have waited
			if err := m.run.collect(); err != nil {
				return err
			}
		}
		nanos[p] = int64(time.Since(started))
	}
	return nil
}

// zeroQuery makes a query of zeros. Dimensions that are open and neither the
// batch nor the sequence length are taken as 1.
func (m *CutModel) zeroQuery(size, seqLen int) (q worker.Query, _ int, err error) {
	if !models.HasSeqLen(m.model.Inputs) {
		seqLen = 0
	}
	defer func() {
		if err != nil {
			unmapQuery(q)
		}
	}()
	for i, shape := range models.Fill(m.model.Inputs, size, seqLen) {
		in := m.model.Inputs[i]
		bytes := int64(in.Type.Elem.Bytes())
		if in.Type.Kind != models.KindTensor || bytes == 0 {
			return q, 0, fmt.Errorf("%w: input %q is %s, for which no data can be generated", wire.ErrInput, in.Name, in.Type)
		}
		for _, d := range shape {
			if d > maxWarmBytes/max(bytes, 1) {
				return q, 0, fmt.Errorf("%w: input %q of shape %v is too large to generate", wire.ErrInput, in.Name, shape)
			}
			bytes *= d
		}
		view := worker.Tensor{Type: in.Type.Elem, Shape: shape}
		if bytes > 0 {
			if view.Data, err = hostMemory(bytes, "to warm the model with"); err != nil {
				return q, 0, err
			}
		}
		q.Inputs = append(q.Inputs, view)
	}
	return q, seqLen, nil
}

// unmapQuery gives back what zeroQuery made.
func unmapQuery(q worker.Query) {
	for i := range q.Inputs {
		if in := &q.Inputs[i]; in.Data != nil {
			wire.Unmap(in.Data[:cap(in.Data)])
			in.Data = nil
		}
	}
}

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

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

var _ worker.Engine = (*service)(nil)

// service is the model of a worker process, with the runtime that only this model uses.
type service struct {
	*CutModel
	env *ort.Env

	// device is nil for the CPU.
	device *Device

	// choice is nil if the spec does not ask for one.
	choice *wire.CutChoice

	// solo holds the isolated latencies measured while warming up.
	solo []wire.Solo

	// fault is the error of the first run, if warming up failed there.
	fault string

	// moves is memory to pin when the first batch moves, or nil.
	moves []byte
}

// LoadONNX loads the model of a worker process with ONNX Runtime and warms it up. It is the
// worker.LoadFunc of workers that run real models.
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
	// The threads of the pool inherit the priority of the calling thread, so create them
	// outside of kindly.
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

// openService loads the model on the device that the spec names. If that is a GPU, it opens
// the GPU with open. The calling thread is the one that serves later.
func openService(env *ort.Env, open func(*ort.Env, wire.CUDASpec) (*Device, error), spec wire.LoadSpec, memory worker.Memory, progress worker.ProgressFunc) (s *service, err error) {
	var device *Device
	if spec.CUDA != nil {
		// The driver's threads inherit the priority of the calling thread as well.
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

// loadNice is the nice value of the threads that load a model. They still get about a tenth
// of a busy core.
const loadNice = 10

// kindly runs f on a thread of low priority. A worker that loads a model, for example after
// a crash, must not delay the queries of other workers.
func kindly(f func() error) error {
	done := make(chan error)
	go func() {
		// The thread is never unlocked, so it ends with its goroutine and no other
		// goroutine runs at its priority.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), loadNice)
		done <- f()
	}()
	return <-done
}

// loadService opens the model, checks that it can be served, and warms it up.
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

// servable returns an error if the endpoint cannot carry an input or output of the model.
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

// maxWarmSizes is the largest maximum batch size for which every batch size is warmed up on
// a GPU, where the first run of a shape selects kernels. For larger maxima, and for models
// with convolutions, only the maximum and the sizes on the ladder are warmed up.
const maxWarmSizes = 32

// warmSizes returns the batch sizes to warm up. On the CPU these are only 1 and the
// largest.
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

// warm runs batches of several sizes and sequence lengths, and measures their isolated
// latencies. If the model cannot run on zeros, it is served without warming up, and its
// layouts are learned from the first queries. warm returns only errors that end the worker.
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
				return nil // no inputs can be generated for this model
			case errors.Is(err, wire.ErrMemory) && s.device != nil:
				return fmt.Errorf("%w: a batch of %d does not fit: %w; %s", wire.ErrDeviceFull, size, err, s.DeviceMemory())
			case err != nil:
				fmt.Fprintf(os.Stderr, "warming up with a batch of %d failed: %v\n", size, err)
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

// maxThreadBatches limits the number of batches with which warmThread warms up the serving
// thread.
const maxThreadBatches = 32

// warmThread runs batches of zeros on the calling thread: for each size that ran in warm
// and is on the ladder, and for the largest. The thread on which warm ran has ended, and
// with it the state that CUDA's libraries keep for each thread. Without warmThread the
// first query would wait until that state is created again. The CPU has no such state.
// warmThread returns only errors that end the worker.
func (s *service) warmThread(progress worker.ProgressFunc) error {
	var sizes []wire.Solo // only sizes that the model has run
	for i, solo := range s.solo {
		n, largest := solo.Size, i == len(s.solo)-1 || s.solo[i+1].Size < solo.Size // of this sequence length
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
			fmt.Fprintf(os.Stderr, "warming up the serving thread with a batch of %d failed: %v\n", solo.Size, err)
			return nil
		}
	}
	return nil
}

// pin pins the memory of inputs and outputs. An error is only logged, because copies then
// still work but are slower.
func (s *service) pin(memory worker.Memory) {
	for _, err := range []error{s.Pin(memory.Inputs), s.Pin(memory.Outputs)} {
		if err != nil {
			fmt.Fprintln(os.Stderr, "overlapd worker: warning:", err)
		}
	}
	s.moves = memory.Moves
}

// pinMoves pins the memory for moves when the first batch moves. Pinned memory takes all of
// its pages, so a service whose batches never move does not pin it.
func (s *service) pinMoves() {
	if err := s.Pin(s.moves); err != nil {
		fmt.Fprintln(os.Stderr, "overlapd worker: warning:", err)
	}
	s.moves = nil
}

// Describe implements [worker.Engine]. It pins the memory for moves on its first call.
func (s *service) Describe(id models.BatchID) ([]wire.Tensor, uint64, error) {
	s.pinMoves()
	return s.CutModel.Describe(id)
}

// Import implements [worker.Engine]. It pins the memory for moves on its first call.
func (s *service) Import(id models.BatchID, at int, queries []worker.Query, cut uint64, values []worker.Tensor) (bool, error) {
	s.pinMoves()
	return s.CutModel.Import(id, at, queries, cut, values)
}

// Run implements [worker.Engine]. It runs operators of a batch, and finishes the batch
// after its last operator.
func (s *service) Run(id models.BatchID, start, end, threads int, stop *uint32, out worker.OutputFunc) (worker.Ran, error) {
	s.one = threads == 1
	reached, err := s.CutModel.Run(id, start, end, stop)
	if err == nil && reached == len(s.sessions) {
		err = s.Finish(id, out)
	}
	return worker.Ran{Reached: reached, DeviceTime: s.DeviceTime()}, err
}

// Trim implements [worker.Engine]. It returns memory that no batch needs to the operating
// system, including memory that Go's runtime keeps.
func (s *service) Trim() {
	s.trim()
	debug.FreeOSMemory()
}

// Info returns the description of the model for the daemon.
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

// Close closes the model, the device, and the runtime.
func (s *service) Close() error {
	err := s.CutModel.Close()
	if s.device != nil {
		err = errors.Join(err, s.device.Close())
	}
	return errors.Join(err, s.env.Close())
}

// Limits of warming up.
const (
	// warmRuns is how often each batch is run and timed, after a first run from which the
	// layout is learned.
	warmRuns = 3

	// warmSeqLen is the sequence length for warming up if the model does not fix it.
	warmSeqLen = 64

	// maxWarmBytes is the largest input that is generated for warming up.
	maxWarmBytes = 1 << 30

	// warmBatch is a batch ID that no scheduler assigns.
	warmBatch = models.BatchID(math.MaxUint64)
)

// Warm runs a batch of zeros of the given size several times, so that its memory is laid
// out before the first query arrives. It returns the median time of each operator.
func (m *CutModel) Warm(size int) (wire.Solo, error) { return m.WarmAt(size, warmSeqLen) }

// WarmAt is Warm with a sequence length. A model without a sequence length ignores it.
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

// runTimed runs a whole batch and stores the time of each operator in nanos.
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
		if p == len(nanos)-1 { // Run has waited for the device after the other operators
			if err := m.run.collect(); err != nil {
				return err
			}
		}
		nanos[p] = int64(time.Since(started))
	}
	return nil
}

// zeroQuery creates a query of zeros. Open dimensions other than the batch size and the
// sequence length are set to 1. It returns the sequence length, or 0 if the model has none.
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
			if view.Data, err = hostMemory(bytes, "for warming up the model"); err != nil {
				return q, 0, err
			}
		}
		q.Inputs = append(q.Inputs, view)
	}
	return q, seqLen, nil
}

// unmapQuery frees the memory of a query that zeroQuery created.
func unmapQuery(q worker.Query) {
	for i := range q.Inputs {
		if in := &q.Inputs[i]; in.Data != nil {
			wire.Unmap(in.Data[:cap(in.Data)])
			in.Data = nil
		}
	}
}

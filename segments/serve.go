package segments

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

var _ worker.Engine = (*service)(nil)

// service is the model of a worker process, with the runtime that only this model uses.
type service struct {
	model *CutModel
	env   *ort.Env

	// device is nil for the CPU.
	device *gpu.Device

	// choice is nil if the spec does not ask for one.
	choice *wire.CutChoice

	warmer warmer

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
		OpLibraries:  spec.OpLibraries,
	})
	if err != nil {
		return nil, judge(err)
	}
	s, err := openService(env, gpu.Open, spec, memory, progress)
	if err != nil {
		return nil, errors.Join(err, env.Close())
	}
	return s, nil
}

// openService loads the model on the device that the spec names. If that is a GPU, it opens
// the GPU with open. The calling thread is the one that serves later.
func openService(env *ort.Env, open func(*ort.Env, wire.CUDASpec) (*gpu.Device, error), spec wire.LoadSpec, memory worker.Memory, progress worker.ProgressFunc) (s *service, err error) {
	var device *gpu.Device
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
	s.pin(memory.Inputs)
	s.pin(memory.Outputs)
	s.moves = memory.Moves
	device.Serve()
	if err = s.warmer.warmThread(); err != nil {
		return nil, errors.Join(err, s.model.Close(), device.Close())
	}
	return s, nil
}

// loadService opens the model, checks that it can be served, and warms it up.
func loadService(env *ort.Env, device *gpu.Device, spec wire.LoadSpec, progress worker.ProgressFunc) (*service, error) {
	rungs := 1
	if device != nil {
		rungs += models.Rung(spec.MaxBatch)
	}
	m, choice, err := openChosen(env, Config{
		Path:              spec.ModelPath,
		CacheDir:          spec.CacheDir,
		OpLibraries:       spec.OpLibraries,
		Device:            device,
		IntermediateBytes: spec.IntermediateBytes,
		Units:             spec.Units,
		Rungs:             rungs,
		Progress:          progress,
	}, &spec)
	if err != nil {
		return nil, err
	}
	if err := servable(m.Model()); err != nil {
		return nil, errors.Join(judge(err), m.Close())
	}
	s := &service{model: m, env: env, device: device, choice: choice, warmer: warmer{model: m, progress: progress}}
	err = s.warmer.warm(&spec)
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

// pin pins memory that the worker shares with the daemon. An error is only logged, because
// copies then still work but are slower.
func (s *service) pin(memory []byte) {
	if err := s.device.Pin(memory); err != nil {
		fmt.Fprintln(os.Stderr, "overlapd worker: warning:", err)
	}
}

// pinMoves pins the memory for moves when the first batch moves. Pinned memory takes all of
// its pages, so a service whose batches never move does not pin it.
func (s *service) pinMoves() {
	if s.moves != nil {
		s.pin(s.moves)
		s.moves = nil
	}
}

// Describe implements [worker.Engine]. It pins the memory for moves on its first call.
func (s *service) Describe(id models.BatchID) ([]models.Tensor, uint64, error) {
	s.pinMoves()
	return s.model.Describe(id)
}

// Import implements [worker.Engine]. It pins the memory for moves on its first call.
func (s *service) Import(id models.BatchID, at int, queries []wire.QueryTensors, cut uint64, values []models.Tensor) (bool, error) {
	s.pinMoves()
	return s.model.Import(id, at, queries, cut, values)
}

// Run implements [worker.Engine]. It runs operators of a batch, and finishes the batch
// after its last operator.
func (s *service) Run(id models.BatchID, start, end, share int, stop *uint32, out worker.OutputFunc) (worker.Ran, error) {
	reached, err := s.model.RunShare(id, start, end, share, stop)
	if err == nil && reached == len(s.model.Model().Operators) {
		err = s.model.Finish(id, out)
	}
	return worker.Ran{Reached: reached, DeviceTime: s.model.DeviceTime()}, err
}

func (s *service) Start(id models.BatchID, queries []wire.QueryTensors) error {
	return s.model.Start(id, queries)
}

func (s *service) Export(id models.BatchID, to []models.Tensor) error { return s.model.Export(id, to) }

func (s *service) Release(id models.BatchID) { s.model.Release(id) }

func (s *service) IntermediateBytes() int64 { return s.model.IntermediateBytes() }

// Trim implements [worker.Engine]. It returns memory that no batch needs to the operating
// system, including memory that Go's runtime keeps.
func (s *service) Trim() {
	s.model.Trim()
	debug.FreeOSMemory()
}

// Info returns the description of the model for the daemon.
func (s *service) Info() wire.Info {
	m, l := s.model.Model(), s.model.loaded
	return wire.Info{
		Inputs:     m.Inputs,
		Outputs:    m.Outputs,
		Operators:  m.Operators,
		Hash:       m.Hash,
		ORTVersion: s.env.Library().Version(),
		CacheHit:   l.cacheHit,
		LoadNanos:  int64(l.loadTook),
		Cut:        s.choice,
		Solo:       s.warmer.solo,
		WarmFault:  s.warmer.fault,
		Device:     l.device.Name(),

		Convolutions: l.convolves,
	}
}

// Close closes the model, the device, and the runtime.
func (s *service) Close() error {
	err := s.model.Close()
	if s.device != nil {
		err = errors.Join(err, s.device.Close())
	}
	return errors.Join(err, s.env.Close())
}

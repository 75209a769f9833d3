package segments

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
)

var _ Engine = (*service)(nil)

// service is the model of a worker process, together with the runtime that
// the process has for it alone.
type service struct {
	*CutModel
	env  *ort.Env
	solo []Solo
}

// LoadONNX loads the model of a worker process with ONNX Runtime and warms it
// up. It is the LoadFunc of a real worker.
func LoadONNX(spec LoadSpec, progress ProgressFunc) (Engine, error) {
	var lib *ort.Library
	var s *service
	err := kindly(func() error {
		path, err := ort.Find()
		if err == nil {
			lib, err = ort.Open(path)
		}
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
		SharedArena:  true,
		LogLevel:     ort.LogFatal, // what fails is returned as an error
	})
	if err != nil {
		return nil, err
	}
	err = kindly(func() error {
		s, err = loadService(env, spec, progress)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, env.Close())
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

func loadService(env *ort.Env, spec LoadSpec, progress ProgressFunc) (*service, error) {
	m, err := OpenModel(env, Config{
		Path:              spec.ModelPath,
		CacheDir:          spec.CacheDir,
		Target:            spec.CutTarget,
		IntermediateBytes: spec.IntermediateBytes,
		Limits:            models.DefaultLimits(),
		Progress:          progress,
	})
	if err != nil {
		return nil, err
	}
	if err := servable(m.Model()); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	s := &service{CutModel: m, env: env}
	s.warm(max(spec.MaxBatch, 1), progress)
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

// warm runs batches of one and of the largest size. A model that cannot run
// on zeros is served all the same, and learns from its first queries.
func (s *service) warm(maxBatch int, progress ProgressFunc) {
	sizes := []int{1}
	if maxBatch > 1 {
		sizes = append(sizes, maxBatch)
	}
	for i, size := range sizes {
		progress("warm", int64(i), int64(len(sizes)))
		solo, err := s.Warm(size)
		if errors.Is(err, ErrInput) {
			return // nothing can be made up for this model
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "warming up with a batch of %d: %v\n", size, err)
			return
		}
		s.solo = append(s.solo, solo)
	}
}

// Info returns what the daemon is told of the model.
func (s *service) Info() Info {
	m := s.Model()
	return Info{
		Inputs:     m.Inputs,
		Outputs:    m.Outputs,
		Operators:  m.Operators,
		Hash:       m.Hash,
		ORTVersion: s.env.Library().Version(),
		CacheHit:   s.cacheHit,
		LoadNanos:  int64(s.loadTook),
		Solo:       s.solo,
	}
}

// Close frees the model and the runtime.
func (s *service) Close() error {
	return errors.Join(s.CutModel.Close(), s.env.Close())
}

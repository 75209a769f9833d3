package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/executor/emulated"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/segments/wire"
)

// poolDevice is a device of the pool: what its workers are given of it. Who decides about
// all of them is the loop.
type poolDevice struct {
	config    config.Config // of the daemon
	log       zerolog.Logger
	state     *State
	index     int         // in the pool
	name      string      // in the configuration, "" for the only one
	text      string      // in words
	runtime   string      // the version of ONNX Runtime that workers load, "" if unknown
	cores     int         // threads of a service that sets none
	affinity  []int       // the cores that workers run on, nil for all of the machine's
	slow      float64     // by which factor workers take longer, up to 1 they do not
	memory    *gpu.Ledger // the memory of the part, nil without a GPU
	emulation *emulation  // nil for a device that computes
	part      *gpu.Part   // nil without a GPU

	failed     chan<- error    // ends the daemon; the first counts
	life       context.Context // ends when the daemon closes
	goroutines *sync.WaitGroup // those that run besides the loop
}

// describe returns the device as the loop knows it, with workers of the services that
// the daemon starts with.
func (u *poolDevice) describe(o *Options, specs []executor.ServiceSpec) loop.Device {
	l := loop.Device{Name: u.name, Text: u.text, Kind: fmt.Sprintf("%s, %d cores", u.text, u.cores)}
	if u.emulation != nil {
		l.Emulated, l.MeasuredAs, l.Kind = true, u.emulation.name, u.emulation.hash
		l.Ladder = slices.ContainsFunc(u.emulation.known, func(m device.ModelInfo) bool { return m.Ladder })
	}
	if u.part != nil {
		l.GPU, l.Ladder = u.part.Status, true
		if l.Alone = u.config.MPS.Mode == config.MPSOff; l.Alone && learning.FormsGroups(u.config.Policy) {
			u.log.Info().Str("gpu", u.text).Msg("without MPS services take turns on the GPU: each group has one span, and none is measured")
		}
	}
	l.Workers = func(inputs, moves []*wire.InputArena, outcomes chan executor.Outcome, events func(executor.Event)) (loop.Workers, error) {
		for i := range specs {
			specs[i].Inputs, specs[i].Moves = inputs[specs[i].ID], moves[specs[i].ID]
		}
		return u.runner(o, specs, outcomes, events)
	}
	return l
}

// runner returns what runs rounds.
func (u *poolDevice) runner(o *Options, specs []executor.ServiceSpec, outcomes chan executor.Outcome, events func(executor.Event)) (loop.Workers, error) {
	workers := o.workers
	if workers == nil {
		workers = func(o executor.Options) (loop.Workers, error) {
			e, err := executor.New(o)
			if err != nil {
				return nil, err // a nil executor would be workers that are there
			}
			return e, nil
		}
	}
	c := &u.config.Worker
	options := executor.Options{
		Command:     o.Worker,
		Services:    specs,
		Outcomes:    outcomes,
		Device:      u.index,
		LoadTimeout: c.LoadTimeout,
		SpanTimeout: c.SpanTimeout,
		Poll:        c.Poll,
		Policy:      child.Policy{BackoffMin: c.BackoffMin, BackoffMax: c.BackoffMax, RestartLimit: c.RestartLimit},
		Events:      u.watchStart(specs, events),
		BeforeKill:  u.beforeKill(),
	}
	if u.emulation != nil {
		e := u.emulation
		options.Inside = emulated.New(e.device, uint64(u.config.DeviceSeed)+uint64(u.index), e.known, e.hash)
	}
	if u.sharesCores() {
		options.Cores = u.cores
	}
	if u.emulation == nil {
		options.Affinity = u.affinity
	}
	return workers(options)
}

// watchStart passes events on. Of the services that the daemon starts with, the first
// whose model turns out to be no good before it was ever ready ends the daemon, which
// fails in the same way as if that had been found before.
func (u *poolDevice) watchStart(specs []executor.ServiceSpec, events func(executor.Event)) func(executor.Event) {
	loaded := make([]atomic.Bool, len(u.config.Services))
	return func(e executor.Event) {
		if int(e.Service) < len(loaded) && slices.ContainsFunc(specs, func(s executor.ServiceSpec) bool { return s.ID == e.Service }) {
			switch e.Kind {
			case executor.WorkerReady, executor.WorkerStopped: // whoever has its ID later, came later
				loaded[e.Service].Store(true)
			case executor.WorkerFailed:
				if _, why, ok := strings.Cut(e.Err.Error(), wire.ErrModel.Error()+": "); ok && errors.Is(e.Err, wire.ErrModel) && !loaded[e.Service].Load() {
					select {
					case u.failed <- config.ModelFault(u.config.Services[e.Service].Name, errors.New(why)):
					default:
					}
				}
			}
		}
		events(e)
	}
}

// placeOf returns what a service has of the device. It gives back nothing.
func (u *poolDevice) placeOf(s *config.Service) loop.Place {
	p := loop.Place{Device: u.index, Share: shareOf(u.threads(s), s, u.part != nil), GiveBack: func() {}}
	if u.part != nil {
		p.Share += fmt.Sprintf(", TF32 %t", u.config.CUDA.TF32)
		if u.config.CUDA.Graphs {
			p.Share += ", CUDA graphs"
		}
	}
	if u.sharesCores() && u.threads(s) > 1 {
		p.Share += fmt.Sprintf(", or one beside others on %d cores", u.cores)
	}
	if u.emulation != nil {
		known := u.emulation.model(s)
		p.Model, p.MaxBatch, p.MaxSeqLen = known.Name, slices.Max(known.Sizes), slices.Max(known.SeqLens)
	}
	return p
}

// worker describes the worker of a service to the executor, and what it has of the
// device. A model of the zoo is built if it is not there yet. On a GPU, memory is
// accounted for until the place is given back; a service that does not fit is refused,
// and the others serve.
func (u *poolDevice) worker(id models.ServiceID, s *config.Service) (spec executor.ServiceSpec, place loop.Place, err error) {
	path, err := u.model(s.Model)
	if err != nil {
		return spec, place, fmt.Errorf("service %s: %w", s.Name, err)
	}
	if u.emulation != nil && u.emulation.share > 0 && u.emulation.share != s.MPS.Percentage {
		return spec, place, fmt.Errorf("service %s: active_thread_percentage of an emulated device is %d since it was made: restart the daemon for another", s.Name, u.emulation.share)
	}
	w, place := &u.config.Worker, u.placeOf(s)
	spec = executor.ServiceSpec{
		ID:   id,
		Name: s.Name,
		Load: wire.LoadSpec{
			Service:           s.Name,
			ModelPath:         path,
			CacheDir:          filepath.Join(u.config.CacheDir(), "optimized"),
			Threads:           u.threads(s),
			Spin:              w.Spin,
			OneThread:         u.sharesCores() && u.threads(s) > 1,
			CutTarget:         s.Cut,
			Slow:              u.slow,
			MaxBatch:          s.MaxBatch,
			IntermediateBytes: w.IntermediateBytes,
			TrimNanos:         int64(w.TrimAfter),
		},
		OutputBytes: w.OutputBytes,
	}
	if u.part == nil {
		return spec, place, nil
	}
	spec.Env = u.part.Env(s)
	mps := u.config.MPS.Mode != config.MPSOff // as the name of the device says
	spec.Load.CUDA = &wire.CUDASpec{
		MPS:         &mps,
		MemoryBytes: u.given(s),
		TF32:        u.config.CUDA.TF32,
		Graphs:      u.config.CUDA.Graphs,
	}
	spec.Load.WarmSeqLens = s.SeqLens
	cut := s.Cut
	if spec.Load.Choose = u.question(path, s); spec.Load.Choose != nil && spec.Load.Choose.Known != nil {
		cut = spec.Load.Choose.Known.Target
	}
	place.GiveBack, spec.Refused = u.admit(path, s, cut, u.memory)
	return spec, place, nil
}

// sharesCores reports whether rounds of several spans run on the cores of this machine,
// each on its part of them.
func (u *poolDevice) sharesCores() bool {
	return u.part == nil && u.emulation == nil && learning.FormsGroups(u.config.Policy)
}

// threads returns how many threads the worker of a service has.
func (u *poolDevice) threads(s *config.Service) int {
	return cmp.Or(s.Threads, u.config.Worker.Threads, u.cores)
}

// model returns the file of a model, which is built first if it is one of the
// zoo's. A model of an emulated device has none and is known by its name.
func (u *poolDevice) model(model string) (string, error) {
	if u.emulation != nil {
		return strings.TrimPrefix(model, config.EmulatedPrefix), nil
	}
	name, ok := strings.CutPrefix(model, config.ZooPrefix)
	if !ok {
		return filepath.Abs(model)
	}
	started := time.Now()
	path, err := zoo.Build(name, filepath.Join(u.config.CacheDir(), "models"), zooSeed, nil)
	if took := time.Since(started); err == nil && took > time.Second/2 {
		u.log.Info().Str("model", name).Dur("took", took.Round(time.Millisecond)).Msg("model of the zoo is built")
	}
	return path, err
}

const (
	// chooseBudget is how long a worker may measure what cutting its model costs,
	// the first time; choosePart is which part of worker.load_timeout that is at
	// most.
	chooseBudget = 20 * time.Second
	choosePart   = 4
)

// question asks the worker of a service on a GPU to choose into how many
// operators its model is cut, if the configuration does not say. It has what was
// chosen before, if that is known: then nothing is measured.
func (u *poolDevice) question(path string, s *config.Service) *wire.ChooseSpec {
	if s.Cut != 0 {
		return nil
	}
	q := &wire.ChooseSpec{BudgetNanos: int64(min(chooseBudget, u.config.Worker.LoadTimeout/choosePart))}
	if u.given(s) > 0 {
		q.Finest = wire.FinestChoice // what it takes is bounded, and was admitted
	}
	if u.state == nil {
		return q
	}
	hash, err := hashModel(u.life, path, u.config.Worker.LoadTimeout)
	if err != nil {
		return q // the worker says what is wrong with it
	}
	if known := new(wire.CutChoice); u.state.stored(u.log, cutChoices, u.cutKey(hash, u.placeOf(s).Share, s.MaxBatch), known) {
		q.Known = known
	}
	return q
}

// cutKey names what a choice holds for: the model, the device, and what part of
// it the service has. What else it depends on, the choice says itself.
func (u *poolDevice) cutKey(hash, share string, maxBatch int) string {
	return fmt.Sprintf("%s|%s|%s|max_batch %d", u.text, hash, share, maxBatch)
}

// shareOf returns what else than the device decides how long a service's
// operators take: its threads, and its part of a GPU that it shares.
func shareOf(threads int, s *config.Service, gpu bool) string {
	text := fmt.Sprintf("%d threads", threads)
	if p := s.MPS.Percentage; gpu && p > 0 {
		text += fmt.Sprintf(", MPS %d%%", p)
	}
	return text
}

// given returns how much of the GPU's memory a service may take, 0 for what
// there is.
func (u *poolDevice) given(s *config.Service) int64 {
	limit, own := u.config.CUDA.MemoryLimit, s.MPS.PinnedMemory
	if limit == 0 || own != 0 && own < limit {
		return own
	}
	return limit
}

// needs returns what a service is given if that is said, else what its model is expected
// to need if it is cut so, 0 standing for the default; in words, too. The error is why it
// cannot do with what it is given. Nothing is known of a model that cannot be read.
func (u *poolDevice) needs(path string, s *config.Service, cut int) (bytes int64, sums string, err error) {
	m, err := readModel(u.life, path, u.config.Worker.LoadTimeout, func(f *models.File) wire.DeviceMemory { return wire.ExpectDeviceMemory(f, cut, s.MaxBatch) })
	if err != nil {
		return 0, "", nil // the worker says what is wrong with it
	}
	bytes, sums = m.Sum(), m.Sums()
	switch given := u.given(s); {
	case given > 0 && given < bytes:
		err = fmt.Errorf("%w %s: it needs %s = %d MiB and is given %d MiB; raise pinned_memory_limit or cuda.memory_limit, or lower its cut",
			gpu.ErrNoRoom, s.Name, sums, bytes>>20, given>>20)
	case given > 0:
		bytes, sums = given, "what it is given, for "+sums
	}
	return bytes, sums, err
}

// admit accounts for a service. It returns what gives that back, or why there is no room
// for it.
func (u *poolDevice) admit(path string, s *config.Service, cut int, memory *gpu.Ledger) (release func(), refused error) {
	bytes, sums, refused := u.needs(path, s, cut)
	if sums != "" && refused == nil && memory != nil {
		release, refused = memory.Admit(s.Name, bytes, sums)
	}
	if release == nil {
		release = func() {}
	}
	return release, refused
}

// watchGPU starts what watches a part of a GPU, and the workers of all devices on it.
func (p *pool) watchGPU(part *gpu.Part) {
	p.goroutines.Go(func() { part.Sample(p.life) })
	var all clients
	var on []int
	for _, u := range p.devices {
		if workers, ok := p.backend.Workers(u.index).(*executor.Executor); ok && u.part == part {
			all, on = append(all, workers), append(on, u.index)
		}
	}
	if len(all) == 0 || !part.HasMPS() {
		return
	}
	lost := func(err error) {
		for _, index := range on {
			p.backend.LoseWorkers(index, err)
		}
	}
	p.goroutines.Go(func() { part.Watch(p.life, all, lost, p.log) })
}

// clients are the executors whose workers are clients of one MPS server.
type clients []*executor.Executor

// Hold ends the workers of all. All are gone when it returns without an error.
func (c clients) Hold(ctx context.Context, cause error) (err error) {
	for _, e := range c {
		err = errors.Join(err, e.Hold(ctx, cause))
	}
	return err
}

// Resume lets the workers of all start again.
func (c clients) Resume() {
	for _, e := range c {
		e.Resume()
	}
}

// beforeKill returns what takes a worker that is to be killed off the GPU, nil
// where there is no MPS.
func (u *poolDevice) beforeKill() func(models.ServiceID, int) {
	if u.part == nil || !u.part.HasMPS() {
		return nil
	}
	return func(id models.ServiceID, pid int) {
		if err := u.part.TerminateClient(u.life, pid); err != nil {
			u.log.Warn().Err(err).Int("service_id", int(id)).Int("pid", pid).
				Msg("a worker is killed that has work on the GPU and could not be taken off it; if others hang now, restart the control daemon of MPS with all workers")
		}
	}
}

// CheckCores returns faults if devices have cores that this process may not use.
func CheckCores(c *config.Config) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return err
	}
	return c.Devices.CheckCores(set.IsSet)
}

// zooSeed is the seed of the weights of the zoo's models.
const zooSeed = 1

// Options is what a daemon needs besides its configuration.
type Options struct {
	Worker  []string // command line of a worker
	Check   []string // command line of a child that runs statefile.RunCheck, none to believe the state file
	Version string
	Commit  string
	Device  string       // in words, such as the processor's name
	Runtime string       // version of ONNX Runtime that workers load, "" if unknown
	Cores   int          // threads of a service that sets none
	Fit     loop.FitFunc // nil if no predictor is to be fitted
	Offline bool         // for Measure: there is no endpoint

	// Listener and GRPCListener are sockets that whoever started the daemon has opened and
	// keeps open. The daemon opens those that are nil.
	Listener, GRPCListener net.Listener

	// Processors is how many processors the daemon may use where its workers are processes
	// without a GPU; it uses as few of them as suffice. 0 leaves that to the Go runtime.
	Processors int

	GPU gpu.Options
	Log zerolog.Logger

	workers   func(executor.Options) (loop.Workers, error) // nil for processes
	move      func(number uint64, from, to loop.Workers, batch executor.SpanRequest, planned time.Duration) error
	emulation func(*config.Config) (*emulation, error) // nil for that of a profile
}

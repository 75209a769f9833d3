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
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/executor/emulated"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// What every worker gets besides the configuration.
const (
	// poll is how long daemon and worker poll for each other's next message after a short span
	// before they sleep: as long as a small model runs, of which a query then takes 47 to 136 µs
	// instead of 73 to 234 (docs/benchmarks/endpoint.md).
	poll = 200 * time.Microsecond

	// trimAfter is how long a worker must be idle before it returns its spare memory to the
	// system. It is far longer than a pause between the queries of a busy service, whose next
	// query would have to get the pages again.
	trimAfter = time.Minute
)

// poolDevice is a device of the pool: what workers need to know of it. The loop schedules
// all devices.
type poolDevice struct {
	// config is that of the daemon.
	config config.Config
	log    zerolog.Logger
	state  *State

	// index is the position in the pool, and name the name in the configuration, "" for the
	// only device.
	index int
	name  string

	// text describes the device for people, and identifies it in measurements.
	text string

	// runtime is the version of ONNX Runtime that workers load, or "" if it is not known.
	runtime string

	// cores is the number of threads of a service that sets none.
	cores int

	// cpus lists the physical cores of the device, nil on a device that does not compute on them.
	cpus []int

	// affinity lists the cores of the workers, nil for all.
	affinity []int

	// memory is the ledger of the GPU's memory, emulation the modelled device, and part the
	// GPU or MIG instance. Each is nil if the device is of another kind.
	memory    *gpu.Ledger
	emulation *emulation
	part      *gpu.Part

	// failed ends the daemon. Only the first error counts.
	failed chan<- error

	// life is done when the daemon closes.
	life context.Context
}

// describe returns the device as the loop sees it. specs are the workers that the daemon
// starts with.
func (u *poolDevice) describe(o *Options, specs []executor.ServiceSpec) loop.Device {
	l := loop.Device{Name: u.name, Text: u.text, Kind: fmt.Sprintf("%s, %d cores", u.text, u.cores)}
	if u.emulation != nil {
		l.Emulated, l.MeasuredAs, l.Kind = true, u.emulation.name, u.emulation.hash
		l.Ladder = slices.ContainsFunc(u.emulation.known, func(m device.ModelInfo) bool { return m.Ladder })
	}
	l.Units = u.units()
	l.Alone = l.Units > 1 && u.emulation == nil // two operators on one core gain nothing
	if u.part != nil {
		l.GPU, l.Ladder = u.part.Status, true
		// Without MPS the driver time-slices processes, so overlapping cannot gain
		// anything.
		if l.Alone = u.config.MPS.Mode == config.MPSOff; l.Alone && learning.FormsGroups(u.config.Policy) {
			u.log.Info().Str("gpu", u.text).Msg("without MPS services take turns on the GPU: operators do not overlap, and no groups are measured")
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

// runner returns the executor of the device, or the fake workers of a test.
func (u *poolDevice) runner(o *Options, specs []executor.ServiceSpec, outcomes chan executor.Outcome, events func(executor.Event)) (loop.Workers, error) {
	workers := o.workers
	if workers == nil {
		workers = func(o executor.Options) (loop.Workers, error) {
			e, err := executor.New(o)
			if err != nil {
				return nil, err // a nil *executor.Executor would be a non-nil Workers
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
		Poll:        poll,
		Policy:      child.Policy{BackoffMin: c.BackoffMin, BackoffMax: c.BackoffMax, RestartLimit: c.RestartLimit},
		Events:      u.watchStart(specs, events),
		BeforeKill:  u.beforeKill(),
	}
	if u.emulation != nil {
		e := u.emulation
		options.Inside = emulated.New(e.device, uint64(u.index)+1, e.known, e.hash)
	}
	if u.sharesCores() {
		options.Cores = u.cores
	}
	if u.emulation == nil {
		options.Affinity = u.affinity
	}
	return workers(options)
}

// watchStart passes events on. If a service that the daemon starts with has an invalid
// model, and was never ready, the daemon ends: it fails like a daemon whose configuration
// was found invalid before the start.
func (u *poolDevice) watchStart(specs []executor.ServiceSpec, events func(executor.Event)) func(executor.Event) {
	loaded := make([]atomic.Bool, len(u.config.Services))
	return func(e executor.Event) {
		if int(e.Service) < len(loaded) && slices.ContainsFunc(specs, func(s executor.ServiceSpec) bool { return s.ID == e.Service }) {
			switch e.Kind {
			case executor.WorkerReady, executor.WorkerStopped: // the ID is used for a later service from now on
				loaded[e.Service].Store(true)
			case executor.WorkerFailed:
				// Only an invalid model ends the daemon. Other failures may pass, so the
				// worker is restarted.
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

// placeOf returns the place of a service on the device: what it has of it. Its GiveBack
// does nothing.
func (u *poolDevice) placeOf(s *config.Service) loop.Place {
	p := loop.Place{Device: u.index, Share: shareOf(u.threads(s), s, u.part != nil), GiveBack: func() {}}
	if u.part != nil {
		p.Share += fmt.Sprintf(", TF32 %t", u.config.CUDA.TF32)
		if u.config.CUDA.Graphs {
			p.Share += ", CUDA graphs"
		}
	}
	// Such a worker runs with one thread in a group, so its measurements hold for that as
	// well.
	if u.atOnce(s) > 1 {
		p.Share += fmt.Sprintf(", or one beside others on %d cores", u.cores)
	}
	if u.emulation != nil {
		known := u.emulation.model(s)
		p.Model, p.MaxBatch, p.MaxSeqLen = known.Name, slices.Max(known.Sizes), slices.Max(known.SeqLens)
	}
	return p
}

// worker returns the place of a service with the description of its worker. A model of the
// zoo is built if it does not exist. On a GPU, its memory is reserved until
// the place is given back; a service that does not fit is refused, and the others are
// served.
func (u *poolDevice) worker(id models.ServiceID, s *config.Service) (place loop.Place, err error) {
	path, err := u.model(s.Model)
	if err != nil {
		return place, fmt.Errorf("service %s: %w", s.Name, err)
	}
	// The times of an emulated share are computed when it is created.
	if u.emulation != nil && u.emulation.share > 0 && u.emulation.share != s.MPS.Percentage {
		return place, fmt.Errorf("service %s: active_thread_percentage of an emulated device was set to %d when it was created: restart the daemon to change it", s.Name, u.emulation.share)
	}
	w := &u.config.Worker
	place = u.placeOf(s)
	place.Worker = executor.ServiceSpec{
		ID:   id,
		Name: s.Name,
		Load: wire.LoadSpec{
			Service:           s.Name,
			ModelPath:         path,
			OpLibraries:       s.OpLibraries,
			CacheDir:          filepath.Join(u.config.CacheDir(), "optimized"),
			Threads:           u.threads(s),
			Spin:              w.Spin,
			Units:             u.atOnce(s),
			Cores:             u.bound(),
			CutTarget:         s.Cut,
			MaxBatch:          s.MaxBatch,
			IntermediateBytes: w.IntermediateBytes,
			TrimNanos:         int64(trimAfter),
		},
		OutputBytes: w.OutputBytes,
	}
	if u.part == nil {
		return place, nil
	}
	spec := &place.Worker
	spec.Env = u.part.Env(s)
	mps := u.config.MPS.Mode != config.MPSOff // part of the device's name
	spec.Load.CUDA = &wire.CUDASpec{
		MPS:         &mps,
		MemoryBytes: u.given(s),
		TF32:        u.config.CUDA.TF32,
		Graphs:      u.config.CUDA.Graphs,
	}
	// The first run with a shape is slow on a GPU, so the worker warms up the configured
	// ones.
	spec.Load.WarmSeqLens = s.SeqLens
	cut := s.Cut
	if spec.Load.Choose = u.question(path, s); spec.Load.Choose != nil && spec.Load.Choose.Known != nil {
		cut = spec.Load.Choose.Known.Target
	}
	place.GiveBack, spec.Refused = u.admit(path, s, cut, u.memory)
	return place, nil
}

// sharesCores reports whether rounds of several spans run on the cores of this machine,
// each span on a part of them.
func (u *poolDevice) sharesCores() bool {
	return u.part == nil && u.emulation == nil && learning.FormsGroups(u.config.Policy)
}

// divides reports whether batches get shares of a device: where the policy decides which has how many
// of its units. The stages of a pipeline have all of them.
func divides(c *config.Config) bool {
	return c.Policy == "overlap" && !slices.ContainsFunc(c.Services, func(s config.Service) bool { return s.Planned != nil && len(s.Planned.Pipelines) > 0 })
}

// bound returns the cores to which runs on a share of the device are bound, nil if runs have no shares.
func (u *poolDevice) bound() []int {
	if !u.sharesCores() {
		return nil
	}
	return u.cpus
}

// units returns how many units rounds have shares of.
func (u *poolDevice) units() int {
	switch {
	case u.part != nil || !divides(&u.config):
		return 1
	case u.emulation != nil:
		return u.emulation.units
	}
	return min(u.cores, overlap.MaxUnits)
}

// atOnce returns how many spans a service's worker runs at once.
func (u *poolDevice) atOnce(s *config.Service) int {
	if u.sharesCores() && u.threads(s) > 1 {
		return u.cores
	}
	return u.units()
}

// threads returns the number of threads of a service's worker: that of the service, of all
// workers, or of the device.
func (u *poolDevice) threads(s *config.Service) int {
	return cmp.Or(s.Threads, u.config.Worker.Threads, u.cores)
}

// model returns the path of a model file. A model of the zoo is built first. A model of an
// emulated device has no file and is identified by its name.
func (u *poolDevice) model(model string) (string, error) {
	if u.emulation != nil {
		return strings.TrimPrefix(model, config.EmulatedPrefix), nil
	}
	name, ok := strings.CutPrefix(model, config.ZooPrefix)
	if !ok {
		return filepath.Abs(model)
	}
	started := time.Now()
	// It returns immediately if the file exists.
	path, err := zoo.Build(name, filepath.Join(u.config.CacheDir(), "models"), zooSeed, nil)
	if took := time.Since(started); err == nil && took > time.Second/2 {
		u.log.Info().Str("model", name).Dur("took", took.Round(time.Millisecond)).Msg("zoo model built")
	}
	return path, err
}

const (
	// chooseBudget is how long a worker may measure the cost of cutting its model the first
	// time. It is limited to one part in choosePart of worker.load_timeout, so that loading
	// does not time out.
	chooseBudget = 20 * time.Second
	choosePart   = 4
)

// question returns the request to choose the cut of a model on a GPU, or nil if the
// configuration sets it. If an earlier choice is known, it is part of the request and
// nothing is measured.
func (u *poolDevice) question(path string, s *config.Service) *wire.ChooseSpec {
	if s.Cut != 0 {
		return nil
	}
	q := &wire.ChooseSpec{BudgetNanos: int64(min(chooseBudget, u.config.Worker.LoadTimeout/choosePart))}
	if u.given(s) > 0 {
		q.Finest = wire.FinestChoice // the memory is bounded and was reserved
	}
	if u.state == nil {
		return q
	}
	hash, err := hashModel(u.life, path, u.config.Worker.LoadTimeout, s.OpLibraries...)
	if err != nil {
		return q // the worker reports what is wrong with it
	}
	if known := new(wire.CutChoice); u.state.stored(u.log, cutChoices, u.cutKey(hash, u.placeOf(s).Share, s.MaxBatch), known) {
		q.Known = known
	}
	return q
}

// cutKey returns the key of a choice in the state file: the device, the model, and the
// service's share of the device. The choice itself contains what else it depends on.
func (u *poolDevice) cutKey(hash, share string, maxBatch int) string {
	return fmt.Sprintf("%s|%s|%s|max_batch %d", u.text, hash, share, maxBatch)
}

// shareOf describes what determines a service's operator times besides the device: its
// threads, and its share of a GPU.
func shareOf(threads int, s *config.Service, gpu bool) string {
	text := fmt.Sprintf("%d threads", threads)
	if p := s.MPS.Percentage; gpu && p > 0 {
		text += fmt.Sprintf(", MPS %d%%", p)
	}
	return text
}

// given returns the GPU memory that a service may use in bytes, 0 for no limit.
func (u *poolDevice) given(s *config.Service) int64 {
	limit, own := u.config.CUDA.MemoryLimit, s.MPS.PinnedMemory
	if limit == 0 || own != 0 && own < limit {
		return own
	}
	return limit
}

// needs returns the GPU memory of a service: its limit if it has one, otherwise an estimate
// for its model with the given cut (0 for the default). sums describes it. The error says
// that the limit is too low. For a model that cannot be read, nothing is known.
func (u *poolDevice) needs(path string, s *config.Service, cut int) (bytes int64, sums string, err error) {
	m, err := readModel(u.life, path, u.config.Worker.LoadTimeout, func(f *models.File) wire.DeviceMemory { return wire.ExpectDeviceMemory(f, cut, s.MaxBatch) })
	if err != nil {
		return 0, "", nil // the worker reports what is wrong with it
	}
	bytes, sums = m.Sum(), m.Sums()
	switch given := u.given(s); {
	case given > 0 && given < bytes:
		err = fmt.Errorf("%w %s: it needs %s = %d MiB and its limit is %d MiB; raise pinned_memory_limit or cuda.memory_limit, or lower its cut",
			gpu.ErrNoRoom, s.Name, sums, bytes>>20, given>>20)
	case given > 0:
		bytes, sums = given, "what it is given, for "+sums
	}
	return bytes, sums, err
}

// admit reserves the GPU memory of a service. It returns a function that releases it, or
// why there is not enough.
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

// clients are the executors whose workers are clients of one MPS server.
type clients []*executor.Executor

// Hold stops the workers of all executors. If it returns nil, all have exited.
func (c clients) Hold(ctx context.Context, cause error) (err error) {
	for _, e := range c {
		err = errors.Join(err, e.Hold(ctx, cause))
	}
	return err
}

// Resume allows the workers of all executors to start again.
func (c clients) Resume() {
	for _, e := range c {
		e.Resume()
	}
}

// beforeKill returns a function that removes a worker's work from the GPU before it is
// killed, or nil without MPS.
func (u *poolDevice) beforeKill() func(models.ServiceID, int) {
	if u.part == nil || !u.part.HasMPS() {
		return nil
	}
	return func(id models.ServiceID, pid int) {
		if err := u.part.TerminateClient(u.life, pid); err != nil {
			u.log.Warn().Err(err).Int("service_id", int(id)).Int("pid", pid).
				Msg("killing a worker whose work on the GPU did not end; if other workers hang now, restart the MPS control daemon and all workers")
		}
	}
}

// CheckCores returns an error if devices name cores that this process cannot use.
func CheckCores(c *config.Config) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return err
	}
	return c.Devices.CheckCores(set.IsSet)
}

// zooSeed is the seed of the weights of zoo models. It is fixed, so that hashes and
// measurements apply to every host.
const zooSeed = 1

// Options is what a daemon needs besides its configuration.
type Options struct {
	// Worker is the command line of a worker. Check is that of a child that calls
	// statefile.RunCheck; if it is empty, the state file is not checked.
	Worker  []string
	Check   []string
	Version string
	Commit  string

	// Device describes the CPU, such as its name.
	Device string

	// Runtime is the version of ONNX Runtime that workers load, or "" if it is not known.
	Runtime string

	// Nodes are the physical cores that workers may use, by NUMA node.
	Nodes [][]int

	// Fit fits predictors. If it is nil, none is fitted.
	Fit loop.FitFunc

	// Reread returns the whole configuration, with one model as the model repository has it
	// now and everything else as it is. It is called when a client loads that model. It is
	// nil without a repository.
	Reread func(model string) (config.Config, error)

	// Offline is set for Measure: there are no endpoints.
	Offline bool

	// Listener and GRPCListener are inherited sockets, which stay open when the daemon
	// stops. The daemon opens those that are nil.
	Listener, GRPCListener net.Listener

	// Processors is the number of processors that the daemon may use if its workers are
	// processes without a GPU; it uses as few as suffice. 0 leaves it to the Go runtime.
	Processors int

	GPU gpu.Options
	Log zerolog.Logger

	// workers, move and emulation are replaced by tests, which may listen to the loop.
	workers   func(executor.Options) (loop.Workers, error)
	move      func(number uint64, from, to loop.Workers, batch executor.SpanRequest, planned time.Duration) error
	emulation func(*config.Config) (*emulation, error)
	listener  observe.Listener
}

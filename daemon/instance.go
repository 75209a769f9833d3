package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/executor/emulated"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/textfile"
	"github.com/overlapd/overlapd/training"
)

// instance is a scheduler with the services, the workers and the device that it
// decides about. A daemon has one, or one for each instance of a GPU that is
// divided: what runs on one instance takes nothing from another.
type instance struct {
	config    config.Config // with its own services only
	log       zerolog.Logger
	state     *State
	keeper    *loop.Keeper
	backend   *loop.Backend
	exec      loop.Workers
	recorder  *metrics.Recorder // nil without metrics
	cores     int               // threads of a service that sets none
	memory    *gpu.Ledger       // the memory of the part, nil without a GPU
	device    string
	emulation *emulation // nil for a device that computes
	part      *gpu.Part  // nil without a GPU
	dir       string     // where the decision log lies in the state folder
	decisions *journal.Writer

	failed     chan<- error    // ends the daemon; the first counts
	life       context.Context // ends when the daemon closes
	goroutines *sync.WaitGroup // those that run besides the loop
}

// open makes everything of an instance that can be refused.
func (u *instance) open(o *Options) error {
	if u.part != nil {
		u.memory = u.part.Ledger()
	}
	if err := u.openDecisions(); err != nil {
		return err
	}
	specs, places := make([]executor.ServiceSpec, len(u.config.Services)), make([]loop.Place, len(u.config.Services))
	for i := range specs {
		var err error
		if specs[i], places[i], err = u.worker(models.ServiceID(i), &u.config.Services[i]); err != nil {
			return err
		}
	}
	l := loop.Options{
		Log: u.log, Device: u.device, Places: places, Learning: u.learning(o.Fit), Fit: o.Fit, Keeper: u.keeper, Journal: u.decisions,
		Header: journal.Header{Version: o.Version, Commit: o.Commit, Device: u.device},
		Workers: func(inputs []*wire.InputArena, events func(executor.Event)) (loop.Workers, error) {
			for i := range specs {
				specs[i].Inputs = inputs[i]
			}
			return u.runner(o, specs, events)
		},
		Life: u.life, Goroutines: u.goroutines,
	}
	if u.emulation != nil {
		l.MeasuredAs = u.emulation.name
	} else {
		l.Profiles = u
	}
	if u.part != nil {
		l.GPU = u.part.Status
	}
	if u.config.Metrics {
		u.recorder = metrics.NewRecorder(u.config.Names())
		l.Listeners = append(l.Listeners, u.recorder)
	}
	var err error
	u.backend, err = loop.New(u.config, l)
	return err
}

// start lets the instance decide, and starts its workers.
func (u *instance) start() error {
	u.backend.Begin()
	u.watchGPU()
	return u.exec.Start(context.Background())
}

// stop ends the workers, and then the scheduler goroutine.
func (u *instance) stop() error {
	if u.backend == nil {
		return nil
	}
	return u.backend.Close()
}

// openDecisions opens the decision log, if there is to be one.
func (u *instance) openDecisions() (err error) {
	c := &u.config.Decisions
	if !c.Log {
		return nil
	}
	o := journal.DefaultOptions()
	o.MaxFileBytes, o.MaxFiles = c.FileBytes, c.Files
	o.Stopped = func(err error) {
		u.log.Error().Err(err).Msg("the decision log cannot be written; serving goes on, and writing is tried again: see to it that the state folder has room")
	}
	o.Resumed = func(lost uint64) {
		u.log.Info().Uint64("lost", lost).Msg("the decision log is written again")
	}
	u.decisions, err = journal.Open(filepath.Join(u.config.StateDir, u.dir), o)
	return err
}

// learning returns how the instance is to come by a predictor, with those that may be
// used once the models are known. Serving goes on without one that cannot be read.
func (u *instance) learning(fit loop.FitFunc) learning.Options {
	o := learningOptions(&u.config)
	o.CanFit = u.config.Predictor.Train && fit != nil
	var err error
	if o.File != "" {
		if o.Refused = textfile.Regular(o.File); o.Refused == nil {
			o.Configured, o.Refused = predictor.ReadFile(o.File)
		}
		if o.Refused != nil {
			u.log.Error().Err(o.Refused).Msg("the configured predictor is refused; batches run one at a time")
		}
	} else if o.Stored, err = u.state.datasets.Predictors(); err != nil {
		u.log.Warn().Err(err).Msg("the stored predictors cannot be read")
	}
	return o
}

// runner returns what runs rounds.
func (u *instance) runner(o *Options, specs []executor.ServiceSpec, events func(executor.Event)) (w loop.Workers, err error) {
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
		LoadTimeout: c.LoadTimeout,
		SpanTimeout: c.SpanTimeout,
		Poll:        c.Poll,
		Policy:      child.Policy{BackoffMin: c.BackoffMin, BackoffMax: c.BackoffMax, RestartLimit: c.RestartLimit},
		Events:      u.watchStart(len(specs), events),
		BeforeKill:  u.beforeKill(),
	}
	if u.emulation != nil {
		e := u.emulation
		options.Inside = emulated.New(e.device, uint64(u.config.DeviceSeed), e.known, e.hash)
	}
	if u.sharesCores() {
		options.Cores = u.cores
	}
	u.exec, err = workers(options)
	return u.exec, err
}

// watchStart passes events on. Of the services that the daemon starts with, the first
// whose model turns out to be no good before it was ever ready ends the daemon, which
// fails in the same way as if that had been found before.
func (u *instance) watchStart(services int, events func(executor.Event)) func(executor.Event) {
	loaded := make([]atomic.Bool, services)
	return func(e executor.Event) {
		if e.Service < models.ServiceID(services) {
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
func (u *instance) placeOf(s *config.Service) loop.Place {
	p := loop.Place{Share: shareOf(u.threads(s), s, u.part != nil), GiveBack: func() {}}
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
func (u *instance) worker(id models.ServiceID, s *config.Service) (spec executor.ServiceSpec, place loop.Place, err error) {
	path, err := u.model(s.Model)
	if err != nil {
		return spec, place, fmt.Errorf("service %s: %w", s.Name, err)
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
	spec.Load.CUDA = &wire.CUDASpec{
		MemoryBytes:       u.given(s),
		TF32:              u.config.CUDA.TF32,
		ExtendAsRequested: u.config.CUDA.ArenaExtend == config.ExtendRequested,
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
func (u *instance) sharesCores() bool {
	return u.part == nil && u.emulation == nil && learning.FormsGroups(u.config.Policy)
}

// threads returns how many threads the worker of a service has.
func (u *instance) threads(s *config.Service) int {
	return cmp.Or(s.Threads, u.config.Worker.Threads, u.cores)
}

// model returns the file of a model, which is built first if it is one of the
// zoo's. A model of an emulated device has none and is known by its name.
func (u *instance) model(model string) (string, error) {
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

// Stored implements [loop.Profiles].
func (u *instance) Stored(kind, key string, value any) bool {
	ok, err := u.state.load(kind, key, value)
	if err != nil {
		u.log.Warn().Err(err).Str("of", kind).Msg("what was stored cannot be read; it is measured again")
	}
	return ok
}

// saveProfiles stores what was measured of every service that was ready once.
// Of an emulated device nothing was.
func (u *instance) saveProfiles() {
	if u.emulation != nil {
		return
	}
	solo, calibration, as := u.backend.Learned()
	for key, p := range solo {
		if err := u.state.save(loop.SoloProfiles, key, p); err != nil {
			u.log.Warn().Err(err).Str("of", key).Msg("storing what was measured")
		}
	}
	if calibration.Predictor == "" {
		return
	}
	if err := u.state.saveCalibration(as, calibration); err != nil {
		u.log.Warn().Err(err).Msg("storing how well the predictor does")
	}
}

// learningOptions returns what a configuration says of learning.
func learningOptions(c *config.Config) learning.Options {
	p := &c.Profile
	return learning.Options{
		Policy: c.Policy, Emulated: c.Emulated(), File: c.Predictor.File,
		OnStart: p.OnStart, Limit: p.Time, Groups: p.Groups, Repeats: p.Repeats, Spans: p.Spans, Seed: uint64(p.Seed),
	}
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
func (u *instance) question(path string, s *config.Service) *wire.ChooseSpec {
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
	hash, err := hashModel(path)
	if err != nil {
		return q // the worker says what is wrong with it
	}
	if known := new(wire.CutChoice); u.Stored(cutChoices, u.cutKey(hash, u.placeOf(s).Share, s.MaxBatch), known) {
		q.Known = known
	}
	return q
}

// cutKey names what a choice holds for: the model, the device, and what part of
// it the service has. What else it depends on, the choice says itself.
func (u *instance) cutKey(hash, share string, maxBatch int) string {
	return fmt.Sprintf("%s|%s|%s|max_batch %d|tf32 %t", u.device, hash, share, maxBatch, u.config.CUDA.TF32)
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

// ChoseCut implements [loop.Profiles].
func (u *instance) ChoseCut(s config.Service, share string, c *wire.CutChoice) {
	key := u.cutKey(c.Hash, share, s.MaxBatch)
	u.keeper.Keep("storing the choice of a cut", func(*training.Store) error { return u.state.save(cutChoices, key, c) })
}

// given returns how much of the GPU's memory a service may take, 0 for what
// there is.
func (u *instance) given(s *config.Service) int64 {
	limit, own := u.config.CUDA.MemoryLimit, s.MPS.PinnedMemory
	if limit == 0 || own != 0 && own < limit {
		return own
	}
	return limit
}

// admit accounts for a service: what it is given if that is said, else what its
// model is expected to need if it is cut so, 0 standing for the default. It
// returns what gives that back, or why there is no room for it.
func (u *instance) admit(path string, s *config.Service, cut int, memory *gpu.Ledger) (release func(), refused error) {
	var m wire.DeviceMemory
	if err := readModel(path, func(f *models.File) { m = wire.ExpectDeviceMemory(f, cut) }); err != nil {
		return func() {}, nil // the worker says what is wrong with it
	}
	bytes, sums := m.Sum(), m.Sums()
	switch given := u.given(s); {
	case given > 0 && given < bytes:
		return func() {}, fmt.Errorf("%w %s: it needs %s = %d MiB and is given %d MiB; raise pinned_memory_limit or cuda.memory_limit, or lower its cut",
			gpu.ErrNoRoom, s.Name, sums, bytes>>20, given>>20)
	case given > 0:
		bytes, sums = given, "what it is given, for "+sums
	}
	if release, refused = memory.Admit(s.Name, bytes, sums); refused != nil {
		release = func() {}
	}
	return release, refused
}

// planMemory writes who has how much of the memory, and who is refused.
func (u *instance) planMemory(b *strings.Builder) error {
	memory, refusals := u.part.Ledger(), ""
	for i := range u.config.Services {
		s := &u.config.Services[i]
		path, err := u.model(s.Model)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
		if _, refused := u.admit(path, s, s.Cut, memory); refused != nil {
			refusals += fmt.Sprintf("  refused: %v\n", refused)
		}
	}
	b.WriteString(memory.String() + refusals)
	return nil
}

// watchGPU starts what watches the instance's part of a GPU, if it has one.
func (u *instance) watchGPU() {
	if u.part == nil {
		return
	}
	u.goroutines.Go(func() { u.part.Sample(u.life) })
	if workers, ok := u.exec.(*executor.Executor); ok && u.part.HasMPS() {
		u.goroutines.Go(func() { u.part.Watch(u.life, workers, u.backend.LoseWorkers, u.log) })
	}
}

// beforeKill returns what takes a worker that is to be killed off the GPU, nil
// where there is no MPS.
func (u *instance) beforeKill() func(models.ServiceID, int) {
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

// join starts the worker of a service that is to take requests.
func (u *instance) join(c *config.Service) (*loop.Joining, error) {
	if err := errors.Join(checkModel(c)); err != nil {
		return nil, err
	}
	spec, place, err := u.worker(0, c)
	if err == nil {
		err = spec.Refused
	}
	if err != nil {
		return nil, err
	}
	j, err := u.backend.Admit(c, place, spec)
	if err != nil {
		place.GiveBack()
	}
	return j, err
}

// errPool is returned for a pool of which nothing is served yet.
var errPool = errors.New("only the MIG instances of one GPU are served together yet: configure one device, and run a daemon for each")

// servable returns why the devices of a configuration cannot be served.
func servable(c *config.Config) error {
	pool := c.Pool()
	gpus := pool.GPUs()
	if len(pool) > 1 && (len(gpus) != 1 || len(pool.Instances(gpus[0], nil)) < len(pool)) {
		return errPool
	}
	return CheckCores(c)
}

// CheckCores returns faults if devices have cores that this process may not use.
func CheckCores(c *config.Config) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return err
	}
	return c.Devices.CheckCores(set.IsSet)
}

// divide makes the instances: one for each part of a GPU that is divided, else one
// of all services. They are alike in what one has already, and share the state file.
func divide(one instance, g *gpu.GPU) (list []*instance) {
	if g == nil {
		return []*instance{&one}
	}
	parts := g.Parts()
	for n, p := range parts {
		i := one
		i.part, i.device = p, p.Text
		if len(parts) > 1 {
			i.config.Services = slices.DeleteFunc(slices.Clone(one.config.Services), func(s config.Service) bool {
				return !slices.Contains(p.Services, s.Name)
			})
			i.dir = fmt.Sprintf("instance-%d", n)
			i.log = one.log.With().Str("instance", p.UUID).Logger()
		}
		list = append(list, &i)
	}
	return list
}

// PlanGPU returns in words what a daemon with this configuration would do with
// a GPU, and what its services would have of the memory. It changes nothing but
// that models of the zoo are built. On a CPU the text is that.
func PlanGPU(c config.Config, o Options) (text string, err error) {
	g, err := gpu.Choose(context.Background(), c, o.GPU, o.Log)
	if err != nil {
		return "", err
	}
	if g == nil {
		return "no GPU is used\n", nil
	}
	defer func() { err = errors.Join(err, g.Give()) }()
	var b strings.Builder
	b.WriteString(g.String())
	for _, i := range divide(instance{config: c, log: o.Log}, g) {
		if err := i.planMemory(&b); err != nil {
			return "", err
		}
	}
	return b.String(), nil
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
	Cores   int          // threads of a service that sets none
	Fit     loop.FitFunc // nil if no predictor is to be fitted
	Offline bool         // for Measure: there is no endpoint
	GPU     gpu.Options
	Log     zerolog.Logger

	workers   func(executor.Options) (loop.Workers, error) // nil for processes
	emulation func(*config.Config) (*emulation, error)     // nil for that of a profile
}

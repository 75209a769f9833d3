package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/overlap/residency"
)

const (
	// loadsAtOnce is how many models load at the same time. A load computes on one core, at low
	// priority.
	loadsAtOnce = 1

	// lookEvery is how often the queries of the models in memory are counted, and countedFor for how
	// long that is good enough to choose whom to evict. weighEvery is how often their memory is
	// measured: the kernel goes through all of it for that.
	lookEvery  = time.Second
	countedFor = 20 * time.Millisecond
	weighEvery = 10 * time.Second

	// memoryShare is the part of the machine's memory that models may take if the configuration does
	// not say.
	memoryShare = 0.8

	// What is expected of a model before the first one was loaded: a process with ONNX Runtime and the
	// weights. What was measured of others corrects it.
	expectedBytes = 48 << 20
	expectedLoad  = 400 * time.Millisecond
	weightsFactor = 1.5     // packed weights, intermediates
	weightsRate   = 200e6   // bytes a second
	learnedPart   = 1.0 / 8 // of a correction, that the last load decides

	// takeTime is how long freeing the memory of an evicted model may take.
	takeTime = 30 * time.Second
)

// residents are the services whose models are loaded when they are asked for. Package residency
// decides which of them are in memory; this makes it so.
type residents struct {
	backend  *loop.Backend
	devices  pool
	config   *effective
	log      zerolog.Logger
	life     context.Context
	onDemand bool
	epoch    time.Time
	running  *sync.WaitGroup

	// changing is held by a reload, and shared by loads and evictions.
	changing sync.RWMutex

	// poke says that something may have to be done.
	poke chan struct{}

	// counted is when count was called last, in Unix nanoseconds.
	counted atomic.Int64

	mu    sync.Mutex
	set   *residency.Set
	named map[string]*resident
	byID  map[int]*resident
	next  int // ID

	// zoo is the sizes of models of the zoo, which are not built before they are loaded.
	zoo map[string]int64

	// scales correct what is expected of the memory and the time of a load.
	scales struct{ bytes, load float64 }

	loads, evictions, failures uint64
}

// resident is a service whose model may be on disk.
type resident struct {
	id   int
	name string

	// settled is closed when a load or an eviction has ended, and replaced. fault is why the last load
	// failed.
	settled chan struct{}
	fault   error

	// waiting is how many queries wait for the model, and counted how many there had been of it.
	waiting int
	counted uint64

	keep bool // it is loaded at the start, and stays
}

// newResidents returns the residents of a configuration that has some.
func newResidents(d *Daemon, c *config.Config) *residents {
	memory := c.Memory
	if memory == 0 {
		memory = int64(memoryShare * float64(hostMemory()))
	}
	r := &residents{
		backend: d.backend, devices: d.devices, config: &d.config, log: d.log, life: d.life, running: &d.running,
		onDemand: c.Load == config.LoadOnDemand, epoch: time.Now(), poke: make(chan struct{}, 1),
		set: residency.New(memory, config.MaxServices, loadsAtOnce), named: map[string]*resident{}, byID: map[int]*resident{}, zoo: map[string]int64{},
	}
	r.scales.bytes, r.scales.load = 1, 1
	return r
}

func (r *residents) now() time.Duration { return time.Since(r.epoch) }

// admit takes in services that are new or have another configuration. Those that are not in memory and
// need not be sleep. It reports false if the loop has ended.
func (r *residents) admit(c *config.Config, services ...config.Service) bool {
	var sleep []config.Service
	r.mu.Lock()
	for i := range services {
		s := &services[i]
		name, _ := s.Of()
		name = cmp.Or(name, s.Name)
		m := r.named[name]
		if m == nil {
			m = &resident{id: r.next, name: name, settled: make(chan struct{})}
			r.next++
			r.named[name], r.byID[m.id] = m, m
		}
		m.fault, m.keep = nil, c.Stays(s)
		model := r.expect(s)
		model.Keep = m.keep || !r.onDemand
		r.set.Put(r.now(), m.id, model)
		if now := r.backend.Service([]byte(name)); !m.keep && (now == nil || now.Asleep != nil) {
			sleep = append(sleep, *s)
		}
	}
	r.mu.Unlock()
	return len(sleep) == 0 || r.backend.Rest(nil, r, sleep...)
}

// forget removes a service that sleeps.
func (r *residents) forget(name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	m := r.named[name]
	if m != nil {
		delete(r.named, name)
		delete(r.byID, m.id)
		r.set.Delete(m.id)
	}
	r.mu.Unlock()
	if m != nil {
		r.backend.Forget(name)
	}
}

// expect returns what is expected of a model that was never loaded.
func (r *residents) expect(c *config.Service) residency.Model {
	size := r.modelBytes(c.Model)
	target := c.Target
	if c.BestEffort {
		target = math.MaxInt64
	}
	load := expectedLoad + time.Duration(float64(size)/weightsRate*float64(time.Second))
	return residency.Model{
		Target: target,
		Bytes:  int64(r.scales.bytes * (expectedBytes + weightsFactor*float64(size))),
		Load:   time.Duration(r.scales.load * float64(load)),
	}
}

// modelBytes returns the size of a model file with its external data, as far as that is known without
// reading it.
func (r *residents) modelBytes(model string) (sum int64) {
	if name, ok := strings.CutPrefix(model, config.ZooPrefix); ok {
		if _, known := r.zoo[name]; !known {
			e, _ := zoo.Lookup(name)
			r.zoo[name] = e.Size()
		}
		return r.zoo[name]
	}
	for _, path := range []string{model, model + ".data", strings.TrimSuffix(model, filepath.Ext(model)) + ".data"} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
	}
	return sum
}

// OnDemand implements [query.Sleeper].
func (r *residents) OnDemand() bool { return r.onDemand }

// Known implements [query.Sleeper].
func (r *residents) Known(s *query.Service) (*query.Signature, *query.Error) {
	c := r.config.get()
	of := c.Service(s.Name)
	if of == nil {
		return nil, query.NotFound("unknown model %q", s.Name)
	}
	path, err := r.devices[0].model(of.Model)
	if err != nil {
		return nil, unloadable(s.Name, err, 0)
	}
	file := *of
	file.Model = path
	sig, fault, err := checkModel(r.life, &file, c.Worker.LoadTimeout)
	switch err = cmp.Or(fault, err); {
	case err != nil:
		return nil, unloadable(s.Name, err, 0)
	case sig == nil: // an emulated model has no file
		return nil, query.ErrUnavailable
	}
	return sig, nil
}

// unloadable is what a query gets whose model cannot be loaded.
func unloadable(name string, err error, again time.Duration) *query.Error {
	return &query.Error{Status: http.StatusServiceUnavailable, Reason: query.ReasonGivenUp, RetryAfter: again,
		Message: fmt.Sprintf("the model of service %s could not be loaded: %v", name, err)}
}

// loading is what a query gets that cannot wait for its model.
func loading(name string, after time.Duration) *query.Error {
	return &query.Error{Status: http.StatusServiceUnavailable, Reason: query.ReasonLoading, RetryAfter: max(after, time.Millisecond),
		Message: fmt.Sprintf("the model of service %s is not in memory, and would be too late for this query: try again in %v", name, after.Round(time.Millisecond))}
}

// Wake implements [query.Sleeper].
func (r *residents) Wake(s *query.Service, arrival time.Time, left <-chan struct{}) *query.Error {
	if !r.onDemand {
		return s.NotReady()
	}
	slack := time.Duration(math.MaxInt64)
	if c := r.config.get(); c.Service(s.Name) != nil && !c.Service(s.Name).BestEffort {
		slack = time.Until(arrival.Add(s.QoSTarget))
	}
	if time.Since(time.Unix(0, r.counted.Load())) > countedFor {
		r.count(false)
	}
	r.mu.Lock()
	m := r.named[s.Name]
	if m == nil {
		r.mu.Unlock()
		return query.NotFound("unknown model %q", s.Name)
	}
	answer := r.set.Ask(r.now(), m.id, slack)
	state, settled := r.set.State(m.id), m.settled
	switch {
	case state == residency.InMemory:
		r.mu.Unlock()
		return nil
	case !answer.Wait && m.fault != nil && state == residency.OnDisk:
		r.mu.Unlock()
		return unloadable(s.Name, m.fault, answer.After)
	case !answer.Wait:
		r.mu.Unlock()
		r.look()
		return loading(s.Name, answer.After)
	case m.waiting >= s.QueueLimit:
		r.mu.Unlock()
		return query.ErrQueueFull
	}
	m.waiting++
	r.mu.Unlock()
	r.look()
	defer func() {
		r.mu.Lock()
		m.waiting--
		r.mu.Unlock()
	}()
	timer := time.NewTimer(slack)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
		return loading(s.Name, answer.After)
	case <-left:
		return query.Unavailable(query.ReasonCancelled, "the client disconnected while the model was loaded")
	case <-r.life.Done():
		return query.ErrDraining
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.fault != nil {
		return unloadable(s.Name, m.fault, lookEvery)
	}
	return nil
}

// look has what is due done soon.
func (r *residents) look() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// run loads and evicts until the daemon ends.
func (r *residents) run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	weighed := r.now()
	for {
		select {
		case <-r.life.Done():
			return
		case <-r.poke:
		case <-tick.C:
			weigh := r.now()-weighed >= weighEvery
			if r.count(weigh); weigh {
				weighed = r.now()
			}
		}
		r.mu.Lock()
		for {
			step, ok := r.set.Next(r.now())
			if !ok {
				break
			}
			m := r.byID[step.Model]
			if step.Load {
				r.running.Go(func() { r.load(m) })
			} else {
				r.running.Go(func() { r.evict(m) })
			}
		}
		r.mu.Unlock()
	}
}

// count tells the set of the queries of the models that are in memory, and of how much they take.
func (r *residents) count(weigh bool) {
	r.counted.Store(time.Now().UnixNano())
	for _, s := range r.backend.Services() {
		if s.Asleep != nil {
			continue
		}
		counts, bytes := s.Stats.Counts(), int64(0)
		total := counts.Success.Count + counts.Fail.Count
		r.mu.Lock()
		m := r.named[s.Name]
		first := m != nil && m.keep && r.set.State(m.id) == residency.OnDisk
		r.mu.Unlock()
		if (weigh || first) && s.Ready() {
			bytes = r.weigh(s)
		}
		r.mu.Lock()
		if m != nil {
			if r.set.State(m.id) == residency.InMemory {
				r.set.Seen(r.now(), m.id, int(max(total, m.counted)-m.counted), s.Users() > 0)
				m.counted = total
			}
			if bytes > 0 {
				r.set.Loaded(r.now(), m.id, bytes)
			}
		}
		r.mu.Unlock()
	}
}

// weigh returns the memory of the workers of a service, 0 if that is not known.
func (r *residents) weigh(s *query.Service) (bytes int64) {
	for _, one := range s.Each() {
		for _, u := range r.devices {
			if worker, err := r.backend.Workers(u.index).State(one.ID); err == nil {
				bytes += processBytes(worker.PID)
			}
		}
	}
	return bytes
}

// load has the model of a service loaded.
func (r *residents) load(m *resident) {
	r.changing.RLock()
	c, began := r.config.get(), time.Now()
	of := c.Service(m.name)
	if of == nil { // a reload has removed it
		r.changing.RUnlock()
		return
	}
	asked := *of
	_, err := readTexts([]*config.Service{&asked}, func(s *config.Service) (string, error) { return r.devices[0].model(s.Model) })
	run := &reload{backend: r.backend, devices: r.devices, config: r.config, ctx: r.life, next: c, progress: func(config.Step) {}}
	if err == nil {
		err = run.joined(&asked)
	}
	r.changing.RUnlock()
	bytes := int64(0)
	if s := r.backend.Service([]byte(m.name)); err == nil && s != nil {
		bytes = r.weigh(s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.fault = err; err != nil {
		r.failures++
		r.set.Failed(r.now(), m.id)
		if !errors.Is(err, ErrStopping) {
			r.log.Error().Err(err).Str("service", m.name).Msg("loading a model failed; its queries are refused until another try succeeds")
		}
	} else {
		r.loads++
		r.learn(of, bytes, time.Since(began))
		m.counted += uint64(m.waiting) // they were counted as they came
		r.set.Loaded(r.now(), m.id, cmp.Or(bytes, r.expect(of).Bytes))
		r.log.Info().Str("service", m.name).Dur("took", time.Since(began).Round(time.Millisecond)).Int64("bytes", bytes).Msg("model loaded")
	}
	m.settle()
	r.look()
}

// learn corrects what is expected of models that were never loaded.
func (r *residents) learn(c *config.Service, bytes int64, took time.Duration) {
	expected := r.expect(c)
	correct := func(scale *float64, measured, expected float64) {
		if measured > 0 && expected > 0 {
			*scale *= math.Pow(measured/expected, learnedPart)
		}
	}
	correct(&r.scales.bytes, float64(bytes), float64(expected.Bytes))
	correct(&r.scales.load, float64(took), float64(expected.Load))
}

// evict has the worker of a service end.
func (r *residents) evict(m *resident) {
	r.changing.RLock()
	defer r.changing.RUnlock()
	c := r.config.get()
	if of := c.Service(m.name); of != nil {
		gone := make(chan struct{})
		if !r.backend.Rest(gone, r, *of) {
			return
		}
		select {
		case <-gone:
		case <-time.After(takeTime):
		case <-r.life.Done():
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.evictions++
	m.counted = 0
	r.set.Gone(r.now(), m.id)
	r.log.Info().Str("service", m.name).Msg("model evicted")
	m.settle()
	r.look()
}

// settle tells those that wait for the model that a load or an eviction has ended.
func (m *resident) settle() {
	close(m.settled)
	m.settled = make(chan struct{})
}

// Load has the model of a service loaded by request, and waits for it.
func (r *residents) Load(ctx context.Context, name string) *query.Error {
	return r.want(ctx, name, residency.InMemory, func(id int) bool { return r.set.Load(r.now(), id) })
}

// Unload has the model of a service evicted by request, and waits for it.
func (r *residents) Unload(ctx context.Context, name string) *query.Error {
	return r.want(ctx, name, residency.OnDisk, func(id int) bool {
		r.set.Evict(r.now(), id)
		return true
	})
}

func (r *residents) want(ctx context.Context, name string, state residency.State, ask func(id int) bool) *query.Error {
	r.mu.Lock()
	m := r.named[name]
	switch {
	case m == nil:
		r.mu.Unlock()
		return query.NotFound("unknown model %q", query.Cut(name))
	case m.keep && state == residency.OnDisk:
		r.mu.Unlock()
		return query.Invalid("service %s has keep = true or variants: it stays in memory", name)
	}
	asked := m.keep || r.set.State(m.id) == state || ask(m.id)
	for asked && !m.keep && r.set.State(m.id) != state {
		settled := m.settled
		r.mu.Unlock()
		r.look()
		select {
		case <-settled:
		case <-ctx.Done():
			return query.Unavailable(query.ReasonCancelled, "the client disconnected; the request is carried out all the same")
		case <-r.life.Done():
			return query.ErrDraining
		}
		r.mu.Lock()
		if m.fault != nil && state == residency.InMemory {
			defer r.mu.Unlock()
			return unloadable(name, m.fault, 0)
		}
	}
	used, limit := r.set.Used()
	r.mu.Unlock()
	if !asked {
		return query.Unavailable(query.ReasonNoMemory, fmt.Sprintf("no memory for the model of service %s: models take %d of %d MiB; unload another one, or raise memory", name, used>>20, limit>>20))
	}
	return nil
}

// show adds to a status where models are.
func (r *residents) show(s *status.Status) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	used, limit := r.set.Used()
	s.Memory = &status.Memory{UsedBytes: used, LimitBytes: limit, Loads: r.loads, Evictions: r.evictions, Failures: r.failures}
	for i := range s.Services {
		name, _, _ := strings.Cut(s.Services[i].Name, "/")
		if m := r.named[name]; m != nil {
			s.Services[i].State, s.Services[i].MemoryBytes = r.set.State(m.id).String(), r.set.Taken(m.id)
		}
	}
}

// processBytes returns the memory of a process, of which what it shares with others counts in part; 0
// if that is not known.
func processBytes(pid int) int64 {
	return readKilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
}

// hostMemory returns the memory of this machine, or of the control group of this process if that is
// less.
func hostMemory() int64 {
	all := readKilobytes("/proc/meminfo", "MemTotal:")
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(path)
		if n, failed := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && failed == nil && n > 0 {
			all = min(all, n)
		}
	}
	return all
}

// readKilobytes returns the bytes of a line of a file under /proc, 0 if it has none.
func readKilobytes(path, key string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

package residents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// modelBytes is what each model takes, as expected, and loadTime how long its load does, unless a test
// says otherwise. A query can wait for target.
const (
	modelBytes = expectedBytes
	target     = time.Minute
	loadTime   = 100 * time.Millisecond
)

// fake is a set whose models take memory and time as a test says. It runs in virtual time.
type fake struct {
	*Set
	t      *testing.T
	config config.Config
	end    context.CancelFunc
	server query.Server

	mu struct {
		sync.Mutex
		list  []*query.Service // by their place in the configuration; nil if there is none
		loads []string         // that were begun
		took  map[string]time.Duration
		fault map[string]error
		bytes map[int]int64 // by the PID, modelBytes if it has none
	}

	// evicting is called for each eviction.
	evicting func(s *query.Service)
}

// fakeWorkers have the processes of all services.
type fakeWorkers struct{ loop.Workers }

func (fakeWorkers) State(id models.ServiceID) (executor.State, error) {
	return executor.State{PID: int(id) + 1}, nil
}

// newFake returns a set of so many services with memory for as many models, which runs. Their models are
// loaded on demand unless change says otherwise.
func newFake(t *testing.T, services, room int, change func(*config.Config)) *fake {
	f := &fake{t: t, evicting: func(*query.Service) {}}
	f.server.Host = host{of: f}
	f.config.Models.Load, f.config.Models.Memory = config.LoadOnDemand, int64(room)*modelBytes
	for i := range services {
		f.config.Services = append(f.config.Services, config.Service{Name: fmt.Sprint("m", i), Model: "none.onnx", Target: target, QueueLimit: 1000})
	}
	if change != nil {
		change(&f.config)
	}
	life, end := context.WithCancel(t.Context())
	f.end = end
	f.mu.list = make([]*query.Service, services)
	f.mu.took, f.mu.fault, f.mu.bytes = map[string]time.Duration{}, map[string]error{}, map[int]int64{}
	f.Set = New(Options{
		Backend: f, Log: zerolog.Nop(), Config: f.effective, Devices: 1, Life: life, Running: new(sync.WaitGroup), Load: f.load,
		Known: func(*config.Service) (*query.Signature, error) { return nil, nil },
	})
	f.bytes = func(pid int) int64 {
		f.mu.Lock()
		defer f.mu.Unlock()
		return cmp.Or(f.mu.bytes[pid], modelBytes)
	}
	for i := range f.config.Services {
		if s := &f.config.Services[i]; f.config.Stays(s) {
			f.publish(s.Name, nil)
		}
	}
	f.Admit(&f.config, f.config.Services...)
	f.Running.Go(f.Run)
	time.Sleep(2 * lookEvery) // those that stay are counted
	return f
}

// stop ends the set, and fails unless nothing of it is left.
func (f *fake) stop() {
	f.end()
	f.Running.Wait()
}

// publish lets queries find a service, which sleeps unless sleeper is nil.
func (f *fake) publish(name string, sleeper query.Sleeper) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.config.Service(name)
	i := slices.Index(f.config.Names(), name)
	s := query.NewService(models.ServiceID(i), name)
	s.QoSTarget, s.QueueLimit, s.Asleep, s.Backend = c.Target, c.QueueLimit, sleeper, answering{}
	if err := s.Loaded(query.Info{}); err != nil {
		f.t.Error(err)
	}
	s.SetReady(sleeper == nil)
	if before := f.mu.list[i]; before != nil {
		s.Stats = before.Stats
		before.Retired.Store(true)
	}
	f.mu.list[i] = s
}

// load takes the time that the test says, and fails if it says so.
func (f *fake) load(c *config.Service) error {
	f.mu.Lock()
	f.mu.loads = append(f.mu.loads, c.Name)
	took, fault := f.mu.took[c.Name], f.mu.fault[c.Name]
	f.mu.Unlock()
	if took == 0 {
		took = loadTime
	}
	select {
	case <-time.After(took):
	case <-f.Life.Done():
		return loop.ErrEnded
	}
	if fault == nil {
		f.publish(c.Name, nil)
	}
	return fault
}

func (f *fake) Services() []*query.Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.mu.list), func(s *query.Service) bool { return s == nil })
}

func (f *fake) Service(name []byte) *query.Service {
	for _, s := range f.Services() {
		if s.Name == string(name) {
			return s
		}
	}
	return nil
}

func (f *fake) Workers(int) loop.Workers { return fakeWorkers{} }

// Rest lets services sleep. One that has queries is gone when they are answered.
func (f *fake) Rest(gone chan struct{}, sleeper query.Sleeper, list ...config.Service) bool {
	for i := range list {
		old := f.Service([]byte(list[i].Name))
		if old != nil && gone != nil {
			f.evicting(old)
		}
		f.publish(list[i].Name, sleeper)
		if gone != nil {
			f.Running.Go(func() {
				for old != nil && old.Users() > 0 {
					time.Sleep(time.Millisecond)
				}
				close(gone)
			})
		}
	}
	return true
}

func (f *fake) Forget(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range f.mu.list {
		if s != nil && s.Name == name {
			s.Retired.Store(true)
			f.mu.list[i] = nil
		}
	}
	return true
}

// effective returns the configuration.
func (f *fake) effective() config.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}

// change changes the configuration, as a reload does.
func (f *fake) change(change func(*config.Config)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config.Services = slices.Clone(f.config.Services)
	change(&f.config)
}

// ask has a query answered that takes no time.
func (f *fake) ask(name string) *query.Error { return f.run(name, nil, func() {}) }

// run has a query answered that takes as long as during, whose client may leave.
func (f *fake) run(name string, left <-chan struct{}, during func()) *query.Error {
	s, err := f.server.Find([]byte(name), nil)
	if err != nil {
		return err
	}
	return f.server.Answer(s, codec(during), nil, left)
}

// askWithin has a query answered that can wait for so long, and takes no time.
func (f *fake) askWithin(name string, slack time.Duration) *query.Error {
	s, err := f.server.Awake(f.Service([]byte(name)), time.Now().Add(slack-target), nil)
	if err == nil {
		err = f.server.Answer(s, codec(func() {}), nil, nil)
	}
	return err
}

// codec is a query, which takes as long as the function.
type codec func()

func (run codec) Decode(c *query.Call) *query.Error {
	c.Arrival, c.Size = time.Now(), 1
	run()
	return nil
}

func (codec) Encode(*query.Call) *query.Error { return nil }

// answering answers each query at once.
type answering struct{ query.Backend }

func (answering) Submit(c *query.Call) error {
	c.Answer(query.Reply{})
	return nil
}

func (answering) Release(*query.Call) {}

// host is a set of services.
type host struct {
	query.Host
	of *fake
}

func (h host) Services() []*query.Service         { return h.of.Services() }
func (h host) Service(name []byte) *query.Service { return h.of.Service(name) }

// wants fails unless a query got an error with this reason.
func (f *fake) wants(err *query.Error, reason string) {
	f.t.Helper()
	if err == nil || err.Reason != reason {
		f.t.Errorf("got %v, want the reason %q", err, reason)
	}
}

// begun returns how many loads of a model were begun.
func (f *fake) begun(name string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.mu.loads {
		if l == name {
			n++
		}
	}
	return n
}

// fails has loads of a model fail, or no longer.
func (f *fake) fails(name, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.fault[name] = nil; why != "" {
		f.mu.fault[name] = errors.New(why)
	}
}

// shown returns the status of all services.
func (f *fake) shown() *status.Status {
	s := new(status.Status)
	for _, name := range f.config.Names() {
		s.Services = append(s.Services, status.Service{Name: name})
	}
	f.Show(s)
	return s
}

// state returns where a model is, by the status.
func (f *fake) state(name string) string {
	s := f.shown()
	return s.Services[slices.Index(f.config.Names(), name)].State
}

// says fails unless an error has a reason and a part of its message.
func (f *fake) says(err *query.Error, reason, part string) {
	f.t.Helper()
	if f.wants(err, reason); err != nil && !strings.Contains(err.Message, part) {
		f.t.Errorf("the message is %q, want %q in it", err.Message, part)
	}
}

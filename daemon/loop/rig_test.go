package loop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What these tests do with calls.
var (
	submit, mustSubmit  = fakeworkers.Submit, fakeworkers.MustSubmit
	answerOf, wantError = fakeworkers.AnswerOf, fakeworkers.WantError
	isServed            = fakeworkers.Served
)

// rig is a loop on fake workers, all of them ready. It ends with the test.
type rig struct {
	*Backend
	t       *testing.T
	config  config.Config
	pool    []*fakeworkers.Workers
	workers *fakeworkers.Workers // of the first device
	seen    follower
	log     fmt.Stringer
	journal string // the file of decisions
	keeper  *Keeper
	dir     string // of the state file
	stop    func()
}

// rigOptions says what a rig is: services that run one at a time on one device that has no name,
// unless it says otherwise.
type rigOptions struct {
	services  int
	devices   int // of a pool
	device    *fakeworkers.Device
	predictor *predictor.File
	change    func(*config.Config)
	move      func(uint64, Workers, Workers, executor.SpanRequest, time.Duration) error
	unready   bool // no worker is ready, and the loop has not begun

	measures bool // a few groups, as overlap wants them
	groups   int  // so many
	dir      string
	prepare  func(*fakeworkers.Workers)
}

// follower counts turns of the loop, and remembers what groups of two were predicted to take.
type follower struct {
	mu        sync.Mutex
	turns     int
	predicted models.Estimate
}

func (f *follower) woken() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.turns
}

func (f *follower) Observe(e *observe.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Kind == observe.Woke {
		f.turns++
	}
	if e.Kind == observe.Dispatched && len(e.Round.Group.Spans) == 2 {
		f.predicted = e.Round.Predicted
	}
}

func (f *follower) estimate() models.Estimate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.predicted
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	log := fakeworkers.NewLog()
	r := &rig{t: t, log: log}
	logger := zerolog.New(log)
	r.config = fakeworkers.Config(o.services, func(c *config.Config) {
		for i := range o.devices {
			c.Devices = append(c.Devices, config.Device{Name: fmt.Sprint("d", i), Kind: config.DeviceCPU, Cores: fmt.Sprint(i)})
		}
		if o.measures {
			c.Policy = "overlap"
			for i := range c.Services {
				c.Services[i].Sizes = []int{1, 2}
			}
		}
		if o.change != nil {
			o.change(c)
		}
	})
	life, end := context.WithCancel(context.Background())
	options := Options{
		Log: logger.Level(zerolog.DebugLevel), Life: life, Goroutines: new(sync.WaitGroup), Move: o.move, Listeners: []observe.Listener{&r.seen},
		Learning: learning.Options{Policy: r.config.Policy},
	}
	if o.measures {
		l := &options.Learning
		l.OnStart, l.Limit, l.Groups, l.Repeats, l.Spans, l.Seed = true, time.Minute, max(o.groups, 12), 3, 2, 1
	}
	if r.dir = o.dir; r.dir == "" {
		r.dir = t.TempDir()
	}
	file, store := openStore(t, r.dir)
	r.keeper = NewKeeper(store, logger)
	options.Keeper = r.keeper
	if o.predictor != nil {
		options.Learning.File, options.Learning.Configured = "given", o.predictor
	}
	if r.config.Decisions.Log {
		dir := t.TempDir()
		log, err := journal.Open(dir, journal.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		r.journal, options.Journal = filepath.Join(dir, journal.FileName), log
	}
	for i := range max(o.devices, 1) {
		f := fakeworkers.New(t, i, o.services)
		f.RunsOn(o.device)
		if o.prepare != nil {
			o.prepare(f)
		}
		d := Device{Text: "fake", Kind: "fake", Workers: func(inputs, _ []*wire.InputArena, outcomes chan executor.Outcome, events func(executor.Event)) (Workers, error) {
			here := make([]*wire.InputArena, len(inputs))
			for s, places := range options.Places {
				if slices.ContainsFunc(places, func(p Place) bool { return p.Device == i }) {
					here[s] = inputs[s]
				}
			}
			f.Delivers(here, outcomes, events)
			return f, nil
		}}
		if o.devices > 0 {
			d.Name = r.config.Devices[i].Name
		}
		r.pool, options.Devices = append(r.pool, f), append(options.Devices, d)
	}
	r.workers = r.pool[0]
	for i := range r.config.Services {
		options.Places = append(options.Places, r.places(&r.config.Services[i]))
	}
	var err error
	if r.Backend, err = New(r.config, options); err != nil {
		t.Fatal(err)
	}
	var keeping sync.WaitGroup
	keeping.Go(r.keeper.Run)
	r.stop = sync.OnceFunc(func() {
		r.Drain()
		limit, cancel := context.WithTimeout(life, 10*time.Second)
		defer cancel()
		if err := r.StopMeasuring(limit); r.running && err != nil {
			t.Errorf("measuring does not stop: %v", err)
		}
		if err := r.Close(); err != nil && !errors.Is(err, executor.ErrClosed) { // the test has closed it
			t.Error(err)
		}
		end()
		options.Goroutines.Wait()
		r.keeper.Close()
		keeping.Wait()
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		if options.Journal != nil {
			if err := options.Journal.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, f := range r.pool {
			f.Check()
		}
	})
	t.Cleanup(r.stop)
	if !o.unready {
		r.begin()
	}
	return r
}

// openStore opens the state file in a folder.
func openStore(t *testing.T, dir string) (*statefile.File, *training.Store) {
	t.Helper()
	file, err := statefile.Open(filepath.Join(dir, "state"), nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := training.NewStore(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, store
}

// begin starts the loop and its workers.
func (r *rig) begin() {
	r.t.Helper()
	r.Begin()
	for _, f := range r.pool {
		if err := f.Start(context.Background()); err != nil {
			r.t.Fatal(err)
		}
	}
	r.sync()
}

// places returns where a service runs: where it says, or on all devices.
func (r *rig) places(s *config.Service) (list []Place) {
	for i := range r.pool {
		if len(s.On) == 0 || slices.Contains(s.On, r.config.Devices[i].Name) {
			list = append(list, Place{Device: i, Share: "1 threads", GiveBack: func() {}})
		}
	}
	return list
}

// sync returns when the loop has handled all that it was told.
func (r *rig) sync() { r.Ask(func() {}) }

// now returns the status.
func (r *rig) now() *status.Status {
	r.t.Helper()
	s, ok := r.FullStatus()
	if !ok {
		r.t.Fatal("the loop does not answer")
	}
	return s
}

// await waits for a phase and returns how predictions stand in it.
func (r *rig) await(phase string) (p status.Predictor) {
	r.t.Helper()
	r.until(phase, func(s *status.Status) bool { p = s.Predictor; return p.Phase == phase })
	return p
}

// serves fails the test unless every service answers a query.
func (r *rig) serves() {
	r.t.Helper()
	for i := range r.Services() {
		isServed(r.t, r, mustSubmit(r.t, r, i))
	}
}

// says fails the test unless a text has all of the parts.
func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}

// until waits for something that the status shows.
func (r *rig) until(what string, is func(s *status.Status) bool) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(r.now()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("in vain for: %s", what)
		}
	}
}

// startLoop starts a rig of so many services.
func startLoop(t *testing.T, services int, change func(*config.Config)) (*rig, *fakeworkers.Workers) {
	t.Helper()
	r := newRig(t, rigOptions{services: services, change: change})
	return r, r.workers
}

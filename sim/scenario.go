package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// Limits of a scenario.
const (
	MaxQueries = 10_000_000
	MaxDevices = 1024
	MaxShapes  = 1024 // sizes or sequence lengths of one service

	// maxLoad is how many times more work may be offered than the devices can
	// do without overlapping. With more, next to everything is dropped, and
	// what is seen is a mistake in the load.
	maxLoad = 100
)

// defaultQueueLimit is that of the daemon's configuration.
const defaultQueueLimit = 1024

// Scenario is what is simulated. Its JSON is the part of a scenario file that needs
// no unit and no other file.
type Scenario struct {
	Services []Service `json:"-"`
	Arrivals Arrivals  `json:"-"`

	// Given are served instead of Arrivals, in the order of arrival.
	Given []Query `json:"-"`

	// Queries is how many come, 0 for as many as the arrivals have.
	Queries int `json:"queries"`

	Seed   uint64 `json:"seed"`
	Policy string `json:"-"`

	// Ways is how many groups a search asks about at once, 0 for
	// overlap.DefaultWays. With Plan the next group is chosen while one runs. A query
	// whose worker was lost is queued again up to MaxRetries times.
	Ways       int  `json:"ways"`
	Plan       bool `json:"plan"`
	MaxRetries int  `json:"max_retries"`

	// Knows is KnowsAll if it is empty.
	Knows string `json:"knows"`

	Device Device `json:"-"`

	// Kinds is what each device is where they are not all Device: those with the same one
	// are alike. All know the same models, at the same positions.
	Kinds []Device `json:"-"`

	// Slow has for each device how many times as long it takes as what it is, without it 1.
	Slow []float64 `json:"-"`

	// Links has for each device the link over which batches come and go, of which each
	// carries one out and one in at a time. Without it no batch waits for another's move.
	Links []int `json:"-"`

	// Predictor is nil to take groups for the sum of their solo times. It must have
	// been trained for DeviceName, unless that is empty.
	Predictor  *predictor.File `json:"-"`
	DeviceName string          `json:"-"`

	// Devices is their number, 0 is one. Among several, queries go by Dispatch, which is
	// RoundRobin if it is empty.
	Devices  int    `json:"devices"`
	Dispatch string `json:"dispatch"`

	// Balancers each see a part of the queries, by chance, 0 is one. ReportAge is how old the
	// reports of ORCA and ORCATwo become before the next ones, and after how long it is noticed
	// that a pod has failed, one second if it is 0.
	Balancers int           `json:"balancers"`
	ReportAge time.Duration `json:"-"`
	Pods      pods          `json:"-"`

	// OverrunFactor is how many times its bound a round may take before its spans are overruns,
	// which run on beside the next rounds; 0 is the default of the daemon.
	OverrunFactor float64 `json:"-"`

	// DecisionTime passes between the end of a round and the start of one that
	// was not planned. RoundTime is what sending a round and waiting for it
	// adds.
	DecisionTime time.Duration `json:"-"`
	RoundTime    time.Duration `json:"-"`

	// Selector says which variant answers what waits for a service that has some. Without
	// one that is the fastest.
	Selector overlap.Selector `json:"-"`

	Faults   faults   `json:"-"`
	Clients  clients  `json:"-"`
	Observer observer `json:"-"`

	// Check holds the schedulers to their invariants after every event, which is slow.
	Check bool `json:"-"`
}

// Service is a model with a target, and what is asked of it.
type Service struct {
	Name string `json:"name"`

	// Model is "" if it has the name of the service.
	Model  string        `json:"model"`
	Target time.Duration `json:"-"`

	// MaxBatch is the largest batch that queries are merged into; 0 and 1 for none.
	MaxBatch int `json:"max_batch"`

	// QueueLimit is 0 for the daemon's default.
	QueueLimit int  `json:"queue_limit"`
	BestEffort bool `json:"best_effort"`
	Priority   int  `json:"priority"`

	// Queries have one of these batch sizes and sequence lengths, each as likely;
	// without any, size 1 and no sequence length.
	Sizes   []int `json:"sizes"`
	SeqLens []int `json:"seq_lens"`

	// On are the devices that the service has a worker on, all without any. Where not
	// every service is on every device, the dispatch is Pool.
	On []int `json:"on"`

	// Percentage is how much of the multiprocessors of a device the service has to itself
	// under the policy static; no other heeds it.
	Percentage int `json:"active_thread_percentage"`

	// Share of the queries is in proportion to those of the other services. If all are
	// 0, the shares are equal.
	Share float64 `json:"share"`

	// Of is the service that it is a variant of, "" for none. All queries of that come for
	// its first variant, which says how they are, and any may answer.
	Of       string  `json:"-"`
	Accuracy float64 `json:"-"`

	// Pipelines are the ways of its batches over several devices. A move takes as long as
	// their stages say. Their dispatch is Pool.
	Pipelines []models.Pipeline `json:"-"`
}

// faults describe how workers die. A worker of a service lives for Every in the mean,
// for ever if that is 0, and the next one is ready after Restart; both times are
// exponential. Failing is the share of spans that end with an error of the model. Bad is
// the share of queries that the model fails on: at its last operator, with all that are
// in the same batch.
type faults struct {
	Every   time.Duration
	Restart time.Duration
	Failing float64
	Bad     float64
}

// clients describe how clients leave: the share Leaving at some time before the
// deadline, unless answered, and all others after Timeout, or never if that is 0.
type clients struct {
	Leaving float64
	Timeout time.Duration
}

// Validate reports every fault of the scenario.
func (sc *Scenario) Validate() error {
	if sc.Device == nil {
		return errors.New("no device")
	}
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	n, f, c := len(sc.Services), &sc.Faults, &sc.Clients
	fault(n < 1 || n > predictor.MaxServices, "%d services: want 1 to %d", n, predictor.MaxServices)
	fault(sc.Queries < 0 || sc.Queries > MaxQueries, "%d queries: want at most %d", sc.Queries, MaxQueries)
	fault(sc.Devices < 0 || sc.Devices > MaxDevices, "%d devices: want 1 to %d", sc.Devices, MaxDevices)
	fault(sc.Dispatch != "" && !slices.Contains(dispatches, sc.Dispatch), "unknown dispatch %q: want one of %v", sc.Dispatch, dispatches)
	fault(sc.Knows != "" && !slices.Contains(knowledges, sc.Knows), "unknown knowledge %q: want one of %v", sc.Knows, knowledges)
	fault(!lasts(sc.DecisionTime) || !lasts(sc.RoundTime), "a decision takes %v and a round %v: want 0 to a year", sc.DecisionTime, sc.RoundTime)
	fault(!lasts(f.Every) || !lasts(f.Restart) || !within(f.Failing, 0, 1) || !within(f.Bad, 0, 1),
		"workers live %v, are back after %v and fail %v of their spans and %v of the queries: want times and shares", f.Every, f.Restart, f.Failing, f.Bad)
	fault(!within(c.Leaving, 0, 1) || !lasts(c.Timeout), "%v of the clients leave, the others after %v: want a share and a time", c.Leaving, c.Timeout)
	p, alone := &sc.Pods, sc.Dispatch != Pool && sc.Dispatch != Split
	fault(sc.Balancers < 0 || sc.Balancers > maxBalancers, "%d balancers: want 1 to %d", sc.Balancers, maxBalancers)
	fault(sc.ReportAge < 0 || sc.ReportAge > 0 && sc.ReportAge < minReportAge || sc.ReportAge > maxTime, "reports are %v old: want %v to a year", sc.ReportAge, minReportAge)
	fault(p.Starting < 0 || p.Starting > sc.devices(), "%d pods that start: want at most the %d there are", p.Starting, sc.devices())
	fault(!lasts(p.StartUp) || !lasts(p.DrainEvery) || !lasts(p.FailEvery) || min(cmp.Or(p.DrainEvery, minReportAge), cmp.Or(p.FailEvery, minReportAge)) < minReportAge,
		"pods start in %v, drain every %v and fail every %v: want times up to a year, the latter 0 or at least %v", p.StartUp, p.DrainEvery, p.FailEvery, minReportAge)
	fault(*p != pods{} && (!alone || f.Every > 0), "pods that come and go: want a dispatch that chooses a pod for each query, and no workers that die besides")
	fault(len(sc.Kinds) > 0 && len(sc.Kinds) != sc.devices(), "%d kinds: want one for each of %d devices", len(sc.Kinds), sc.devices())
	fault(len(sc.Slow) > 0 && len(sc.Slow) != sc.devices(), "%d factors of slowness: want one for each of %d devices", len(sc.Slow), sc.devices())
	for _, factor := range sc.Slow {
		fault(!within(factor, 1e-3, 1e3), "a device that is slowed by %v: want 0.001 to 1000", factor)
	}
	for _, k := range sc.Kinds {
		alike := func(a, b device.ModelInfo) bool { return a.Name == b.Name && a.Operators == b.Operators }
		fault(!slices.EqualFunc(k.Models(), sc.Device.Models(), alike), "devices with different models, or in another order")
	}
	fault(sc.Policy == staticPolicy && sc.devices() > 1, "%d devices: the policy static has one, of which each service has a share", sc.devices())
	names, given := map[string]bool{}, 0
	for i := range sc.Services {
		s := &sc.Services[i]
		given += s.Percentage
		fault(sc.Policy == staticPolicy && (s.Percentage < 1 || s.Percentage > 100), "service %s: %d %% of the device: under the policy static give each service 1 to 100 (--shares; active_thread_percentage in a scenario file)", s.Name, s.Percentage)
		fault(names[s.Name], "service %s: name occurs twice", s.Name)
		names[s.Name] = true
		sc.checkService(s, func(bad bool, format string, args ...any) {
			if bad {
				fault(true, "service %s: %w", s.Name, fmt.Errorf(format, args...))
			}
		})
	}
	fault(sc.Policy == staticPolicy && given > 100, "the shares of the services sum up to %d %% of the device: want at most 100", given)
	if sc.Given == nil {
		faults = append(faults, sc.Arrivals.check(sc.Queries))
	}
	return errors.Join(faults...)
}

// lasts reports whether a time can be added to others.
func lasts(d time.Duration) bool { return d >= 0 && d <= maxTime }

// checkService leaves to the scheduler what it checks itself.
func (sc *Scenario) checkService(s *Service, fault func(bad bool, format string, args ...any)) {
	known, ok := sc.model(s)
	if !ok {
		fault(true, "%w %q: the device knows %v", ErrUnknownModel, s.model(), sc.modelNames())
		return
	}
	m := &sc.Device.Models()[known]
	size, seqLen := most(m.Sizes, predictor.MaxSize), most(m.SeqLens, predictor.MaxSeqLen)
	fault(s.Target <= 0 || s.Target > maxTime, "QoS target %v: want more than 0, at most %v", s.Target, maxTime)
	fault(len(s.Sizes) > MaxShapes || len(s.SeqLens) > MaxShapes, "%d sizes and %d sequence lengths: want at most %d of each", len(s.Sizes), len(s.SeqLens), MaxShapes)
	for _, n := range append([]int{max(s.MaxBatch, 1)}, s.Sizes...) {
		fault(n < 1 || n > size, "batch size %d: model %s was measured with 1 to %d", n, m.Name, size)
	}
	for _, n := range s.SeqLens {
		fault(n < 0 || n > seqLen, "sequence length %d: model %s was measured with 0 to %d", n, m.Name, seqLen)
	}
	fault(!within(s.Share, 0, math.MaxFloat32), "share %v: want 0 or more", s.Share)
	for _, device := range s.On {
		fault(device < 0 || device >= sc.devices(), "on device %d: there are %d, counted from 0", device, sc.devices())
	}
	fault(len(s.On) > 0 && sc.Dispatch != Pool, "on some devices: want dispatch %q, in which a scheduler knows where services run", Pool)
	fault(len(s.Pipelines) > 0 && sc.Dispatch != Pool, "pipelines: want dispatch %q, in which a scheduler has several devices", Pool)
	fault(s.Priority < 0, "priority %d: want 0 or more", s.Priority)
	fault(s.Of != "" && sc.Dispatch == Split, "a variant of %s: dispatch %q sends each query to a device for its service", s.Of, Split)
}

// most returns the largest of a list, or what there is without one.
func most(list []int, without int) int {
	if len(list) == 0 {
		return without
	}
	return slices.Max(list)
}

func (s *Service) model() string {
	return cmp.Or(s.Model, s.Name)
}

// model returns the position of a service's model on the device.
func (sc *Scenario) model(s *Service) (int, bool) {
	i := slices.IndexFunc(sc.Device.Models(), func(m device.ModelInfo) bool { return m.Name == s.model() })
	return i, i >= 0
}

func (sc *Scenario) modelNames() (names []string) {
	for _, m := range sc.Device.Models() {
		names = append(names, m.Name)
	}
	return names
}

// asked reports whether queries come for a service: it is no variant, or the first.
func (sc *Scenario) asked(i int) bool {
	of := sc.Services[i].Of
	return of == "" || slices.IndexFunc(sc.Services, func(s Service) bool { return s.Of == of }) == i
}

func (sc *Scenario) devices() int { return max(sc.Devices, 1) }

// kind returns what a device is, how much slower, and the first that is like it.
func (sc *Scenario) kind(device int) (d Device, slow float64, like int) {
	d, slow = sc.Device, 1
	if len(sc.Kinds) > 0 {
		d = sc.Kinds[device]
	}
	if len(sc.Slow) > 0 {
		slow = sc.Slow[device]
	}
	alike := func(i int) bool {
		return (len(sc.Kinds) == 0 || sc.Kinds[i] == d) && (len(sc.Slow) == 0 || sc.Slow[i] == slow)
	}
	for !alike(like) {
		like++
	}
	return d, slow, like
}

// schedulerServices returns the services as a scheduler knows them, and the
// position of the model of each on the device.
func (sc *Scenario) schedulerServices() (list []models.Service, bound []int) {
	known := sc.Device.Models()
	for i := range sc.Services {
		s := &sc.Services[i]
		m, _ := sc.model(s)
		bound = append(bound, m)
		list = append(list, models.Service{
			ID: models.ServiceID(i), Name: s.Name, Operators: known[m].Operators, QoSTarget: s.Target,
			QueueLimit: cmp.Or(s.QueueLimit, defaultQueueLimit), MaxBatch: s.MaxBatch, BestEffort: s.BestEffort,
			Ladder: known[m].Ladder, Of: s.Of, Accuracy: s.Accuracy, Pipelines: s.Pipelines,
		})
	}
	return list, bound
}

// Device is what groups run on: a *device.Model, or another in tests. The spans
// of a group name models by their position in Models.
type Device interface {
	// Models lists the models that the device can run.
	Models() []device.ModelInfo

	// Latency returns how long a group takes in the middle of its runs.
	Latency(g models.Group) time.Duration

	// Sample returns how long one run of a group takes.
	Sample(g models.Group, r *rand.Rand) time.Duration

	// OperatorTimes returns what each operator of a model takes alone, in
	// nanoseconds, as device.OperatorTimes defines it.
	OperatorTimes(model, size, seqLen int) []int64
}

// Errors of scenarios and arrivals.
var (
	// ErrUnknownModel is returned when a service has a model that the device
	// does not know.
	ErrUnknownModel = errors.New("unknown model")

	// ErrArrivals is returned when arrivals are contradictory, or a file of
	// them cannot be used. One of a file names it and the line.
	ErrArrivals = errors.New("unusable arrivals")

	// ErrLoad is returned when far more is asked than the devices can do.
	ErrLoad = errors.New("no device can hold the load")

	// ErrInvariant is returned when a run broke a rule that every run must
	// keep. The scenario runs into it again.
	ErrInvariant = errors.New("broken invariant")
)

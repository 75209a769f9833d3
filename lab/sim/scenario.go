package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// Limits of a scenario.
const (
	MaxQueries = 10_000_000
	MaxDevices = 1024

	// MaxShapes limits the batch sizes, and the sequence lengths, of one service.
	MaxShapes = 1024

	// maxLoad limits the offered load, as a multiple of what the devices can do without
	// overlapping. Beyond it almost all queries would be dropped, so the load is probably a
	// mistake.
	maxLoad = 100
)

// defaultQueueLimit is the default of the daemon's configuration.
const defaultQueueLimit = 1024

// Scenario describes a simulation. The fields with JSON names are those of a scenario file
// that need neither a unit nor another file.
type Scenario struct {
	Services []Service `json:"-"`
	Arrivals Arrivals  `json:"-"`

	// Given, if set, replaces Arrivals. The queries are in the order of arrival.
	Given []Query `json:"-"`

	// Queries is the number of queries. 0 means as many as the arrivals have.
	Queries int `json:"queries"`

	Seed   uint64 `json:"seed"`
	Policy string `json:"-"`

	// Scheduler creates the scheduler that implements Policy. nil means overlap.New.
	Scheduler func(overlap.Config) (Scheduler, error) `json:"-"`

	// Ways is how many groups a search predicts at once. 0 means overlap.DefaultWays. Plan
	// makes the scheduler choose the next group while one runs. A query whose worker was
	// lost is queued again up to MaxRetries times.
	Ways       int  `json:"ways"`
	Plan       bool `json:"plan"`
	MaxRetries int  `json:"max_retries"`

	// Knows is one of KnowsAll, KnowsOrder and KnowsNothing. Empty means KnowsAll.
	Knows string `json:"knows"`

	Device Device `json:"-"`

	// Kinds lists the device type of each device, if they are not all like Device. Devices
	// with the same value are alike. All must know the same models in the same order.
	Kinds []Device `json:"-"`

	// Slow is the factor by which each device is slower than its type. If it is nil, all
	// factors are 1.
	Slow []float64 `json:"-"`

	// Links holds for each device the link over which batches arrive and leave. A link
	// carries one batch out and one in at a time. If Links is nil, moves do not wait for
	// each other.
	Links []int `json:"-"`

	// Predictor predicts the latency of groups. If it is nil, the prediction is the sum of
	// the isolated latencies. It must have been trained for DeviceName, unless that is
	// empty.
	Predictor  *predictor.File `json:"-"`
	DeviceName string          `json:"-"`

	// Devices is the number of devices. 0 means 1. Dispatch distributes queries over
	// several devices. Empty means RoundRobin.
	Devices  int    `json:"devices"`
	Dispatch string `json:"dispatch"`

	// Balancers is the number of balancers, to which queries are assigned at random. 0
	// means 1. ReportAge is the interval of the pods' reports, which ORCA and ORCATwo use
	// and whose absence shows that a pod has failed. 0 means one second.
	Balancers int           `json:"balancers"`
	ReportAge time.Duration `json:"-"`
	Pods      pods          `json:"-"`

	// OverrunFactor limits the time of a round, as a multiple of its bound. Spans that are
	// still running then are detached and run alongside the next rounds. 0 means the
	// daemon's.
	OverrunFactor float64 `json:"-"`

	// DecisionTime passes between the end of a round and the start of one that was not
	// planned. RoundTime is the overhead of sending a round and waiting for it; the
	// scheduler takes that of a daemon to be one if it is 0.
	DecisionTime time.Duration `json:"-"`
	RoundTime    time.Duration `json:"-"`

	// Selector chooses the variant that answers the queued queries of a service with
	// variants. If it is nil, the fastest variant answers.
	Selector overlap.Selector `json:"-"`

	Faults   faults   `json:"-"`
	Clients  clients  `json:"-"`
	Observer observer `json:"-"`

	// Check makes the schedulers check their invariants after every event, which is slow.
	Check bool `json:"-"`
}

// Service is a model with a target, and the queries for it.
type Service struct {
	Name string `json:"name"`

	// Model is the name of the model. Empty means the name of the service.
	Model  string        `json:"model"`
	Target time.Duration `json:"-"`

	// MaxBatch is the largest batch of dynamic batching. 0 and 1 disable batching.
	MaxBatch int `json:"max_batch"`

	// QueueLimit is the largest number of queued queries. 0 means the daemon's default.
	QueueLimit int  `json:"queue_limit"`
	BestEffort bool `json:"best_effort"`
	Priority   int  `json:"priority"`

	// Sizes and SeqLens are the batch sizes and sequence lengths of the queries. All
	// elements have the same probability. Empty lists mean size 1 and no sequence length.
	Sizes   []int `json:"sizes"`
	SeqLens []int `json:"seq_lens"`

	// On lists the devices on which the service has a worker. Empty means all. If it is
	// set, the dispatch must be Pool.
	On []int `json:"on"`

	// Percentage is the share of a device's multiprocessors that the policy static reserves
	// for the service. Other policies ignore it.
	Percentage int `json:"active_thread_percentage"`

	// Share is the service's part of the queries, relative to the shares of the other
	// services. If all shares are 0, they are equal.
	Share float64 `json:"share"`

	// Of is the service of which this one is a variant, or empty. The queries of a service
	// with variants arrive at its first variant, which defines their sizes and target; any
	// variant may answer.
	Of       string  `json:"-"`
	Accuracy float64 `json:"-"`

	// Pipelines are the pipelines of the service's batches over several devices, with the
	// times of the moves. They need the dispatch Pool.
	Pipelines []models.Pipeline `json:"-"`
}

// faults describes how workers and models fail. A worker of a service lives for an
// exponentially distributed time with the mean Every, or for ever if that is 0. Its successor
// is ready after the fixed time Restart. Failing is the fraction of spans that end with an
// error. Bad is the fraction of queries on which the model fails: at its last operator, and
// with all queries of the same batch.
type faults struct {
	Every   time.Duration
	Restart time.Duration
	Failing float64
	Bad     float64
}

// clients describes how clients leave. The fraction Leaving leaves at a random time before
// the deadline. All others leave after Timeout, or never if that is 0.
type clients struct {
	Leaving float64
	Timeout time.Duration
}

// Validate returns an error with all faults of the scenario.
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
		"workers live %v, restart in %v, and fail %v of their spans and %v of the queries: want times from 0 to a year and shares from 0 to 1", f.Every, f.Restart, f.Failing, f.Bad)
	fault(!within(c.Leaving, 0, 1) || !lasts(c.Timeout), "%v of the clients leave, the others after %v: want a share from 0 to 1 and a time from 0 to a year", c.Leaving, c.Timeout)
	p, alone := &sc.Pods, sc.Dispatch != Pool && sc.Dispatch != Split
	fault(sc.Balancers < 0 || sc.Balancers > maxBalancers, "%d balancers: want 1 to %d", sc.Balancers, maxBalancers)
	fault(sc.ReportAge < 0 || sc.ReportAge > 0 && sc.ReportAge < minReportAge || sc.ReportAge > maxTime, "reports are %v old: want %v to a year", sc.ReportAge, minReportAge)
	fault(p.Starting < 0 || p.Starting > sc.devices(), "%d pods start late: want at most %d, the number of pods", p.Starting, sc.devices())
	fault(!lasts(p.StartUp) || !lasts(p.DrainEvery) || !lasts(p.FailEvery) || min(cmp.Or(p.DrainEvery, minReportAge), cmp.Or(p.FailEvery, minReportAge)) < minReportAge,
		"pods start in %v, drain every %v and fail every %v: want times up to a year, the latter 0 or at least %v", p.StartUp, p.DrainEvery, p.FailEvery, minReportAge)
	fault(*p != pods{} && (!alone || f.Every > 0), "pods that start, drain or fail: want a dispatch that chooses a pod for each query, and no workers that die")
	fault(len(sc.Kinds) > 0 && len(sc.Kinds) != sc.devices(), "%d kinds: want one for each of %d devices", len(sc.Kinds), sc.devices())
	fault(len(sc.Slow) > 0 && len(sc.Slow) != sc.devices(), "%d factors of slowness: want one for each of %d devices", len(sc.Slow), sc.devices())
	for _, factor := range sc.Slow {
		fault(!within(factor, 1e-3, 1e3), "a device is slower by the factor %v: want 0.001 to 1000", factor)
	}
	for _, k := range sc.Kinds {
		alike := func(a, b device.ModelInfo) bool { return a.Name == b.Name && a.Operators == b.Operators }
		fault(!slices.EqualFunc(k.Models(), sc.Device.Models(), alike), "devices with different models, or in another order: give all devices the same models in the same order")
	}
	fault(sc.Policy == staticPolicy && sc.devices() > 1, "%d devices: the policy static divides a single device; set the number of devices to 1", sc.devices())
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

// lasts reports whether d is a valid duration, short enough to be added to others.
func lasts(d time.Duration) bool { return d >= 0 && d <= maxTime }

// checkService checks a service, except for what the scheduler checks itself.
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
		fault(device < 0 || device >= sc.devices(), "on device %d: there are %d devices, numbered from 0", device, sc.devices())
	}
	fault(len(s.On) > 0 && sc.Dispatch != Pool, "on some devices: want dispatch %q, in which one scheduler knows where services run", Pool)
	fault(len(s.Pipelines) > 0 && sc.Dispatch != Pool, "pipelines: want dispatch %q, in which one scheduler has several devices", Pool)
	fault(s.Priority < 0, "priority %d: want 0 or more", s.Priority)
	fault(s.Of != "" && sc.Dispatch == Split, "a variant of %s: dispatch %q sends each query to a device for its service; choose another dispatch", s.Of, Split)
}

// most returns the largest element of a list, or without if the list is empty.
func most(list []int, without int) int {
	if len(list) == 0 {
		return without
	}
	return slices.Max(list)
}

// model returns the name of the service's model.
func (s *Service) model() string {
	return cmp.Or(s.Model, s.Name)
}

// model returns the position of a service's model on the device, and whether the device has
// it.
func (sc *Scenario) model(s *Service) (int, bool) {
	i := slices.IndexFunc(sc.Device.Models(), func(m device.ModelInfo) bool { return m.Name == s.model() })
	return i, i >= 0
}

// modelNames lists the models of the device.
func (sc *Scenario) modelNames() (names []string) {
	for _, m := range sc.Device.Models() {
		names = append(names, m.Name)
	}
	return names
}

// asked reports whether queries arrive for service i, which is true unless it is a variant
// other than the first.
func (sc *Scenario) asked(i int) bool {
	of := sc.Services[i].Of
	return of == "" || slices.IndexFunc(sc.Services, func(s Service) bool { return s.Of == of }) == i
}

// devices returns the number of devices.
func (sc *Scenario) devices() int { return max(sc.Devices, 1) }

// kind returns the type of a device, the factor by which it is slower, and the first device
// like it.
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

// schedulerServices returns the services in the form that a scheduler needs, and the
// position of each service's model on the device.
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

// Device runs groups. It is a *device.Model, or another type in tests. The spans of a group
// name models by their position in Models.
type Device interface {
	// Models lists the models that the device can run.
	Models() []device.ModelInfo

	// Latency returns the median latency of a group.
	Latency(g models.Group) time.Duration

	// Sample returns the duration of one run of a group.
	Sample(g models.Group, r *rand.Rand) time.Duration

	// OperatorTimes returns the isolated latency of each operator of a whole model in
	// nanoseconds, as defined by device.OperatorTimes.
	OperatorTimes(whole models.Span) []int64
}

// Errors of scenarios and arrivals.
var (
	// ErrUnknownModel is returned if the device does not have the model of a service.
	ErrUnknownModel = errors.New("unknown model")

	// ErrArrivals is returned for invalid arrivals. An error in a file names the file and
	// the line.
	ErrArrivals = errors.New("unusable arrivals")

	// ErrLoad is returned if the load is far more than the devices can sustain.
	ErrLoad = errors.New("the devices cannot sustain the load")

	// ErrInvariant is returned if a run violates a rule that every run must keep. It is a
	// bug in the scheduler or the simulation, and the scenario reproduces it.
	ErrInvariant = errors.New("broken invariant")
)

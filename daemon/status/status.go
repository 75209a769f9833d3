// Package status describes the state of a daemon. The scheduler goroutine publishes a
// [Status] on a [Board]; the endpoint (as JSON), the metrics, and the commands status and
// top read it there.
package status

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// Status is what a scheduler and its predictor have done since the daemon started, and
// their state at one moment. Its JSON is the response of /overlapd/status. It is immutable
// once published.
type Status struct {
	Policy string `json:"policy"`
	Device string `json:"device"`

	// Emulated is set if nothing is computed.
	Emulated  bool    `json:"emulated,omitempty"`
	UpSeconds float64 `json:"up_seconds"`
	Rounds    uint64  `json:"rounds"`

	// BusySeconds is the sum of all rounds.
	BusySeconds float64 `json:"busy_seconds"`

	// HostLateSeconds is the part of BusySeconds by which the host noticed the end of
	// rounds late, on emulated devices. Queries have waited for it, but predictions do not
	// include it.
	HostLateSeconds float64 `json:"host_late_seconds,omitempty"`

	// Plans counts the rounds that were chosen in advance.
	Plans struct {
		Made       uint64 `json:"made"`
		Kept       uint64 `json:"kept"`
		Overturned uint64 `json:"overturned"`
	} `json:"plans"`

	// Gain is the device time saved by running queries together instead of one after
	// another: the isolated latencies of their work minus the measured time of the
	// completed rounds. It is negative where rounds took longer. Overlap is due to
	// overlapping spans of several services, Merge to dynamic batching. The Seconds are
	// since the start; the Now values are per second, over the last 10 to 15 seconds.
	Gain struct {
		OverlapSeconds float64 `json:"overlap_seconds"`
		MergeSeconds   float64 `json:"merge_seconds"`
		OverlapNow     float64 `json:"overlap_now"`
		MergeNow       float64 `json:"merge_now"`
	} `json:"gain"`

	// Load is also the response of /overlapd/load, which works when the scheduler goroutine
	// does not publish a status.
	Load Load `json:"load"`

	Predictor Predictor `json:"predictor"`
	Services  []Service `json:"services"`

	// Loading lists the workers that load their models, including those of services that
	// are not served yet.
	Loading []Loading `json:"loading,omitempty"`

	// GPU lists each part that services run on. It is empty on other devices.
	GPU []gpu.Status `json:"gpu,omitempty"`

	// Pool lists the devices of a pool. It is empty if there is only one.
	Pool []Device `json:"devices,omitempty"`

	// Draining is set if the daemon reports that it is not ready because it is about to
	// stop.
	Draining bool `json:"draining,omitempty"`

	// Memory is nil if all models are loaded at the start.
	Memory *Memory `json:"memory,omitempty"`

	// NotStored says what cannot be written to the state folder at the moment, and why.
	NotStored []string `json:"not_stored,omitempty"`

	// The remaining fields are for metrics. At is when the status was taken, since the
	// daemon started. The others are filled in when the status is read: its age, the time
	// since the scheduler goroutine last completed a turn, and the number of messages
	// queued for it.
	At         time.Duration `json:"-"`
	Age        time.Duration `json:"-"`
	BeatAge    time.Duration `json:"-"`
	Inbox      int           `json:"-"`
	InboxLimit int           `json:"-"`
}

// Device is the state of a device of a pool. Name is its name in the configuration and Text
// its description.
type Device struct {
	Name        string  `json:"name"`
	Text        string  `json:"device"`
	Rounds      uint64  `json:"rounds"`
	BusySeconds float64 `json:"busy_seconds"`

	// Measuring is set while a round runs that measures for the predictor.
	Measuring bool `json:"measuring,omitempty"`

	// Predictor is nil if the device shares that of an earlier device.
	Predictor *Predictor `json:"predictor,omitempty"`
}

// Replica is the worker of a service on one device of a pool.
type Replica struct {
	Device string `json:"device"`
	Ready  bool   `json:"ready"`

	// Fault says why the worker has failed permanently.
	Fault string `json:"fault,omitempty"`
}

// Predictor says where predictions come from and how accurate they are.
type Predictor struct {
	Phase  string `json:"phase"`
	Reason string `json:"reason"`

	// UnknownServices are the services whose models the predictor does not know. Nothing is
	// overlapped with them, because that would be a guess. Remedy says how to change that.
	UnknownServices []string  `json:"unknown_services,omitempty"`
	Remedy          string    `json:"remedy,omitempty"`
	File            *File     `json:"file,omitempty"`
	Measuring       *Progress `json:"measuring,omitempty"`

	// Answers counts estimates by source.
	Answers map[string]uint64 `json:"answers"`

	// Unknown counts the groups for which there was no estimate.
	Unknown uint64 `json:"unknown"`

	// Fallbacks counts the groups that the network could not predict, by reason.
	Fallbacks Nonzero `json:"fallbacks"`
	Shapes    []Shape `json:"shapes"`
}

// File describes the predictor in use. MAPE is the error on its test rows in percent.
type File struct {
	Created time.Time `json:"created"`
	Recipe  string    `json:"recipe"`
	Rows    int       `json:"rows"`
	MAPE    float64   `json:"mape_test"`
}

// Progress is the progress of measuring. LeftSeconds is 0 if it is not known. LimitSeconds
// is the limit on all measuring, 0 for none.
type Progress struct {
	Done        int     `json:"done"`
	Total       int     `json:"total"`
	LeftSeconds float64 `json:"left_seconds"`

	LimitSeconds float64 `json:"limit_seconds"`
}

// Shape says how accurately the groups of some services are predicted.
type Shape struct {
	Source string `json:"source"`

	// Services is empty for all groups that have no window of their own.
	Services []string `json:"services"`
	Runs     uint64   `json:"runs"`

	// Window is the number of latest runs that the fields below cover.
	Window int `json:"window"`

	// RawMAPE is the error in percent without calibration, MAPE that of the estimates that
	// were used.
	RawMAPE float64 `json:"raw_mape"`
	MAPE    float64 `json:"mape"`

	// P01 to P99 are quantiles of measured/predicted.
	P01 float64 `json:"p01"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`

	// Bound is the factor by which a prediction is multiplied before it is compared with a
	// deadline.
	Bound float64 `json:"bound"`
}

// Service is the state of a service and the counts of its queries.
type Service struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Ready   bool   `json:"ready"`

	// Fault says why the service has failed permanently and when it is retried.
	Fault      string  `json:"fault,omitempty"`
	BestEffort bool    `json:"best_effort"`
	TargetMS   float64 `json:"target_ms"`

	// Queued is the current number of queries in the queue, Paused that of paused batches.
	Queued  int    `json:"queued"`
	Paused  int    `json:"paused"`
	Arrived uint64 `json:"arrived"`

	// Refused counts rejected queries by reason, including those that did not reach the
	// scheduler.
	Refused  map[string]uint64 `json:"refused"`
	Finished uint64            `json:"finished"`

	// Late counts finished queries that missed their deadline. Finished includes them.
	Late      uint64            `json:"late"`
	Dropped   map[string]uint64 `json:"dropped"`
	Failed    map[string]uint64 `json:"failed"`
	Cancelled uint64            `json:"cancelled"`
	Batches   uint64            `json:"batches"`

	// Merged counts the queries that started in a batch with others.
	Merged  uint64 `json:"merged"`
	Retried uint64 `json:"retried"`

	// Overruns counts the spans that were detached because they overran. Overrun is set
	// while one still runs, which keeps the service from running others.
	Overruns uint64 `json:"overruns"`
	Overrun  bool   `json:"overrun,omitempty"`

	// Replicas are its workers in a pool. It is empty if there is one device.
	Replicas []Replica `json:"replicas,omitempty"`

	// Accuracy is set for a variant, which has the name SERVICE/VARIANT. Selection is set
	// for the first variant of a service: how the variant that answers is selected.
	Accuracy  float64 `json:"accuracy,omitempty"`
	Selection string  `json:"selection,omitempty"`

	// Plan says how its batches go over the devices of a pool, or why they do not follow
	// the plan. It is "" without a pipeline plan. Moves counts the moves of its batches
	// between devices.
	Plan      string `json:"plan,omitempty"`
	Moves     uint64 `json:"moves,omitempty"`
	MovesLost uint64 `json:"moves_lost,omitempty"`

	// Cut is nil if the configuration sets the number of operators.
	Cut *Cut `json:"cut,omitempty"`

	// EngineSeconds is the time of its spans in the engine by the host's clock.
	// DeviceSeconds is the device's time for them by its own clock, 0 if it has none.
	EngineSeconds float64 `json:"engine_seconds"`
	DeviceSeconds float64 `json:"device_seconds,omitempty"`

	// State is where the model is, or StateFailed, with the reason as Fault, and MemoryBytes what is
	// accounted for it. All are empty if all models are loaded at the start.
	State       string `json:"state,omitempty"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`

	// Memory, filled in when the status is read: what is in use of the service's
	// intermediate_bytes, and the resident memory of its worker, 0 if that is not known.
	IntermediateBytes int64 `json:"intermediate_bytes"`
	ResidentBytes     int64 `json:"resident_bytes"`

	// The remaining fields are for metrics and load reports. TargetShare is the fraction of
	// its target that a query arriving now would take, by the isolated latencies of the
	// work queued on its device and its own.
	TargetShare float64 `json:"-"`

	ID models.ServiceID `json:"-"`

	// Requests counts requests as clients see them.
	Requests   query.Counts `json:"-"`
	QueueLimit int          `json:"-"`

	// OldestAge is the age of the oldest query in the queue.
	OldestAge time.Duration `json:"-"`

	// Postponed is the number of queued queries that the last decision postponed.
	Postponed int `json:"-"`

	// Restarts is how often its workers were restarted.
	Restarts uint64 `json:"-"`

	InputBytes int64 `json:"-"`
}

// Memory is the memory of all models, and how often one of them was loaded, evicted, or could not be
// loaded.
type Memory struct {
	UsedBytes  int64  `json:"used_bytes"`
	LimitBytes int64  `json:"limit_bytes"`
	Loads      uint64 `json:"loads"`
	Evictions  uint64 `json:"evictions"`
	Failures   uint64 `json:"failures"`
}

// StateFailed is the state of a model on disk whose last load has failed.
const StateFailed = "failed"

// Nonzero holds counts by reason. Its JSON omits those that are 0.
type Nonzero map[string]uint64

// MarshalJSON implements json.Marshaler.
func (n Nonzero) MarshalJSON() ([]byte, error) {
	some := map[string]uint64{}
	for reason, count := range n {
		if count > 0 {
			some[reason] = count
		}
	}
	return json.Marshal(some)
}

// Loading is a worker that loads its model. Phase is the worker's description of what it
// does. Done counts steps of Total, which is 0 if it is not known.
type Loading struct {
	Service     string  `json:"service"`
	Device      string  `json:"device_name,omitempty"`
	Phase       string  `json:"phase"`
	Done        int64   `json:"done"`
	Total       int64   `json:"total"`
	LoadSeconds float64 `json:"load_seconds"`
}

// Cut is the number of operators that was chosen for a model, and why. Costs are the
// measurements, empty if there were none.
type Cut struct {
	Operators int       `json:"operators"`
	Reason    string    `json:"reason"`
	Costs     []CutCost `json:"costs"`
}

// CutCost is the measured cost of a cut for one batch size, compared with the uncut model.
type CutCost struct {
	Operators int     `json:"operators"`
	Batch     int     `json:"batch"`
	WholeMS   float64 `json:"whole_ms"`
	CutMS     float64 `json:"cut_ms"`
	Percent   float64 `json:"cost_percent"`
}

// Board passes the latest status from one goroutine to all others. A status is made only
// when one is requested, and everyone who requests one before it is begun receives the
// same. However many readers there are, only one is made at a time, and no reader receives
// a status from before its request.
type Board struct {
	wanted atomic.Bool
	latest atomic.Pointer[Status]

	mu struct {
		sync.Mutex

		// next is closed when the next status is published. It is nil if nobody waits.
		next chan struct{}

		// shapes is set if somebody who waits wants the shapes.
		shapes bool
	}
}

// Want requests a status. shapes asks for the shapes of the predictor, which are the most
// expensive part. The channel is closed when a status was published that was begun after
// the call. first is set if there was no request yet: the publishing goroutine may have to
// be woken up.
func (b *Board) Want(shapes bool) (published <-chan struct{}, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.shapes = b.mu.shapes || shapes
	if b.mu.next == nil {
		b.mu.next, first = make(chan struct{}), true
		b.wanted.Store(true)
	}
	return b.mu.next, first
}

// Latest returns the last status, or nil before the first.
func (b *Board) Latest() *Status { return b.latest.Load() }

// Publish publishes what status returns if one was requested. Otherwise it costs one atomic
// load.
func (b *Board) Publish(status func(shapes bool) *Status) {
	if !b.wanted.Load() {
		return
	}
	b.mu.Lock()
	waiting, shapes := b.mu.next, b.mu.shapes
	// Requests from here on wait for the next status, because this one has begun.
	b.mu.next, b.mu.shapes = nil, false
	b.wanted.Store(false)
	b.mu.Unlock()
	b.latest.Store(status(shapes))
	close(waiting)
}

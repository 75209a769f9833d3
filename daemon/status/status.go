// Package status is how a daemon stands, as the scheduler goroutine publishes it and
// everybody else reads it: the endpoint as JSON, metrics, the commands status and
// top. A [Board] is where it hangs.
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

// Status is what a scheduler and its predictor have done since the daemon started,
// and how they stand at one moment. Its JSON is the answer to /overlapd/status.
// Once it is published nobody changes it.
type Status struct {
	Policy      string  `json:"policy"`
	Device      string  `json:"device"`
	Emulated    bool    `json:"emulated,omitempty"` // nothing is computed
	UpSeconds   float64 `json:"up_seconds"`
	Rounds      uint64  `json:"rounds"`
	BusySeconds float64 `json:"busy_seconds"` // all rounds together

	// HostLateSeconds is the part of BusySeconds after rounds were over on emulated devices: the
	// host was late to see it. Queries have waited for it, and predictions know nothing of it.
	HostLateSeconds float64 `json:"host_late_seconds,omitempty"`

	// Plans counts the rounds that were chosen ahead.
	Plans struct {
		Made       uint64 `json:"made"`
		Kept       uint64 `json:"kept"`
		Overturned uint64 `json:"overturned"`
	} `json:"plans"`

	// Gain is the device time that was saved by running queries together instead of
	// each alone, one after another: by how much the rounds that ran to their end took
	// less than the solo times of the predictor for their work. It is negative where
	// they took more. Now means for each second, over the last ten to fifteen.
	Gain struct {
		OverlapSeconds float64 `json:"overlap_seconds"` // by spans of several services at once, since the start
		MergeSeconds   float64 `json:"merge_seconds"`   // by several queries in one batch
		OverlapNow     float64 `json:"overlap_now"`
		MergeNow       float64 `json:"merge_now"`
	} `json:"gain"`

	Load Load `json:"load"` // /overlapd/load answers with it when the scheduler goroutine does not publish a status, too

	Predictor Predictor    `json:"predictor"`
	Services  []Service    `json:"services"`
	Loading   []Loading    `json:"loading,omitempty"` // workers that load their models, those of services that are not served yet among them
	GPU       []gpu.Status `json:"gpu,omitempty"`     // each part that services run on, none on another device
	Pool      []Device     `json:"devices,omitempty"` // each device of a pool, none where there is one only

	Draining bool `json:"draining,omitempty"` // it is about to stop, and says that it is not ready

	NotStored []string `json:"not_stored,omitempty"` // what cannot be written to the state folder now, and why

	// What metrics tell besides. At is when this was so, since the daemon started; all
	// else is as whoever reads the status finds it: how old it is, since when the
	// scheduler goroutine shows no sign of life, and how many messages wait for it.
	At         time.Duration `json:"-"`
	Age        time.Duration `json:"-"`
	BeatAge    time.Duration `json:"-"`
	Inbox      int           `json:"-"`
	InboxLimit int           `json:"-"`
}

// Device is how a device of a pool stands.
type Device struct {
	Name        string     `json:"name"`   // in the configuration
	Text        string     `json:"device"` // in words
	Rounds      uint64     `json:"rounds"`
	BusySeconds float64    `json:"busy_seconds"`
	Measuring   bool       `json:"measuring,omitempty"` // a round that measures runs
	Predictor   *Predictor `json:"predictor,omitempty"` // nil where it is that of an earlier device
}

// Replica is the worker of a service on a device of a pool.
type Replica struct {
	Device string `json:"device"`
	Ready  bool   `json:"ready"`
	Fault  string `json:"fault,omitempty"` // why it was given up
}

// Predictor is where the predictions of groups come from and how good
// they are.
type Predictor struct {
	Phase           string            `json:"phase"`
	Reason          string            `json:"reason"`
	UnknownServices []string          `json:"unknown_services,omitempty"` // services whose models it does not know: nothing is overlapped with them on a guess
	Remedy          string            `json:"remedy,omitempty"`           // how to have it know them
	File            *File             `json:"file,omitempty"`
	Measuring       *Progress         `json:"measuring,omitempty"`
	Answers         map[string]uint64 `json:"answers"`   // estimates given, by source
	Unknown         uint64            `json:"unknown"`   // groups for which none could be given
	Fallbacks       Nonzero           `json:"fallbacks"` // groups that the network did not answer for, by reason
	Shapes          []Shape           `json:"shapes"`
}

// File is the predictor in use.
type File struct {
	Created time.Time `json:"created"`
	Recipe  string    `json:"recipe"`
	Rows    int       `json:"rows"`
	MAPE    float64   `json:"mape_test"` // percent
}

// Progress is how far measuring is.
type Progress struct {
	Done        int     `json:"done"`
	Total       int     `json:"total"`
	LeftSeconds float64 `json:"left_seconds"` // 0 if that is not known

	LimitSeconds float64 `json:"limit_seconds"` // on all measuring, 0 for none
}

// Shape is how well the groups of some services are predicted.
type Shape struct {
	Source   string   `json:"source"`
	Services []string `json:"services"` // none for all groups that have no window of their own
	Runs     uint64   `json:"runs"`
	Window   int      `json:"window"` // the latest runs, which all below is about
	RawMAPE  float64  `json:"raw_mape"`
	MAPE     float64  `json:"mape"` // percent, of the estimates that were given
	P01      float64  `json:"p01"`  // a quantile of measured/predicted, as the following
	P50      float64  `json:"p50"`
	P90      float64  `json:"p90"`
	P99      float64  `json:"p99"`
	Bound    float64  `json:"bound"` // what a prediction is multiplied with before it is compared with a deadline
}

// Service counts what became of a service's queries.
type Service struct {
	Name       string            `json:"name"`
	Ready      bool              `json:"ready"`
	Fault      string            `json:"fault,omitempty"` // why it was given up, and when it is tried again
	BestEffort bool              `json:"best_effort"`
	TargetMS   float64           `json:"target_ms"`
	Queued     int               `json:"queued"` // queries, now
	Paused     int               `json:"paused"` // batches, now
	Arrived    uint64            `json:"arrived"`
	Refused    map[string]uint64 `json:"refused"` // by reason, also before the scheduler saw them
	Finished   uint64            `json:"finished"`
	Late       uint64            `json:"late"` // counted as finished, too
	Dropped    map[string]uint64 `json:"dropped"`
	Failed     map[string]uint64 `json:"failed"`
	Cancelled  uint64            `json:"cancelled"`
	Batches    uint64            `json:"batches"`
	Merged     uint64            `json:"merged"` // queries that started in a batch with others
	Retried    uint64            `json:"retried"`
	Overruns   uint64            `json:"overruns"`          // spans that were set apart because they did not end
	Overrun    bool              `json:"overrun,omitempty"` // one of them still runs, and no other span of the service can

	Replicas []Replica `json:"replicas,omitempty"` // its workers in a pool, none where there is one device

	// Of a variant, which has the name SERVICE/VARIANT: its accuracy, and on the first of a
	// service by what the one is selected that answers.
	Accuracy  float64 `json:"accuracy,omitempty"`
	Selection string  `json:"selection,omitempty"`

	// Plan says how its batches go over the devices of a pool, or why not as planned, ""
	// where there is no plan of pipelines. Moves are those of its batches to other devices.
	Plan      string `json:"plan,omitempty"`
	Moves     uint64 `json:"moves,omitempty"`
	MovesLost uint64 `json:"moves_lost,omitempty"`

	Cut *Cut `json:"cut,omitempty"` // nil if the configuration says it

	EngineSeconds float64 `json:"engine_seconds"`           // its spans' time in the engine, by the host's clock
	DeviceSeconds float64 `json:"device_seconds,omitempty"` // the device's time for them by its own clock, 0 if it has none

	// Memory, as whoever reads the status finds it: what is held of the service's
	// intermediate_bytes, and all that its worker's process has, 0 if that is not known.
	IntermediateBytes int64 `json:"intermediate_bytes"`
	ResidentBytes     int64 `json:"resident_bytes"`

	// What metrics and load reports tell besides. TargetShare is which part of its target a
	// query would take that came now, for the solo times of what waits on its device and its own.
	TargetShare float64 `json:"-"`

	ID         models.ServiceID `json:"-"`
	Requests   query.Counts     `json:"-"` // what clients see
	QueueLimit int              `json:"-"`
	OldestAge  time.Duration    `json:"-"` // of the query that has waited longest, now
	Postponed  int              `json:"-"` // queries, now
	Restarts   uint64           `json:"-"` // how often its workers were started again

	InputBytes int64 `json:"-"`
}

// Nonzero is counts by reason. Its JSON leaves out those of which there are none.
type Nonzero map[string]uint64

func (n Nonzero) MarshalJSON() ([]byte, error) {
	some := map[string]uint64{}
	for reason, count := range n {
		if count > 0 {
			some[reason] = count
		}
	}
	return json.Marshal(some)
}

// Loading is a worker that loads its model.
type Loading struct {
	Service     string  `json:"service"`
	Device      string  `json:"device_name,omitempty"`
	Phase       string  `json:"phase"` // in the worker's words
	Done        int64   `json:"done"`  // steps of Total
	Total       int64   `json:"total"` // 0 if that is not known
	LoadSeconds float64 `json:"load_seconds"`
}

// Cut is into how many operators a model was chosen to be cut, and why.
type Cut struct {
	Operators int       `json:"operators"`
	Reason    string    `json:"reason"`
	Costs     []CutCost `json:"costs"` // what was measured, none if nothing could be
}

// CutCost is what a cut costs with one batch.
type CutCost struct {
	Operators int     `json:"operators"`
	Batch     int     `json:"batch"`
	WholeMS   float64 `json:"whole_ms"`
	CutMS     float64 `json:"cut_ms"`
	Percent   float64 `json:"cost_percent"`
}

// Board is where one goroutine publishes its latest status for all others. It makes
// one only when somebody wants it, and all who ask before it begins share that, so
// however many ask, one at a time is made. Nobody is told what was before they
// came.
type Board struct {
	wanted atomic.Bool
	latest atomic.Pointer[Status]

	mu struct {
		sync.Mutex
		next   chan struct{} // closed when the next status is there, nil if nobody waits
		shapes bool          // somebody who waits wants the shapes
	}
}

// Want asks for a status, with the shapes of the predictor or without, which are
// what a status costs most. The channel is closed once there is one that was begun
// after the call. First is set if nobody else had asked: the goroutine that publishes
// may have to be woken.
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

// Latest returns the last status, nil before the first.
func (b *Board) Latest() *Status { return b.latest.Load() }

// Publish publishes what status returns, if somebody wants it. Else it costs a look
// at a flag.
func (b *Board) Publish(status func(shapes bool) *Status) {
	if !b.wanted.Load() {
		return
	}
	b.mu.Lock()
	waiting, shapes := b.mu.next, b.mu.shapes
	b.mu.next, b.mu.shapes = nil, false // who comes from now on shares the next one
	b.wanted.Store(false)
	b.mu.Unlock()
	b.latest.Store(status(shapes))
	close(waiting)
}

package daemon

import (
	"time"

	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// Overview is what the scheduler and its predictor have done since the daemon
// started, and how they stand.
type Overview struct {
	Policy      string            `json:"policy"`
	Device      string            `json:"device"`
	Emulated    bool              `json:"emulated,omitempty"` // nothing is computed
	UpSeconds   float64           `json:"up_seconds"`
	Rounds      uint64            `json:"rounds"`
	BusySeconds float64           `json:"busy_seconds"` // that the rounds took together
	Plans       PlansOverview     `json:"plans"`
	Predictor   PredictorOverview `json:"predictor"`
	Services    []ServiceOverview `json:"services"`
	Loading     []LoadingOverview `json:"loading,omitempty"`   // workers that load their models, those of services that are not served yet among them
	GPU         []GPUOverview     `json:"gpu,omitempty"`       // each part that services run on, none on another device
	Instances   []Overview        `json:"instances,omitempty"` // of each part, if there are several; the rest is their sum

	NotStored []string `json:"not_stored,omitempty"` // what cannot be written to the state folder now, and why
}

// PlansOverview counts the rounds that were chosen ahead.
type PlansOverview struct {
	Made       uint64 `json:"made"`
	Kept       uint64 `json:"kept"`
	Overturned uint64 `json:"overturned"`
}

// PredictorOverview is where the predictions of groups come from and how good
// they are.
type PredictorOverview struct {
	Phase           string            `json:"phase"`
	Reason          string            `json:"reason"`
	UnknownServices []string          `json:"unknown_services,omitempty"` // services whose models it does not know: nothing is overlapped with them on a guess
	Remedy          string            `json:"remedy,omitempty"`           // how to have it know them
	File            *FileOverview     `json:"file,omitempty"`
	Measuring       *ProgressOverview `json:"measuring,omitempty"`
	Answers         map[string]uint64 `json:"answers"`   // estimates given, by source
	Unknown         uint64            `json:"unknown"`   // groups for which none could be given
	Fallbacks       map[string]uint64 `json:"fallbacks"` // groups that the network did not answer for, by reason
	Shapes          []ShapeOverview   `json:"shapes"`
}

// FileOverview is the predictor in use.
type FileOverview struct {
	Created time.Time `json:"created"`
	Recipe  string    `json:"recipe"`
	Rows    int       `json:"rows"`
	MAPE    float64   `json:"mape_test"` // percent
}

// ProgressOverview is how far measuring is.
type ProgressOverview struct {
	Done        int     `json:"done"`
	Total       int     `json:"total"`
	LeftSeconds float64 `json:"left_seconds"` // 0 if that is not known

	LimitSeconds float64 `json:"limit_seconds"` // on all measuring, 0 for none
}

// ShapeOverview is how well the groups of some services are predicted.
type ShapeOverview struct {
	Source   string   `json:"source"`
	Services []string `json:"services"` // none for all groups that have no window of their own
	Runs     uint64   `json:"runs"`
	Window   int      `json:"window"` // the latest runs, which all below is about
	RawMAPE  float64  `json:"raw_mape"`
	MAPE     float64  `json:"mape"` // percent, of the estimates that were given
	P01      float64  `json:"p01"`  // of measured/predicted
	P50      float64  `json:"p50"`
	P90      float64  `json:"p90"`
	P99      float64  `json:"p99"`
	Bound    float64  `json:"bound"` // what a prediction is multiplied with before it is compared with a deadline
}

// ServiceOverview counts what became of a service's queries.
type ServiceOverview struct {
	Name       string            `json:"name"`
	Ready      bool              `json:"ready"`
	Fault      string            `json:"fault,omitempty"` // why it was given up
	BestEffort bool              `json:"best_effort"`
	TargetMS   float64           `json:"target_ms"`
	Queued     int               `json:"queued"` // queries, now
	Paused     int               `json:"paused"` // batches, now
	Arrived    uint64            `json:"arrived"`
	Refused    map[string]uint64 `json:"refused"` // by reason
	Finished   uint64            `json:"finished"`
	Late       uint64            `json:"late"` // of the finished
	Dropped    map[string]uint64 `json:"dropped"`
	Failed     map[string]uint64 `json:"failed"`
	Cancelled  uint64            `json:"cancelled"`
	Batches    uint64            `json:"batches"`
	Merged     uint64            `json:"merged"` // queries that started in a batch with others
	Retried    uint64            `json:"retried"`

	Cut *CutOverview `json:"cut,omitempty"` // nil if the configuration says it

	EngineSeconds float64 `json:"engine_seconds"`           // that its spans were in the engine, by the host's clock
	DeviceSeconds float64 `json:"device_seconds,omitempty"` // that the device took for them by its own clock, 0 if it has none
}

// overviewTimeout is how long the scheduler goroutine may take to answer.
const overviewTimeout = 2 * time.Second

// Overview implements Backend.
func (b *backend) Overview() (Overview, bool) {
	answer := make(chan Overview, 1)
	limit := time.NewTimer(overviewTimeout)
	defer limit.Stop()
	select {
	case b.inbox <- message{ask: func(l *loop) { answer <- l.overview() }}:
	case <-b.ending:
		return Overview{}, false
	case <-limit.C:
		return Overview{}, false
	}
	select {
	case o := <-answer:
		return o, true
	case <-b.done:
	case <-limit.C:
	}
	return Overview{}, false
}

func (l *loop) overview() Overview {
	m := l.scheduler.Metrics()
	o := Overview{
		Policy: l.config.Policy, Device: l.device, Emulated: l.emulation != nil, UpSeconds: l.now().Seconds(),
		Rounds: m.Rounds, BusySeconds: m.Busy.Seconds(),
		Plans:     PlansOverview{Made: m.Plans.Made, Kept: m.Plans.Kept, Overturned: m.Plans.Overturned},
		Predictor: l.predictorOverview(),
		Loading:   l.loading.overview(l.name, time.Now()),
	}
	for _, s := range l.Services() {
		slot := l.slots[s.ID]
		counted := l.counted(slot, &m)
		o.Services = append(o.Services, slot.overview(&counted))
	}
	if l.part != nil {
		status := l.part.Status()
		status.Services = nil
		for _, s := range l.Services() {
			status.Services = append(status.Services, s.Name)
		}
		o.GPU = []GPUOverview{status}
	}
	return o
}

func (s *slot) overview(m *overlap.ServiceMetrics) ServiceOverview {
	counts := s.service.Stats.Counts()
	o := ServiceOverview{
		Name: s.config.Name, Ready: s.service.Ready(), BestEffort: s.config.BestEffort, TargetMS: float64(s.config.Target) / 1e6,
		Queued: m.Queued, Paused: m.Paused, Arrived: m.Arrived, Refused: byReason(m.Refused),
		Finished: m.Finished, Late: m.Late, Dropped: byReason(m.Dropped), Failed: byReason(m.Failed), Cancelled: m.Cancelled,
		Batches: m.Batches, Merged: m.Merged, Retried: m.Retried,
		EngineSeconds: counts.Spans.Took.Seconds(), DeviceSeconds: counts.Device.Took.Seconds(),
	}
	o.Cut = cutOverview(s.worker.info)
	if w := &s.worker; w.givenUp && w.fault != nil {
		o.Fault = w.fault.Error()
	}
	return o
}

func byReason(counts [overlap.ReasonCount]uint64) map[string]uint64 {
	named := map[string]uint64{}
	for r, n := range counts {
		if n > 0 {
			named[overlap.Reason(r).String()] = n
		}
	}
	return named
}

func (l *loop) predictorOverview() PredictorOverview {
	p, r := l.learning.Report(), l.predictor.Report()
	o := PredictorOverview{
		Phase: p.Phase.String(), Reason: p.Reason, UnknownServices: p.Unknown, Remedy: p.Remedy, Unknown: r.Unknown,
		Answers: map[string]uint64{}, Fallbacks: map[string]uint64{}, Shapes: []ShapeOverview{},
	}
	if f := p.File; f != nil {
		o.File = &FileOverview{Created: f.Created, Recipe: f.Recipe, Rows: f.Rows, MAPE: f.Test.MAPE}
	}
	if now := &p.Progress; p.Measuring {
		o.Measuring = &ProgressOverview{Done: now.Done, Total: now.Total, LeftSeconds: now.Left.Seconds(), LimitSeconds: p.Limit.Seconds()}
	}
	for source, n := range r.Answers {
		o.Answers[predictor.Source(source).String()] = n
	}
	for reason, n := range r.Fallbacks {
		if n > 0 && predictor.Fallback(reason) != predictor.FallbackNone {
			o.Fallbacks[predictor.Fallback(reason).String()] = n
		}
	}
	for i := range r.Shapes {
		o.Shapes = append(o.Shapes, l.shapeOverview(&r.Shapes[i]))
	}
	return o
}

func (l *loop) shapeOverview(s *predictor.ShapeReport) ShapeOverview {
	q := &s.Quantiles
	o := ShapeOverview{
		Source: s.Source.String(), Services: []string{}, Runs: s.Runs, Window: s.Window, RawMAPE: s.RawMAPE, MAPE: s.MAPE,
		P01: q.P01, P50: q.P50, P90: q.P90, P99: q.P99, Bound: s.Bound,
	}
	for _, id := range s.Services {
		o.Services = append(o.Services, l.name(id))
	}
	return o
}

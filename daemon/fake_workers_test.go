package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

const (
	fakeOperators  = 4
	fakeInputBytes = 1 << 16
)

// fakeWorkers is an executor whose workers do what the test says, or, with a
// device, run every round by themselves. It keeps the promises of a real one:
// one outcome for each round, delivered before the event that a worker is
// lost; batches that go on where they stand, on the worker that holds them.
type fakeWorkers struct {
	t      *testing.T
	index  int // of the device
	arenas []*wire.InputArena
	out    chan executor.Outcome

	mu struct {
		sync.Mutex
		events  func(executor.Event)
		flight  *fakeRound // the round that runs
		workers []fakeWorker
		device  *fakeDevice // nil if the test ends every round
		fails   map[fakeInput]bool
		given   []executor.QueryOutputs
		pid     int
		stopped int
		runs    int
		closed  bool
		deaf    bool             // workers do not stop
		refuses bool             // every round
		hold    []executor.Event // events that are not delivered yet, if holding
		holding bool
		granted []models.ServiceID
		noRoom  error            // why no service can be added, nil if one can
		groups  [][]models.Span  // of the rounds sent, in that order
		apart   []*fakeRound     // one for each span that was set apart and has not ended
		ended   []models.BatchID // that were abandoned
		eternal bool             // rounds may be ended without their spans
		added   []int            // services, in that order
	}
}

// fakeWorker is the worker of a service.
type fakeWorker struct {
	ready     bool
	lost      bool // it, or one before it
	operators int
	hash      string
	input     *models.TensorSpec            // of its model, nil for numbers
	bad       bool                          // its model does not load
	batches   map[models.BatchID]*fakeBatch // that it holds
}

// fakeBatch is a batch that a worker holds.
type fakeBatch struct {
	next    int // operator
	queries []models.QueryID
}

// fakeInput is what a model may fail on.
type fakeInput struct{ service, size int }

// fakeRound is a round that runs. A span has ended when it has a status.
// spanOpen is the status of a span that has not ended.
const spanOpen = models.SpanOverrun + 1

type fakeRound struct{ outcome executor.Outcome }

func newFakeWorkers(t *testing.T, services int) *fakeWorkers {
	t.Helper()
	f := &fakeWorkers{t: t}
	f.mu.workers, f.mu.fails = make([]fakeWorker, services), map[fakeInput]bool{}
	for i := range f.mu.workers {
		f.mu.workers[i].operators = fakeOperators
	}
	return f
}

// fakeConfig is a configuration of so many services, which run one at a time.
func fakeConfig(services int, change func(*config.Config)) config.Config {
	c := config.Default()
	c.Policy, c.GRPCListen = "edf", "" // tests of gRPC choose a port
	c.Worker.InputBytes = fakeInputBytes
	for i := range services {
		s := config.DefaultService()
		s.Name, s.Model, s.Target = fmt.Sprint("s", i), "zoo:tiny_add", time.Minute
		c.Services = append(c.Services, s)
	}
	if change != nil {
		change(&c)
	}
	return c
}

// delivers sets where inputs lie, who gets outcomes and who is told of events.
func (f *fakeWorkers) delivers(inputs []*wire.InputArena, outcomes chan executor.Outcome, events func(executor.Event)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arenas, f.out, f.mu.events = inputs, outcomes, events
}

// check fails the test if memory is still in use. The loop must have ended.
func (f *fakeWorkers) check() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, a := range f.arenas {
		if a == nil {
			continue
		}
		if n := a.Used(); n != 0 {
			f.t.Errorf("%d bytes of the inputs of service %d are in use", n, i)
		}
	}
	for _, q := range f.mu.given {
		for _, o := range q.Outputs {
			if o.Data != nil {
				f.t.Errorf("the outputs of query %d were not given back", q.ID)
			}
		}
	}
}

// Start starts a worker for every service that has none.
func (f *fakeWorkers) Start(context.Context) error {
	for i := range f.mu.workers {
		if f.isBad(i) {
			f.fail(i)
		} else {
			f.revive(i, f.operators(i))
		}
	}
	return nil
}

func (f *fakeWorkers) operators(service int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.workers[service].operators
}

func (f *fakeWorkers) Run(round uint64, spans []executor.SpanRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return executor.ErrClosed
	}
	if f.mu.refuses {
		return executor.ErrTooManyRounds
	}
	if f.mu.flight != nil {
		f.t.Error("a round was sent while another runs")
	}
	f.mu.runs++
	r := &fakeRound{outcome: executor.Outcome{Round: round, Device: f.index}}
	var group []models.Span
	for _, request := range spans {
		group = append(group, request.Span)
		r.outcome.Spans = append(r.outcome.Spans, executor.SpanOutcome{SpanOutcome: models.SpanOutcome{Span: request.Span, Status: spanOpen, Reached: request.Span.Start}})
	}
	f.mu.groups = append(f.mu.groups, group)
	f.mu.flight = r
	for i := range spans {
		f.beginLocked(i, f.queriesLocked(&spans[i]))
	}
	if f.mu.device != nil {
		f.endLocked(models.SpanDone)
	}
	f.landLocked()
	return nil
}

// queriesLocked checks the queries of a span and returns them.
func (f *fakeWorkers) queriesLocked(request *executor.SpanRequest) (ids []models.QueryID) {
	s := request.Span
	if (s.Start == 0) != (len(request.Queries) > 0) {
		f.t.Errorf("%v has %d queries", s, len(request.Queries))
	}
	for _, q := range request.Queries {
		ids = append(ids, q.ID)
		for _, in := range q.Inputs {
			if !f.arenas[s.Service].Contains(in.Offset, in.Bytes) {
				f.t.Errorf("query %d: its input is not in the arena", q.ID)
			}
		}
	}
	return ids
}

// beginLocked sends a span to its worker, which must hold the batch at the
// operator where the span starts.
func (f *fakeWorkers) beginLocked(i int, queries []models.QueryID) {
	s := f.mu.flight.outcome.Spans[i].Span
	w := &f.mu.workers[s.Service]
	b := w.batches[s.Batch]
	switch {
	case !w.ready:
		f.endSpanLocked(i, models.SpanLost)
	case s.Start == 0:
		if b != nil {
			f.t.Errorf("%v starts anew, its worker holds it", s)
		}
		w.batches[s.Batch] = &fakeBatch{queries: queries}
	case b == nil:
		if !w.lost {
			f.t.Errorf("%v goes on, its worker does not hold it", s)
		}
		f.endSpanLocked(i, models.SpanFailed)
	case b.next != s.Start:
		f.t.Errorf("%v goes on, its worker holds it at operator %d", s, b.next)
	}
}

// endSpanLocked ends one span of the round that runs.
func (f *fakeWorkers) endSpanLocked(i int, status models.Status) {
	s := &f.mu.flight.outcome.Spans[i]
	if s.Status != spanOpen {
		return
	}
	w := &f.mu.workers[s.Span.Service]
	if status == models.SpanDone && (s.Span.End > w.operators || f.mu.fails[fakeInput{int(s.Span.Service), s.Span.Size}]) {
		status = models.SpanFailed
	}
	s.Status = status
	b := w.batches[s.Span.Batch]
	if status != models.SpanStopped {
		delete(w.batches, s.Span.Batch)
	}
	switch status {
	case models.SpanDone:
		s.Reached, s.Took = s.Span.End, calm.span(s.Span)
		if d := f.mu.device; d != nil {
			s.Took = d.span(s.Span)
			s.DeviceTook = time.Duration(d.clock * float64(s.Took))
		}
		if s.Finished = s.Reached == w.operators; s.Finished {
			f.finishLocked(s, b.queries)
			return
		}
		b.next = s.Reached
		w.batches[s.Span.Batch] = b
	case models.SpanFailed:
		s.Err = wire.ErrEngine
		if s.Span.End > w.operators {
			s.Err = executor.ErrBadSpan
		}
	case models.SpanLost:
		s.Err = executor.ErrExited
	}
}

// finishLocked gives out the outputs of a batch.
func (f *fakeWorkers) finishLocked(s *executor.SpanOutcome, queries []models.QueryID) {
	for _, id := range queries {
		q := executor.QueryOutputs{ID: id, Outputs: []models.Tensor{{Data: []byte(fmt.Sprint(id))}}}
		s.Queries = append(s.Queries, q)
		f.mu.given = append(f.mu.given, q)
	}
}

// endLocked ends the spans of the round that have not ended.
func (f *fakeWorkers) endLocked(status models.Status) {
	for i := range f.mu.flight.outcome.Spans {
		f.endSpanLocked(i, status)
	}
	f.landLocked()
}

// landLocked delivers the outcome of the round if all of its spans have ended.
func (f *fakeWorkers) landLocked() {
	r := f.mu.flight
	if r == nil {
		return
	}
	for i := range r.outcome.Spans {
		if r.outcome.Spans[i].Status == spanOpen {
			return
		}
	}
	d := f.mu.device
	if d == nil {
		d = &calm
	}
	r.outcome.Took = d.group(r.outcome.Spans) + d.sending
	f.mu.flight = nil
	f.out <- r.outcome
}

// end ends the round that runs, if there is one.
func (f *fakeWorkers) end(status models.Status) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.flight == nil {
		return false
	}
	f.endLocked(status)
	return true
}

// endOf ends the span of a service in the round that runs.
func (f *fakeWorkers) endOf(service models.ServiceID, status models.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.flight == nil {
		f.t.Errorf("no round runs with service %d", service)
		return
	}
	for i := range f.mu.flight.outcome.Spans {
		if f.mu.flight.outcome.Spans[i].Span.Service == service {
			f.endSpanLocked(i, status)
		}
	}
	f.landLocked()
}

// awaitRound returns the spans of the round that runs, when one does.
func (f *fakeWorkers) awaitRound() (round uint64, spans []models.Span) {
	f.t.Helper()
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		if r := f.mu.flight; r != nil {
			round, spans = r.outcome.Round, f.mu.groups[len(f.mu.groups)-1]
		}
		f.mu.Unlock()
		if spans != nil {
			return round, spans
		}
	}
	f.t.Fatal("no round is sent")
	return 0, nil
}

// await returns when a round runs.
func (f *fakeWorkers) await() models.Span {
	f.t.Helper()
	_, spans := f.awaitRound()
	return spans[0]
}

// sent returns the groups of all rounds.
func (f *fakeWorkers) sent() [][]models.Span {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.groups[:len(f.mu.groups):len(f.mu.groups)]
}

// held returns how many batches the workers hold.
func (f *fakeWorkers) held() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.mu.workers {
		n += len(f.mu.workers[i].batches)
	}
	return n
}

// kill loses the worker of a service.
func (f *fakeWorkers) kill(service int) {
	f.mu.Lock()
	w := &f.mu.workers[service]
	if !w.ready {
		f.mu.Unlock()
		return
	}
	w.ready, w.lost = false, true
	clear(w.batches)
	if r := f.mu.flight; r != nil {
		for i := range r.outcome.Spans {
			if r.outcome.Spans[i].Span.Service == models.ServiceID(service) {
				f.endSpanLocked(i, models.SpanLost)
			}
		}
		f.landLocked()
	}
	f.mu.Unlock()
	f.tell(executor.Event{Kind: executor.WorkerLost, Service: models.ServiceID(service), Err: executor.ErrExited})
}

// fail gives a service up.
func (f *fakeWorkers) fail(service int) {
	f.kill(service)
	f.tell(executor.Event{Kind: executor.WorkerFailed, Service: models.ServiceID(service), Err: executor.ErrExited})
}

// revive gives a service a worker whose model has so many operators.
func (f *fakeWorkers) revive(service, operators int) {
	f.reviveAs(service, operators, fakeHash(service, operators))
}

func fakeHash(service, operators int) string {
	return fmt.Sprintf("model %d of %d", service, operators)
}

// reviveAs gives a service a worker with a model of this hash.
func (f *fakeWorkers) reviveAs(service, operators int, hash string) {
	f.mu.Lock()
	w := &f.mu.workers[service]
	if w.ready {
		f.mu.Unlock()
		return
	}
	w.ready, w.operators, w.hash, w.batches = true, operators, hash, map[models.BatchID]*fakeBatch{}
	f.mu.pid++
	pid, d := f.mu.pid, f.mu.device
	input := spec("X", models.Int32, -1, 16)
	if w.input != nil {
		input = *w.input
	}
	f.mu.Unlock()
	if d == nil {
		d = &calm
	}
	info := wire.Info{
		Inputs:    []models.TensorSpec{input},
		Outputs:   []models.TensorSpec{spec("Y", models.Int32, -1, 16)},
		Operators: make([]models.Operator, operators), Hash: hash, ORTVersion: "0",
	}
	for _, size := range []int{1, 4} {
		solo := wire.Solo{Size: size}
		for i := range operators {
			solo.Nanos = append(solo.Nanos, int64(d.span(models.Span{Service: models.ServiceID(service), Start: i, End: i + 1, Size: size})))
		}
		info.Solo = append(info.Solo, solo)
	}
	f.tell(executor.Event{Kind: executor.WorkerReady, Service: models.ServiceID(service), PID: pid, Info: &info})
}

// tell delivers an event, or keeps it while holding.
func (f *fakeWorkers) tell(e executor.Event) {
	f.mu.Lock()
	events := f.mu.events
	if f.mu.holding {
		f.mu.hold = append(f.mu.hold, e)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	events(e)
}

// hold keeps events back until letGo.
func (f *fakeWorkers) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.holding = true
}

// taken ends holding and returns what was held.
func (f *fakeWorkers) taken() []executor.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.mu.hold
	f.mu.hold, f.mu.holding = nil, false
	return held
}

func (f *fakeWorkers) letGo() {
	for _, e := range f.taken() {
		f.tell(e)
	}
}

func (f *fakeWorkers) Stop(id models.ServiceID, batch models.BatchID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.stopped++
	if f.mu.flight == nil || f.mu.deaf {
		return false
	}
	for i := range f.mu.flight.outcome.Spans {
		if s := &f.mu.flight.outcome.Spans[i]; s.Span.Service == id && s.Span.Batch == batch && s.Status == spanOpen {
			f.endSpanLocked(i, models.SpanStopped)
			f.landLocked()
			return true
		}
	}
	return false
}

// SetApart does nothing unless the test wants it: it is busy machines that take
// longer than predicted.
func (f *fakeWorkers) SetApart(id uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.mu.flight
	if !f.mu.eternal || r == nil || r.outcome.Round != id {
		return false
	}
	o := r.outcome
	o.Spans = slices.Clone(o.Spans)
	for i := range o.Spans {
		if s := &o.Spans[i]; s.Status == spanOpen {
			f.mu.apart = append(f.mu.apart, &fakeRound{executor.Outcome{Round: id, Device: f.index, Overrun: true, Spans: []executor.SpanOutcome{*s}}})
			s.Status = models.SpanOverrun
		}
	}
	f.mu.flight = nil
	f.out <- o
	return true
}

// endApart ends the oldest span that was set apart.
func (f *fakeWorkers) endApart(status models.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	running := f.mu.flight
	f.mu.flight, f.mu.apart = f.mu.apart[0], f.mu.apart[1:]
	f.endLocked(status)
	f.mu.flight = running
}

func (f *fakeWorkers) Abandon(id models.ServiceID, batch models.BatchID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.ended = append(f.mu.ended, batch)
}

func (f *fakeWorkers) Release(id models.ServiceID, batch models.BatchID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.workers[id].batches, batch)
}

// Arena returns where the inputs of a service lie, nil if there is no such service.
func (f *fakeWorkers) Arena(id models.ServiceID) *wire.InputArena {
	f.mu.Lock()
	defer f.mu.Unlock()
	if int(id) >= len(f.arenas) {
		return nil
	}
	return f.arenas[id]
}

// Add adds a service, whose worker comes when the test revives it. It may take
// the place of one that was removed.
func (f *fakeWorkers) Add(spec executor.ServiceSpec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.noRoom != nil {
		return f.mu.noRoom
	}
	for int(spec.ID) >= len(f.arenas) {
		f.arenas, f.mu.workers = append(f.arenas, nil), append(f.mu.workers, fakeWorker{})
	}
	if f.arenas[spec.ID] != nil {
		return executor.ErrInUse
	}
	f.arenas[spec.ID], f.mu.workers[spec.ID] = spec.Inputs, fakeWorker{operators: fakeOperators}
	f.mu.added = append(f.mu.added, int(spec.ID))
	return nil
}

// news returns the services that were added, in that order.
func (f *fakeWorkers) news() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mu.added)
}

// refuseAdd lets no service be added from now on, unless err is nil.
func (f *fakeWorkers) refuseAdd(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.noRoom = err
}

// Remove loses the worker of a service, which is gone at once.
func (f *fakeWorkers) Remove(id models.ServiceID) (<-chan struct{}, error) {
	if f.Arena(id) == nil {
		return nil, executor.ErrUnknownService
	}
	f.kill(int(id))
	f.tell(executor.Event{Kind: executor.WorkerStopped, Service: id})
	f.mu.Lock()
	f.arenas[id] = nil
	f.mu.Unlock()
	gone := make(chan struct{})
	close(gone)
	return gone, nil
}

func (f *fakeWorkers) State(id models.ServiceID) (s executor.State, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.PID = f.mu.pid; int(id) < len(f.mu.workers) && f.mu.workers[id].ready {
		s.Phase = executor.Ready
	}
	return s, nil
}

func (f *fakeWorkers) Restart(models.ServiceID) error { return executor.ErrUnknownService }

// Close ends the round that runs as the real one does: its spans are lost.
func (f *fakeWorkers) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return executor.ErrClosed
	}
	f.mu.closed = true
	if f.mu.flight != nil {
		f.endLocked(models.SpanLost)
	}
	return nil
}

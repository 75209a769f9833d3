// Package fakeworkers stands in for the workers of a device in tests of who schedules them: its
// [Workers] do what the test says, or run every round by themselves in the time that a [Device]
// takes. They compute nothing.
package fakeworkers

import (
	"context"
	"errors"
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
	Operators  = 4
	InputBytes = 1 << 16
)

// Workers is an executor whose workers do what the test says, or, with a
// device, run every round by themselves. It keeps the promises of a real one:
// one outcome for each round, delivered before the event that a worker is
// lost; batches that go on where they stand, on the worker that holds them.
type Workers struct {
	t      *testing.T
	index  int // of the device
	arenas []*wire.InputArena
	out    chan executor.Outcome

	events func(executor.Event) // guarded by mu
	mu     struct {
		sync.Mutex
		flight  *flight // the round that runs
		workers []worker
		device  *Device // nil if the test ends every round
		fails   map[input]bool
		given   []executor.QueryOutputs
		pid     int
		stopped int
		closed  bool
		is      [moods]bool
		hold    []executor.Event // events that are not delivered yet, if holding
		holding bool
		granted []models.ServiceID
		groups  [][]models.Span  // of the rounds sent, in that order
		apart   []*flight        // one for each span that was set apart and has not ended
		ended   []models.BatchID // that were abandoned
		added   []int            // services, in that order
	}
}

// worker is the worker of a service.
type worker struct {
	ready     bool
	lost      bool // it, or one before it
	operators int
	hash      string
	input     *models.TensorSpec        // of its model, nil for numbers
	bad       bool                      // its model does not load
	batches   map[models.BatchID]*batch // that it holds
}

// batch is a batch that a worker holds.
type batch struct {
	next    int // operator
	queries []models.QueryID
}

// input is what a model may fail on.
type input struct{ service, size int }

// spanOpen is the status of a span that has not ended.
const spanOpen = models.SpanOverrun + 1

// flight is a round that runs. A span has ended when it has another status than spanOpen.
type flight struct {
	of      *Workers // whose lock is held whenever it changes
	outcome executor.Outcome
}

// New returns the workers of a device, of so many services. None is ready before it is revived.
func New(t *testing.T, device, services int) *Workers {
	t.Helper()
	f := &Workers{t: t, index: device}
	f.mu.workers, f.mu.fails = make([]worker, services), map[input]bool{}
	for i := range f.mu.workers {
		f.mu.workers[i].operators = Operators
	}
	return f
}

// Config is a configuration of so many services, which run one at a time.
func Config(services int, change func(*config.Config)) config.Config {
	c := config.Default()
	c.Policy, c.GRPCListen = "edf", "" // tests of gRPC choose a port
	c.Worker.InputBytes = InputBytes
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

// Delivers sets where inputs lie, who gets outcomes and who is told of events.
func (f *Workers) Delivers(inputs []*wire.InputArena, outcomes chan executor.Outcome, events func(executor.Event)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arenas, f.out, f.events = inputs, outcomes, events
}

// Check fails the test if memory is still in use. The loop must have ended.
func (f *Workers) Check() {
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
func (f *Workers) Start(context.Context) error {
	for i := range f.mu.workers {
		f.mu.Lock()
		w := f.mu.workers[i]
		f.mu.Unlock()
		if w.bad {
			f.Fail(i)
		} else {
			f.Revive(i, w.operators)
		}
	}
	return nil
}

func (f *Workers) Run(round uint64, spans []executor.SpanRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return executor.ErrClosed
	}
	if f.mu.is[Refusing] {
		return executor.ErrTooManyRounds
	}
	if f.mu.flight != nil {
		f.t.Error("a round was sent while another runs")
	}
	r := &flight{of: f, outcome: executor.Outcome{Round: round, Device: f.index}}
	var group []models.Span
	for _, request := range spans {
		group = append(group, request.Span)
		r.outcome.Spans = append(r.outcome.Spans, executor.SpanOutcome{SpanOutcome: models.SpanOutcome{Span: request.Span, Status: spanOpen, Reached: request.Span.Start}})
	}
	f.mu.groups = append(f.mu.groups, group)
	f.mu.flight = r
	for i := range spans {
		f.mu.flight.begin(i, f.members(&spans[i]))
	}
	if f.mu.device != nil {
		f.mu.flight.end(models.SpanDone)
	}
	f.mu.flight.land()
	return nil
}

// End ends the round that runs, if there is one.
func (f *Workers) End(status models.Status) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.flight == nil {
		return false
	}
	f.mu.flight.end(status)
	return true
}

// EndOf ends the span of a service in the round that runs.
func (f *Workers) EndOf(service models.ServiceID, status models.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.flight == nil {
		f.t.Errorf("no round runs with service %d", service)
		return
	}
	for i := range f.mu.flight.outcome.Spans {
		if f.mu.flight.outcome.Spans[i].Span.Service == service {
			f.mu.flight.endSpan(i, status)
		}
	}
	f.mu.flight.land()
}

// AwaitRound returns the spans of the round that runs, when one does.
func (f *Workers) AwaitRound() (round uint64, spans []models.Span) {
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

// Await returns when a round runs.
func (f *Workers) Await() models.Span {
	f.t.Helper()
	_, spans := f.AwaitRound()
	return spans[0]
}

// Sent returns the groups of all rounds.
func (f *Workers) Sent() [][]models.Span {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.groups[:len(f.mu.groups):len(f.mu.groups)]
}

// Held returns how many batches the workers hold.
func (f *Workers) Held() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.mu.workers {
		n += len(f.mu.workers[i].batches)
	}
	return n
}

// Kill loses the worker of a service.
func (f *Workers) Kill(service int) {
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
				f.mu.flight.endSpan(i, models.SpanLost)
			}
		}
		f.mu.flight.land()
	}
	f.mu.Unlock()
	f.Tell(executor.Event{Kind: executor.WorkerLost, Service: models.ServiceID(service), Err: executor.ErrExited})
}

// Fail gives a service up.
func (f *Workers) Fail(service int) {
	f.Kill(service)
	f.Tell(executor.Event{Kind: executor.WorkerFailed, Service: models.ServiceID(service), Err: executor.ErrExited})
}

// Revive gives a service a worker whose model has so many operators.
func (f *Workers) Revive(service, operators int) {
	f.ReviveAs(service, operators, Hash(service, operators))
}

func Hash(service, operators int) string {
	return fmt.Sprintf("model %d of %d", service, operators)
}

// ReviveAs gives a service a worker with a model of this hash.
func (f *Workers) ReviveAs(service, operators int, hash string) {
	f.mu.Lock()
	w := &f.mu.workers[service]
	if w.ready {
		f.mu.Unlock()
		return
	}
	w.ready, w.operators, w.hash, w.batches = true, operators, hash, map[models.BatchID]*batch{}
	f.mu.pid++
	pid, d := f.mu.pid, f.mu.device
	input := numbers("X")
	if w.input != nil {
		input = *w.input
	}
	f.mu.Unlock()
	if d == nil {
		d = &Calm
	}
	info := wire.Info{
		Inputs:    []models.TensorSpec{input},
		Outputs:   []models.TensorSpec{numbers("Y")},
		Operators: make([]models.Operator, operators), Hash: hash, ORTVersion: "0",
	}
	for _, size := range []int{1, 4} {
		solo := wire.Solo{Size: size}
		for i := range operators {
			solo.Nanos = append(solo.Nanos, int64(d.Span(models.Span{Service: models.ServiceID(service), Start: i, End: i + 1, Size: size})))
		}
		info.Solo = append(info.Solo, solo)
	}
	f.Tell(executor.Event{Kind: executor.WorkerReady, Service: models.ServiceID(service), PID: pid, Info: &info})
}

// Tell delivers an event, or keeps it while holding.
func (f *Workers) Tell(e executor.Event) {
	f.mu.Lock()
	events := f.events
	if f.mu.holding {
		f.mu.hold = append(f.mu.hold, e)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	events(e)
}

// Hold keeps events back until letGo.
func (f *Workers) Hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.holding = true
}

// Taken ends holding and returns what was held.
func (f *Workers) Taken() []executor.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.mu.hold
	f.mu.hold, f.mu.holding = nil, false
	return held
}

func (f *Workers) LetGo() {
	for _, e := range f.Taken() {
		f.Tell(e)
	}
}

func (f *Workers) Stop(id models.ServiceID, batch models.BatchID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.stopped++
	if f.mu.flight == nil || f.mu.is[Deaf] {
		return false
	}
	for i := range f.mu.flight.outcome.Spans {
		if s := &f.mu.flight.outcome.Spans[i]; s.Span.Service == id && s.Span.Batch == batch && s.Status == spanOpen {
			f.mu.flight.endSpan(i, models.SpanStopped)
			f.mu.flight.land()
			return true
		}
	}
	return false
}

// SetApart does nothing unless the test wants it: it is busy machines that take
// longer than predicted.
func (f *Workers) SetApart(id uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.mu.flight
	if !f.mu.is[Endless] || r == nil || r.outcome.Round != id {
		return false
	}
	o := r.outcome
	o.Spans = slices.Clone(o.Spans)
	for i := range o.Spans {
		if s := &o.Spans[i]; s.Status == spanOpen {
			f.mu.apart = append(f.mu.apart, &flight{f, executor.Outcome{Round: id, Device: f.index, Overrun: true, Spans: []executor.SpanOutcome{*s}}})
			s.Status = models.SpanOverrun
		}
	}
	f.mu.flight = nil
	f.out <- o
	return true
}

// EndApart ends the oldest span that was set apart.
func (f *Workers) EndApart(status models.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	running := f.mu.flight
	f.mu.flight, f.mu.apart = f.mu.apart[0], f.mu.apart[1:]
	f.mu.flight.end(status)
	f.mu.flight = running
}

func (f *Workers) Abandon(id models.ServiceID, batch models.BatchID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.ended = append(f.mu.ended, batch)
}

func (f *Workers) Release(id models.ServiceID, batch models.BatchID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.workers[id].batches, batch)
}

// Arena returns where the inputs of a service lie, nil if there is no such service.
func (f *Workers) Arena(id models.ServiceID) *wire.InputArena {
	f.mu.Lock()
	defer f.mu.Unlock()
	if int(id) >= len(f.arenas) {
		return nil
	}
	return f.arenas[id]
}

// Add adds a service, whose worker comes when the test revives it. It may take
// the place of one that was removed.
func (f *Workers) Add(spec executor.ServiceSpec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.is[Full] {
		return errors.New("too many open files")
	}
	for int(spec.ID) >= len(f.arenas) {
		f.arenas, f.mu.workers = append(f.arenas, nil), append(f.mu.workers, worker{})
	}
	if f.arenas[spec.ID] != nil {
		return executor.ErrInUse
	}
	f.arenas[spec.ID], f.mu.workers[spec.ID] = spec.Inputs, worker{operators: Operators}
	f.mu.added = append(f.mu.added, int(spec.ID))
	return nil
}

// News returns the services that were added, in that order.
func (f *Workers) News() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mu.added)
}

// Remove loses the worker of a service, which is gone at once.
func (f *Workers) Remove(id models.ServiceID) (<-chan struct{}, error) {
	if f.Arena(id) == nil {
		return nil, executor.ErrUnknownService
	}
	f.Kill(int(id))
	f.Tell(executor.Event{Kind: executor.WorkerStopped, Service: id})
	f.mu.Lock()
	f.arenas[id] = nil
	f.mu.Unlock()
	gone := make(chan struct{})
	close(gone)
	return gone, nil
}

func (f *Workers) State(id models.ServiceID) (s executor.State, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.PID = f.mu.pid; int(id) < len(f.mu.workers) && f.mu.workers[id].ready {
		s.Phase = executor.Ready
	}
	return s, nil
}

func (f *Workers) Restart(models.ServiceID) error { return executor.ErrUnknownService }

// Close ends the round that runs as the real one does: its spans are lost.
func (f *Workers) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return executor.ErrClosed
	}
	f.mu.closed = true
	if f.mu.flight != nil {
		f.mu.flight.end(models.SpanLost)
	}
	return nil
}

// AwaitApart returns when so many spans are set apart.
func (f *Workers) AwaitApart(n int) {
	f.t.Helper()
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		apart := len(f.mu.apart)
		f.mu.Unlock()
		if apart == n {
			return
		}
	}
	f.t.Fatalf("there are not %d overruns", n)
}

// Abandoned reports whether a batch was.
func (f *Workers) Abandoned(b models.BatchID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.mu.ended, b)
}

// Stops returns how many spans were to be stopped.
func (f *Workers) Stops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.stopped
}

// numbers returns an input or output of a model of rows of 16 numbers.
func numbers(name string) models.TensorSpec {
	return models.TensorSpec{Name: name, Type: models.TensorType(models.Int32, models.Dim{Value: -1}, models.Dim{Value: 16})}
}

// begin sends a span to its worker, which must hold the batch at the
// operator where the span starts.
func (r *flight) begin(i int, queries []models.QueryID) {
	s := r.outcome.Spans[i].Span
	w := &r.of.mu.workers[s.Service]
	b := w.batches[s.Batch]
	switch {
	case !w.ready:
		r.endSpan(i, models.SpanLost)
	case s.Start == 0:
		if b != nil {
			r.of.t.Errorf("%v starts anew, its worker holds it", s)
		}
		w.batches[s.Batch] = &batch{queries: queries}
	case b == nil:
		if !w.lost {
			r.of.t.Errorf("%v goes on, its worker does not hold it", s)
		}
		r.endSpan(i, models.SpanFailed)
	case b.next != s.Start:
		r.of.t.Errorf("%v goes on, its worker holds it at operator %d", s, b.next)
	}
}

// endSpan ends one span of the round that runs.
func (r *flight) endSpan(i int, status models.Status) {
	s := &r.outcome.Spans[i]
	if s.Status != spanOpen {
		return
	}
	w := &r.of.mu.workers[s.Span.Service]
	if status == models.SpanDone && (s.Span.End > w.operators || r.of.mu.fails[input{int(s.Span.Service), s.Span.Size}]) {
		status = models.SpanFailed
	}
	s.Status = status
	b := w.batches[s.Span.Batch]
	if status != models.SpanStopped {
		delete(w.batches, s.Span.Batch)
	}
	switch status {
	case models.SpanDone:
		s.Reached, s.Took = s.Span.End, Calm.Span(s.Span)
		if d := r.of.mu.device; d != nil {
			s.Took = d.Span(s.Span)
			s.DeviceTook = time.Duration(d.Clock * float64(s.Took))
		}
		if s.Finished = s.Reached == w.operators; s.Finished {
			r.finish(s, b.queries)
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

// finish gives out the outputs of a batch.
func (r *flight) finish(s *executor.SpanOutcome, queries []models.QueryID) {
	for _, id := range queries {
		q := executor.QueryOutputs{ID: id, Outputs: []models.Tensor{{Data: []byte(fmt.Sprint(id))}}}
		s.Queries = append(s.Queries, q)
		r.of.mu.given = append(r.of.mu.given, q)
	}
}

// end ends the spans of the round that have not ended.
func (r *flight) end(status models.Status) {
	for i := range r.outcome.Spans {
		r.endSpan(i, status)
	}
	r.land()
}

// land delivers the outcome of the round if all of its spans have ended.
func (r *flight) land() {
	if r == nil {
		return // it has landed
	}
	for i := range r.outcome.Spans {
		if r.outcome.Spans[i].Status == spanOpen {
			return
		}
	}
	d := r.of.mu.device
	if d == nil {
		d = &Calm
	}
	r.outcome.Took = d.Group(r.outcome.Spans) + d.Sending
	r.of.mu.flight = nil
	r.of.out <- r.outcome
}

// members checks the queries of a span and returns them.
func (f *Workers) members(request *executor.SpanRequest) (ids []models.QueryID) {
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

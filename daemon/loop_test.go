package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/segments"
)

// fakeWorkers is an executor whose workers do what the test says, with the
// promises that a real one keeps: one outcome for each round, delivered before
// the event that its worker is lost.
type fakeWorkers struct {
	t      *testing.T
	b      *backend
	arenas []*segments.InputArena
	out    chan executor.Outcome

	mu struct {
		sync.Mutex
		flight    *executor.Outcome // the round that runs
		queries   []models.QueryID  // of it
		ready     []bool
		operators []int
		pid       int
		stopped   int
		runs      int
		closed    bool
		hold      []executor.Event // events that are not delivered yet, if holding
		holding   bool
	}
}

const fakeOperators = 4

// startLoop starts a backend with so many services and fake workers, all of
// them ready. It ends with the test.
func startLoop(t *testing.T, services int, change func(*Config)) (*backend, *fakeWorkers) {
	t.Helper()
	c := Default()
	for i := range services {
		s := DefaultService()
		s.Name, s.Model, s.Target = fmt.Sprint("s", i), "zoo:tiny_add", time.Minute
		c.Services = append(c.Services, s)
	}
	if change != nil {
		change(&c)
	}
	b := newBackend(c, zerolog.Nop())
	f := &fakeWorkers{t: t, b: b, out: make(chan executor.Outcome, executor.MaxRounds)}
	for range services {
		arena, err := segments.NewInputArena(1 << 16)
		if err != nil {
			t.Fatal(err)
		}
		f.arenas = append(f.arenas, arena)
	}
	f.mu.ready, f.mu.operators = make([]bool, services), make([]int, services)
	b.exec = f
	if err := b.newLoop(c, nil, journal.Header{}); err != nil {
		t.Fatal(err)
	}
	go b.loop.run()
	for i := range services {
		f.revive(i, fakeOperators)
	}
	b.ask(func(*loop) {})
	t.Cleanup(func() {
		f.Close()
		<-b.done
		for i, a := range f.arenas {
			if n := a.Used(); n != 0 {
				t.Errorf("%d bytes of the inputs of service %d are in use", n, i)
			}
			a.Close()
		}
	})
	return b, f
}

func (f *fakeWorkers) Start(context.Context) error { return nil }

func (f *fakeWorkers) Run(round uint64, spans []executor.SpanRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return executor.ErrClosed
	}
	f.mu.runs++
	span := spans[0].Span
	o := executor.Outcome{Round: round, Spans: []executor.SpanOutcome{{Span: span, Reached: span.Start}}}
	f.mu.queries = f.mu.queries[:0]
	for _, q := range spans[0].Queries {
		f.mu.queries = append(f.mu.queries, q.ID)
		for _, in := range q.Inputs {
			if !f.arenas[span.Service].Contains(in.Offset, in.Bytes) {
				f.t.Errorf("query %d: its input is not in the arena", q.ID)
			}
		}
	}
	if f.mu.flight != nil {
		f.t.Error("a round was sent while another runs")
	}
	f.mu.flight = &o
	if !f.mu.ready[span.Service] {
		f.endLocked(executor.Lost)
	}
	return nil
}

// endLocked ends the round that runs.
func (f *fakeWorkers) endLocked(status executor.Status) {
	o := f.mu.flight
	f.mu.flight = nil
	s := &o.Spans[0]
	s.Status = status
	switch status {
	case executor.Done:
		s.Reached, s.Took = s.Span.End, time.Microsecond
		if s.Reached > f.mu.operators[s.Span.Service] {
			s.Status, s.Err = executor.Failed, executor.ErrBadSpan
			break
		}
		if s.Finished = s.Reached == f.mu.operators[s.Span.Service]; s.Finished {
			for _, id := range f.mu.queries {
				s.Queries = append(s.Queries, executor.QueryOutputs{ID: id, Outputs: []executor.Output{{Data: []byte(fmt.Sprint(id))}}})
			}
		}
	case executor.Failed:
		s.Err = segments.ErrEngine
	case executor.Lost:
		s.Err = executor.ErrExited
	}
	f.out <- *o
}

// end ends the round that runs, if there is one.
func (f *fakeWorkers) end(status executor.Status) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.flight == nil {
		return false
	}
	f.endLocked(status)
	return true
}

// await returns when a round runs.
func (f *fakeWorkers) await() executor.SpanOutcome {
	f.t.Helper()
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		o := f.mu.flight
		f.mu.Unlock()
		if o != nil {
			return o.Spans[0]
		}
	}
	f.t.Fatal("no round is sent")
	return executor.SpanOutcome{}
}

// kill loses the worker of a service.
func (f *fakeWorkers) kill(service int) {
	f.mu.Lock()
	if !f.mu.ready[service] {
		f.mu.Unlock()
		return
	}
	f.mu.ready[service] = false
	if o := f.mu.flight; o != nil && o.Spans[0].Span.Service == models.ServiceID(service) {
		f.endLocked(executor.Lost)
	}
	f.mu.Unlock()
	f.tell(executor.WorkerLost{Service: models.ServiceID(service), Err: &executor.LostError{Cause: executor.ErrExited}})
}

// revive gives a service a worker whose model has so many operators.
func (f *fakeWorkers) revive(service, operators int) {
	f.mu.Lock()
	if f.mu.ready[service] {
		f.mu.Unlock()
		return
	}
	f.mu.ready[service], f.mu.operators[service] = true, operators
	f.mu.pid++
	pid := f.mu.pid
	f.mu.Unlock()
	f.tell(executor.WorkerReady{Service: models.ServiceID(service), PID: pid, Info: segments.Info{
		Inputs:    []models.TensorSpec{spec("X", models.Int32, -1, 16)},
		Outputs:   []models.TensorSpec{spec("Y", models.Int32, -1, 16)},
		Operators: make([]models.Operator, operators), Hash: fmt.Sprint(operators),
	}})
}

// tell delivers an event, or keeps it while holding.
func (f *fakeWorkers) tell(e executor.Event) {
	f.mu.Lock()
	if f.mu.holding {
		f.mu.hold = append(f.mu.hold, e)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	f.b.event(e)
}

// hold keeps events back until letGo.
func (f *fakeWorkers) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.holding = true
}

func (f *fakeWorkers) letGo() {
	f.mu.Lock()
	held := f.mu.hold
	f.mu.hold, f.mu.holding = nil, false
	f.mu.Unlock()
	for _, e := range held {
		f.b.event(e)
	}
}

func (f *fakeWorkers) Outcomes() <-chan executor.Outcome { return f.out }

func (f *fakeWorkers) Stop(id models.ServiceID, batch models.BatchID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.stopped++
	if o := f.mu.flight; o != nil && o.Spans[0].Span.Batch == batch {
		f.endLocked(executor.Stopped)
		return true
	}
	return false
}

func (f *fakeWorkers) Release(models.ServiceID, models.BatchID) {}

func (f *fakeWorkers) Arena(id models.ServiceID) *segments.InputArena { return f.arenas[id] }

func (f *fakeWorkers) State(models.ServiceID) (executor.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return executor.State{PID: f.mu.pid}, nil
}

func (f *fakeWorkers) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return executor.ErrClosed
	}
	f.mu.closed = true
	if f.mu.flight != nil {
		f.endLocked(executor.Lost)
	}
	close(f.out)
	return nil
}

// submit hands a call to the backend, or frees its memory if it is refused.
func submit(t *testing.T, b *backend, service int, timeout time.Duration) (*Call, error) {
	t.Helper()
	c := NewCall()
	c.Service, c.Size, c.Arrival, c.Timeout = b.services[service], 1, time.Now(), timeout
	m, err := b.Alloc(c.Service, 64)
	if err != nil {
		return nil, err
	}
	c.Memory = m
	c.Inputs = []Tensor{{Type: models.Int32, Shape: []int64{1, 16}, Data: m.Bytes, Offset: m.Offset}}
	if err := b.Submit(c); err != nil {
		b.Free(c.Service, m)
		return nil, err
	}
	return c, nil
}

// mustSubmit hands in a call that is not refused.
func mustSubmit(t *testing.T, b *backend, service int) *Call {
	t.Helper()
	c, err := submit(t, b, service, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answerOf waits for the one answer of a call, checks whose it is and takes
// the call's memory back.
func answerOf(t *testing.T, b *backend, c *Call) *Error {
	t.Helper()
	select {
	case <-c.answer:
	case <-time.After(10 * time.Second):
		t.Fatal("a call is not answered")
	}
	err := c.reply.Err
	if want := fmt.Sprint(c.QueryID); err == nil && (len(c.reply.Outputs) != 1 || string(c.reply.Outputs[0].Data) != want) {
		t.Errorf("call %s got the outputs %v", want, c.reply.Outputs)
	}
	b.Release(c)
	return err
}

// wantError fails unless a call was answered with that reason.
func wantError(t *testing.T, err *Error, status int, reason string) {
	t.Helper()
	if err == nil || err.Status != status || err.Reason != reason {
		t.Errorf("got %+v, want status %d, reason %s", err, status, reason)
	}
}

func TestLoopAnswers(t *testing.T) {
	b, f := startLoop(t, 1, nil)
	c := mustSubmit(t, b, 0)
	f.await()
	f.end(executor.Done)
	if err := answerOf(t, b, c); err != nil {
		t.Error(err)
	}
	c = mustSubmit(t, b, 0)
	f.await()
	f.end(executor.Failed)
	wantError(t, answerOf(t, b, c), 500, "model_failed")
}

// The scheduler's reasons reach clients by the names that the protocol has.
func TestReasonsOfTheScheduler(t *testing.T) {
	for reason, name := range map[overlap.Reason]string{
		overlap.ReasonQueueFull: ReasonQueueFull, overlap.ReasonDeadlinePassed: ReasonDeadline,
		overlap.ReasonCannotFinish: ReasonCannotFinish, overlap.ReasonWorkerLost: ReasonWorkerLost,
		overlap.ReasonModelFailed: ReasonModelFailed, overlap.ReasonCancelled: ReasonCancelled,
		overlap.ReasonDraining: ReasonDraining,
	} {
		if reason.String() != name {
			t.Errorf("the scheduler says %q, the protocol %q", reason, name)
		}
	}
}

// A lost worker is known to be lost by its span's outcome, before its event.
func TestLoopRunsAgainWhatWasLost(t *testing.T) {
	b, f := startLoop(t, 1, nil)
	c := mustSubmit(t, b, 0)
	f.await()
	f.hold()
	f.kill(0)
	b.ask(func(*loop) {})
	if f.end(executor.Done) {
		t.Error("a round was sent to a service whose worker is lost")
	}
	f.letGo()
	f.revive(0, fakeOperators)
	f.await()
	f.end(executor.Done)
	if err := answerOf(t, b, c); err != nil {
		t.Error(err)
	}
}

// An outcome that comes late, with the next worker ready by then, does not
// take that one down; whatever came late, the service goes on.
func TestLoopIsNotMisledByALateOutcome(t *testing.T) {
	for _, operators := range []int{fakeOperators, fakeOperators + 1, fakeOperators - 1} {
		b, f := startLoop(t, 1, nil)
		c := mustSubmit(t, b, 0)
		f.await()
		f.hold()
		b.ask(func(l *loop) { // the loop is busy while all of this happens
			f.kill(0)
			f.revive(0, operators)
			f.mu.Lock()
			held := f.mu.hold
			f.mu.hold, f.mu.holding = nil, false
			f.mu.Unlock()
			for _, e := range held {
				b.inbox <- message{event: e}
			}
		})
		f.await()
		f.end(executor.Done)
		if err := answerOf(t, b, c); err != nil {
			t.Errorf("%d operators: %v", operators, err)
		}
		c = mustSubmit(t, b, 0)
		f.await()
		f.end(executor.Done)
		if err := answerOf(t, b, c); err != nil {
			t.Errorf("%d operators, the next query: %v", operators, err)
		}
		if !b.Ready() {
			t.Errorf("%d operators: not ready", operators)
		}
	}
}

func TestLoopCancels(t *testing.T) {
	b, f := startLoop(t, 1, nil)
	running := mustSubmit(t, b, 0)
	f.await()
	waiting := mustSubmit(t, b, 0)
	b.Cancel(waiting)
	wantError(t, answerOf(t, b, waiting), 503, "cancelled")
	b.Cancel(running)
	wantError(t, answerOf(t, b, running), 503, "cancelled")
	if f.mu.stopped != 1 || f.mu.runs != 1 {
		t.Errorf("%d stops, %d runs", f.mu.stopped, f.mu.runs)
	}
}

func TestLoopRefusesForAServiceGivenUp(t *testing.T) {
	b, f := startLoop(t, 2, nil)
	f.kill(0)
	f.tell(executor.WorkerFailed{Service: 0, Err: errors.New("too often")})
	wantError(t, answerOf(t, b, mustSubmit(t, b, 0)), 503, "loading")
	f.revive(0, fakeOperators)
	c := mustSubmit(t, b, 0)
	f.await()
	f.end(executor.Done)
	if err := answerOf(t, b, c); err != nil {
		t.Error(err)
	}
}

// When the time to drain is over, everybody is told, running or waiting.
func TestLoopGivesUp(t *testing.T) {
	b, f := startLoop(t, 1, nil)
	calls := []*Call{mustSubmit(t, b, 0), mustSubmit(t, b, 0), mustSubmit(t, b, 0)}
	f.await()
	b.drain()
	if _, err := submit(t, b, 0, 0); !errors.Is(err, ErrDraining) {
		t.Errorf("a query at a draining daemon: %v", err)
	}
	b.giveUp()
	for _, c := range calls {
		wantError(t, answerOf(t, b, c), 503, "draining")
	}
}

// However late a call comes, it is refused or answered.
func TestLoopAnswersCallsThatComeAtTheEnd(t *testing.T) {
	for range 50 {
		b, f := startLoop(t, 1, nil)
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for range 20 {
					if c, err := submit(t, b, 0, 0); err == nil {
						wantError(t, answerOf(t, b, c), 503, "draining")
					}
				}
			})
		}
		f.Close()
		clients.Wait()
		if t.Failed() {
			return
		}
	}
}

// Whatever happens to workers and clients in whatever order, every call gets
// one answer, its own, and no memory is left.
func TestLoopUnderRandomEvents(t *testing.T) {
	const services, clients, each = 3, 8, 60
	for seed := range uint64(4) {
		b, f := startLoop(t, services, func(c *Config) {
			for i := range c.Services {
				c.Services[i].MaxBatch, c.Services[i].QueueLimit = 4, 5
			}
		})
		over := make(chan struct{})
		var chaos sync.WaitGroup
		chaos.Go(func() {
			random := rand.New(rand.NewPCG(seed, 1))
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Duration(random.IntN(100)) * time.Microsecond):
				}
				switch service := random.IntN(services); random.IntN(12) {
				case 0:
					f.kill(service)
				case 1, 2:
					f.revive(service, 1+random.IntN(3))
				case 3:
					f.end(executor.Failed)
				default:
					f.end(executor.Done)
				}
			}
		})
		var all sync.WaitGroup
		for client := range clients {
			all.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(100+client)))
				for range each {
					timeout := time.Duration(1+random.IntN(20)) * time.Millisecond
					c, err := submit(t, b, random.IntN(services), timeout)
					if err != nil {
						t.Error(err)
						continue
					}
					if random.IntN(4) == 0 {
						time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
						b.Cancel(c)
					}
					answerOf(t, b, c)
				}
			})
		}
		all.Wait()
		close(over)
		chaos.Wait()
	}
}

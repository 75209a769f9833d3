package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// lostGrace is how long the spans of a lost worker wait for the process to be
// reaped, so that their error can say how it ended. A process that was killed
// closes its socket last, so this is nearly always a moment.
const lostGrace = 50 * time.Millisecond

// stuckAfter is after how long it is said that a worker that was killed has not
// ended.
const stuckAfter = 10 * time.Second

// service is one service with its worker, if it has one.
type service struct {
	executor *Executor
	spec     ServiceSpec
	arena    *wire.InputArena
	restart  chan struct{}           // a person wants a service that was given up to be tried again
	rounds   atomic.Int32            // with spans of this service, whose outcome is not delivered
	threads  sync.WaitGroup          // every goroutine of this service
	end      context.CancelCauseFunc // ends the supervisor, nil before there is one; under Executor.mu
	leaves   bool                    // a Remove runs; under Executor.mu

	mu struct {
		sync.Mutex
		state   State
		gone    error           // why there will be no worker any more, nil if there may be
		worker  *worker         // nil unless it is ready
		living  *worker         // that has a process, ready or not
		held    error           // why none may start, nil if one may
		free    chan struct{}   // closed when it is not held any more
		over    chan struct{}   // closed when nothing is left of the process that starts or lives, nil if there is none
		doomed  error           // why the process that starts may not stay, nil if it may
		outputs []*wire.Outputs // of all workers whose outputs may be leased
	}
}

// supervise is the life of a service: a worker after the other.
func (s *service) supervise(ctx context.Context) {
	policy := restarts{Restarts: child.Restarts{Policy: s.executor.opts.Policy}}
	last := 0 // the process that ended with the service
	if err := s.spec.Refused; err != nil {
		s.giveUp(ctx, &policy, err)
	}
	for s.awaitFree(ctx); ctx.Err() == nil; s.awaitFree(ctx) {
		lost, readyFor := s.serve(ctx)
		if ctx.Err() != nil {
			last = lost.PID
			break
		}
		if errors.Is(lost.Err, ErrHeld) {
			s.setDown(Waiting, lost.Err)
			s.emit(lost)
			continue
		}
		delay, verdict := policy.next(time.Now(), readyFor, lost.Err)
		lost.RestartIn = delay
		s.setDown(Waiting, lost.Err)
		s.emit(lost)
		if verdict == nil {
			sleep(ctx, delay)
		} else {
			s.giveUp(ctx, &policy, verdict)
		}
	}
	s.setGone()
	s.setDown(Closed, ending(ctx))
	s.emit(WorkerStopped{s.spec.ID, last})
}

// ending returns why ctx, which has ended, ends a service.
func ending(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrRemoved) {
		return cause
	}
	return ErrClosed
}

// serve starts a worker and returns when it is gone, with how long it was
// ready.
func (s *service) serve(ctx context.Context) (lost WorkerLost, readyFor time.Duration) {
	s.setStarting()
	w, err := s.spawn()
	if err != nil {
		s.setGone()
		cause := fmt.Errorf("%w: %w", ErrStart, err)
		return WorkerLost{Service: s.spec.ID, Err: &LostError{Service: s.spec.Name, Cause: cause}}, 0
	}
	if held := s.setSpawned(w); held != nil {
		w.lose(held)
	}
	s.emit(WorkerStarting{s.spec.ID, w.process.PID()})
	if err := w.load(ctx); err != nil {
		w.lose(err)
		close(w.read)
		return s.bury(w), 0
	}
	s.start(w.listen)
	s.remember(&w.info)
	ready := time.Now()
	s.setReady(w)
	s.emit(WorkerReady{s.spec.ID, w.process.PID(), w.info, ready.Sub(w.begin)})
	s.watch(ctx, w)
	readyFor = time.Since(ready)
	return s.bury(w), readyFor
}

// watch returns when the worker is lost, which it sees to if the worker hangs
// or the executor closes.
func (s *service) watch(ctx context.Context, w *worker) {
	limit := s.executor.opts.SpanTimeout
	ticker := time.NewTicker(max(limit/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-w.lost:
			return
		case <-ctx.Done():
			s.dismiss(w, ending(ctx))
			return
		case <-ticker.C:
			if w.hangs(limit) {
				w.lose(fmt.Errorf("%w: span not done after %v", ErrSpanTimeout, limit))
			}
		}
	}
}

// dismiss lets a worker exit by itself, for as long as CloseGrace.
func (s *service) dismiss(w *worker, cause error) {
	w.quit()
	timer := time.NewTimer(s.executor.opts.CloseGrace)
	defer timer.Stop()
	select {
	case <-w.lost:
	case <-timer.C:
	}
	w.lose(cause)
}

// bury ends what a lost worker had to do, and returns when nothing is left of
// it but the outputs that are still leased.
func (s *service) bury(w *worker) WorkerLost {
	s.setDown(Waiting, w.cause())
	<-w.read
	child.Within(w.process.Done(), lostGrace)
	w.mu.Lock()
	batches := slices.Sorted(maps.Keys(w.mu.batches))
	w.mu.Unlock()
	w.strand(w.obituary())
	w.awaitEnd(stuckAfter)
	w.conn.close()
	w.outputs.Close()
	s.setGone()
	return WorkerLost{Service: s.spec.ID, PID: w.process.PID(), Err: w.obituary(), Batches: batches}
}

// awaitEnd waits until the process, which was killed, is gone. If that takes long
// it says so, and waits on: nothing else ends such a process, and while it is
// there it holds what it has of a device.
func (w *worker) awaitEnd(after time.Duration) {
	if child.Within(w.process.Done(), after) {
		return
	}
	w.service.output(fmt.Sprintf("(process %d was killed and has not ended after %v: the kernel holds it, most likely in a driver; "+
		"see /proc/%[1]d/stack and dmesg; its service starts no other before it is gone)", w.process.PID(), after))
	<-w.process.Done()
}

// obituary says how the worker ended, as far as it is known by now.
func (w *worker) obituary() *LostError {
	return &LostError{
		Service: w.service.spec.Name, Cause: w.cause(),
		Exit: w.process.Status(), Stderr: w.process.Tail(),
	}
}

// giveUp waits for a person.
func (s *service) giveUp(ctx context.Context, policy *restarts, err error) {
	select {
	case <-s.restart: // asked for before it was given up this time
	default:
	}
	s.setDown(GivenUp, err)
	s.emit(WorkerFailed{s.spec.ID, err})
	select {
	case <-ctx.Done():
	case <-s.restart:
		policy.forgive()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (s *service) emit(e Event) { s.executor.opts.Events(e) }

func (s *service) output(line string) { s.emit(WorkerOutput{s.spec.ID, line}) }

// ready returns the worker, or nil if there is none that can run spans.
func (s *service) ready() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.worker
}

// checkInputs refuses queries that the worker could not read.
func (s *service) checkInputs(queries []wire.QueryTensors) error {
	for _, q := range queries {
		for i, t := range q.Inputs {
			if !s.arena.Contains(t.Offset, t.Bytes) {
				return fmt.Errorf("%w: input %d of query %d is not in the arena", ErrBadSpan, i, q.ID)
			}
		}
	}
	return nil
}

// leases returns how many outputs of this service are leased, and forgets the
// workers that are gone and have none.
func (s *service) leases() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leasesLocked()
}

func (s *service) leasesLocked() (sum int) {
	for _, o := range s.mu.outputs {
		sum += o.Leases()
	}
	return sum
}

// run sends the span of a round to the worker. It reports whether it was sent.
func (s *service) run(r *round, index int, request *SpanRequest) bool {
	s.mu.Lock()
	w, gone := s.mu.worker, s.mu.gone
	s.mu.Unlock()
	switch {
	case gone != nil:
		r.fail(index, models.SpanLost, gone)
	case w == nil:
		r.fail(index, models.SpanLost, ErrNotReady)
	default:
		return w.run(r, index, request)
	}
	return false
}

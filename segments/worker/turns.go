package worker

import (
	"sync"
	"time"

	"github.com/overlapd/overlapd/models"
)

// turns lets up to one goroutine for each unit serve a socket. They take turns to read. The
// one that reads performs what must be alone, and keeps its turn. For a run beside others it
// passes the turn on, and performs the run meanwhile, so that no run waits for a goroutine
// to wake up.
type turns struct {
	// reading is held by the goroutine whose turn it is. It guards used.
	reading sync.Mutex

	// used is set by every message, and cleared by trim.
	used bool

	// loops counts the goroutines besides the first.
	loops sync.WaitGroup

	state struct {
		sync.Mutex

		// over is set once the worker ends, with err as the reason.
		over bool
		err  error

		// running holds the batches with a run in progress beside others, and ended
		// announces that one of these has ended.
		running map[models.BatchID]struct{}
		ended   *sync.Cond

		// goroutines is how many there are, and waiting how many wait for their turn.
		goroutines, waiting int

		// took is the time of the last run beside others.
		took time.Duration
	}
}

func (t *turns) init() {
	t.state.running, t.state.goroutines = map[models.BatchID]struct{}{}, 1
	t.state.ended = sync.NewCond(&t.state)
}

// stop ends the worker. The first reason counts: what follows is often its consequence.
func (t *turns) stop(err error) {
	t.state.Lock()
	defer t.state.Unlock()
	if !t.state.over {
		t.state.over, t.state.err = true, err
	}
}

// over reports whether the worker ends, and why.
func (t *turns) over() (over bool, err error) {
	t.state.Lock()
	defer t.state.Unlock()
	return t.state.over, t.state.err
}

// take waits for the turn of the calling goroutine.
func (t *turns) take() {
	t.state.Lock()
	t.state.waiting++
	t.state.Unlock()
	t.reading.Lock()
	t.state.Lock()
	t.state.waiting--
	t.state.Unlock()
}

// pass ends the turn of the calling goroutine, which is going to perform a run of a batch.
// If no other waits for its turn and there are fewer than units, another starts with serve.
func (t *turns) pass(id models.BatchID, units int, serve func()) {
	t.state.Lock()
	t.state.running[id] = struct{}{}
	if t.state.waiting == 0 && t.state.goroutines < units {
		t.state.goroutines++
		t.loops.Go(serve)
	}
	t.state.Unlock()
	t.reading.Unlock()
}

// end records that a run for which pass was called has ended.
func (t *turns) end(id models.BatchID, took time.Duration) {
	t.state.Lock()
	defer t.state.Unlock()
	delete(t.state.running, id)
	t.state.took = took
	t.state.ended.Broadcast()
}

// awaitAll waits until no run is in progress beside others.
func (t *turns) awaitAll() {
	t.state.Lock()
	defer t.state.Unlock()
	for len(t.state.running) > 0 {
		t.state.ended.Wait()
	}
}

// await waits until no run of a batch is in progress.
func (t *turns) await(id models.BatchID) {
	t.state.Lock()
	defer t.state.Unlock()
	for {
		if _, running := t.state.running[id]; !running {
			return
		}
		t.state.ended.Wait()
	}
}

// idle reports whether no run is in progress beside others. If some are, took is the time
// of the last one.
func (t *turns) idle() (idle bool, took time.Duration) {
	t.state.Lock()
	defer t.state.Unlock()
	return len(t.state.running) == 0, t.state.took
}

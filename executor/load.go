package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/time/rate"

	"github.com/overlapd/overlapd/segments/wire"
)

// Progress reports are rate-limited, because the receiver of events may be the
// scheduler. A correct worker sends one when a phase begins, and at most twenty a
// second within a phase.
const (
	progressBurst = 256
	progressEvery = 10 * time.Millisecond
)

// load sends the model to a worker that was just started, and returns when the
// worker is ready to run spans.
func (w *worker) load(ctx context.Context) error {
	unwatch := context.AfterFunc(ctx, func() { w.lose(context.Cause(ctx)) })
	defer unwatch()
	limit := w.service.executor.opts.LoadTimeout
	late := time.AfterFunc(limit, func() {
		w.lose(fmt.Errorf("%w: more than %v; raise worker.load_timeout if the model takes longer", ErrLoadTimeout, limit))
	})
	defer late.Stop()
	if err := w.greet(); err != nil {
		return err
	}
	spec := w.service.spec.Load
	spec.PollNanos = int64(w.service.executor.opts.Poll)
	spec.Moves = w.service.spec.Moves != nil
	w.mu.Lock()
	err := w.sendLocked(&spec)
	w.mu.loads = true
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.awaitReady()
}

// greet receives the first message. It checks the worker's protocol version and
// PID.
func (w *worker) greet() error {
	kind, payload, err := w.next()
	if err != nil {
		return err
	}
	if kind != wire.KindHello {
		return fmt.Errorf("%w: %s instead of %s", ErrProtocol, kind, wire.KindHello)
	}
	var hello wire.Hello
	if err := wire.Decode(payload, &hello); err != nil {
		return broken(err)
	}
	own := w.process.PID()
	if own == 0 {
		own = os.Getpid() // an inside worker shares this process
	}
	if hello.Protocol != wire.ProtocolVersion || hello.PID != own {
		return fmt.Errorf("%w: hello of process %d, version %d; expected process %d, version %d",
			ErrProtocol, hello.PID, hello.Protocol, own, wire.ProtocolVersion)
	}
	return nil
}

// awaitReady emits progress events until the model is loaded or loading fails.
func (w *worker) awaitReady() error {
	limit := rate.NewLimiter(rate.Every(progressEvery), progressBurst)
	for {
		kind, payload, err := w.next()
		if err != nil {
			return err
		}
		var progress wire.Progress
		var failed wire.Failed
		switch kind {
		case wire.KindProgress:
			err = wire.Decode(payload, &progress)
			if err == nil && limit.Allow() {
				w.service.emit(Event{Kind: WorkerProgress, Phase: progress.Phase, Done: progress.Done, Total: progress.Total})
			}
		case wire.KindReady:
			if err = wire.Decode(payload, &w.info); err == nil {
				w.answered()
				return nil
			}
		case wire.KindFailed:
			if err = wire.Decode(payload, &failed); err == nil {
				w.answered()
				err = failed.Err()
				if errors.Is(err, wire.ErrEngine) { // the sentinel's text would add nothing to the message
					return fmt.Errorf("%w: %s", ErrLoad, failed.Message)
				}
				return fmt.Errorf("%w: %w", ErrLoad, err)
			}
		default:
			err = fmt.Errorf("%s while loading", kind)
		}
		if err != nil {
			return broken(err)
		}
	}
}

// answered records that the worker is no longer loading, so that killing it does
// not call BeforeKill for the load.
func (w *worker) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.loads = false
}

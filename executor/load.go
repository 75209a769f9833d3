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

// A worker that loads is passed on at a limited rate: whoever hears of it may be
// the one who schedules. An honest one sends progress when a phase begins, and
// within one no more than twenty times in a second.
const (
	progressBurst = 256
	progressEvery = 10 * time.Millisecond
)

// load brings a worker that was just started to where it can run spans.
func (w *worker) load(ctx context.Context) error {
	unwatch := context.AfterFunc(ctx, func() { w.lose(context.Cause(ctx)) })
	defer unwatch()
	limit := w.service.executor.opts.LoadTimeout
	late := time.AfterFunc(limit, func() {
		w.lose(fmt.Errorf("%w: over %v; raise worker.load_timeout if the model takes longer", ErrLoadTimeout, limit))
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

// greet takes the first message, by which a worker says who it is.
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
		own = os.Getpid() // it is inside of this one
	}
	if hello.Protocol != wire.ProtocolVersion || hello.PID != own {
		return fmt.Errorf("%w: hello of process %d, version %d; expected process %d, version %d",
			ErrProtocol, hello.PID, hello.Protocol, own, wire.ProtocolVersion)
	}
	return nil
}

// awaitReady passes on progress until the model is loaded.
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
				if errors.Is(err, wire.ErrEngine) { // the message is all there is
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

// answered is called when the worker does not load any more.
func (w *worker) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.loads = false
}

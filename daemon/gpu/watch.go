package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/cuda/mps"
)

const (
	// sampleInterval is how often the driver is asked for a sample.
	sampleInterval = time.Second

	// holdTimeout is how long the workers of a failed server may take to exit. They are
	// killed.
	holdTimeout = 10 * time.Second

	// recoverTimeout is how long a faulted server may take to become active again once its
	// clients have exited. After that, new clients are tried.
	recoverTimeout = 10 * time.Second

	// terminateTimeout is how long MPS may take to end the work of a client. The client is
	// killed in any case.
	terminateTimeout = 3 * time.Second
)

// Reasons for ending all workers of a part.
var (
	errServerDied    = errors.New("the MPS server exited, and with it the CUDA contexts of all its clients")
	errServerFaulted = errors.New("a kernel of one client failed, and the MPS server accepts no new client until all are gone")
)

// workers stops the workers of a part together and starts them again. The executor
// implements it.
type workers interface {
	Hold(ctx context.Context, cause error) error
	Resume()
}

// watch is the state of Part.Watch.
type watch struct {
	life    context.Context
	workers workers
	lost    func(error)
	log     zerolog.Logger

	// down is set while there is no control daemon. A worker started then would run without
	// MPS and not notice.
	down bool

	// gaveUp is set when MPS has failed permanently.
	gaveUp bool

	// recover is running while a faulted server has time to recover.
	recover *time.Timer
}

// run handles events until the channel is closed or life is done.
func (w *watch) run(events <-chan mps.Event) {
	w.recover = time.NewTimer(recoverTimeout)
	w.recover.Stop()
	defer w.recover.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			w.take(e)
		case <-w.recover.C:
			w.resume()
		case <-w.life.Done():
			return
		}
	}
}

// take handles one event. Workers are held while their server cannot accept clients, and
// resumed when it can.
func (w *watch) take(e mps.Event) {
	switch e.Kind {
	case mps.ServerActive:
		w.log.Info().Int("pid", e.PID).Msg("MPS server is active")
		w.resume()
	case mps.ServerFaulted:
		w.log.Error().Int("pid", e.PID).Err(errServerFaulted).Msg("all workers restart")
		w.hold(errServerFaulted)
		w.recover.Reset(recoverTimeout)
	case mps.ServerDied:
		w.log.Error().Int("pid", e.PID).Err(errServerDied).Msg("all workers restart")
		w.hold(errServerDied)
		w.resume()
	case mps.ControlDied:
		w.log.Error().Int("pid", e.PID).Err(e.Err).Msg("MPS is gone; all workers restart when it is back")
		w.down = true
		w.hold(fmt.Errorf("MPS is gone: %w", e.Err))
	case mps.Restarted:
		w.log.Info().Int("pid", e.PID).Int("starts", e.Starts).Msg("MPS runs again")
		w.down = false
		w.resume()
	case mps.Unresponsive:
		w.log.Warn().Err(e.Err).Msg("MPS does not respond; running workers continue")
	case mps.GaveUp:
		w.down, w.gaveUp = true, true
		err := fmt.Errorf(`MPS failed permanently: %w; fix the cause and restart overlapd, or set mode = "off" in [mps]`, e.Err)
		w.hold(err)
		w.lost(err)
	}
}

// hold stops the workers, for holdTimeout at most.
func (w *watch) hold(cause error) {
	ctx, cancel := context.WithTimeout(w.life, holdTimeout)
	defer cancel()
	if err := w.workers.Hold(ctx, cause); err != nil && w.life.Err() == nil {
		w.log.Error().Err(err).Msg("stopping the workers of MPS failed")
	}
}

// resume starts the workers, unless there is no control daemon. A server that comes back
// ends a permanent failure.
func (w *watch) resume() {
	w.recover.Stop()
	if w.down {
		return
	}
	if w.gaveUp {
		w.gaveUp = false
		w.lost(nil)
	}
	w.workers.Resume()
}

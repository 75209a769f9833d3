package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

const (
	// sampleInterval is how often the driver is asked how the GPU does.
	sampleInterval = time.Second

	// holdTimeout is how long the workers of a server that failed may take to
	// be gone; they are killed.
	holdTimeout = 10 * time.Second

	// recoverTimeout is how long a server that has faulted may take to be active
	// again once its clients are gone, before new ones are tried.
	recoverTimeout = 10 * time.Second
)

// Why workers are ended together.
var (
	errServerDied    = errors.New("the MPS server died, and with it the CUDA contexts of all its clients")
	errServerFaulted = errors.New("a kernel of one client failed, and the MPS server takes no new client until all are gone")
)

// holder ends workers together and starts them again. The executor is one.
type holder interface {
	Hold(ctx context.Context, cause error) error
	Resume()
}

// watchGPU starts what watches the unit's part of a GPU, if it has one.
func (b *backend) watchGPU() {
	if b.part == nil {
		return
	}
	b.goroutines.Go(b.sampleGPU)
	if h, ok := b.exec.(holder); ok && b.part.Events() != nil {
		w := &mpsWatch{backend: b, holder: h}
		b.goroutines.Go(func() { w.run(b.part.Events()) })
	}
}

// sampleGPU looks at the part once in a while: a call into the driver may take
// long when the GPU does not do well, so nobody else waits for it.
func (b *backend) sampleGPU() {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		b.part.Look()
		select {
		case <-tick.C:
		case <-b.life.Done():
			return
		}
	}
}

// mpsWatch restarts the workers of one part together, as its control daemon of
// MPS fares.
type mpsWatch struct {
	*backend
	holder  holder
	down    bool        // there is no control daemon: a worker would run without MPS and not notice
	gaveUp  bool        // and none will come by itself
	recover *time.Timer // set while a server that has faulted is to recover
}

func (w *mpsWatch) run(events <-chan mps.Event) {
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

func (w *mpsWatch) take(event mps.Event) {
	log := w.log.With().Str("gpu", w.part.UUID).Logger()
	switch e := event.(type) {
	case mps.ServerActive:
		log.Info().Int("pid", e.PID).Msg("MPS server is active")
		w.resume()
	case mps.ServerFaulted:
		log.Error().Int("pid", e.PID).Err(errServerFaulted).Msg("all workers start again")
		w.hold(errServerFaulted)
		w.recover.Reset(recoverTimeout)
	case mps.ServerDied:
		log.Error().Int("pid", e.PID).Err(errServerDied).Msg("all workers start again")
		w.hold(errServerDied)
		w.resume()
	case mps.ControlDied:
		log.Error().Int("pid", e.PID).Err(e.Err).Msg("MPS is gone; all workers start again when it is back")
		w.down = true
		w.hold(fmt.Errorf("MPS is gone: %w", e.Err))
	case mps.Restarted:
		log.Info().Int("pid", e.PID).Int("starts", e.Starts).Msg("MPS runs again")
		w.down = false
		w.resume()
	case mps.Unresponsive:
		log.Warn().Err(e.Err).Msg("MPS does not answer; workers that run go on")
	case mps.GaveUp:
		w.giveUp(e.Err)
	}
}

func (w *mpsWatch) hold(cause error) {
	ctx, cancel := context.WithTimeout(w.life, holdTimeout)
	defer cancel()
	if err := w.holder.Hold(ctx, cause); err != nil && w.life.Err() == nil {
		w.log.Error().Err(err).Msg("ending the workers of MPS")
	}
}

func (w *mpsWatch) resume() {
	w.recover.Stop()
	if w.down {
		return
	}
	if w.gaveUp {
		w.gaveUp = false
		w.tell(message{ask: func(l *loop) { l.withoutMPS = nil }})
	}
	w.holder.Resume()
}

// giveUp serves nothing any more that needs MPS, and says why.
func (w *mpsWatch) giveUp(cause error) {
	w.down, w.gaveUp = true, true
	err := fmt.Errorf(`MPS is given up: %w; mend the cause and restart overlapd, or set mode = "off" in [mps]`, cause)
	w.hold(err)
	w.tell(message{ask: func(l *loop) { l.loseMPS(err) }})
}

// loseMPS gives up every service, those too that come later: their workers are
// held.
func (l *loop) loseMPS(err error) {
	l.withoutMPS = err
	for i, s := range l.slots {
		if s != nil {
			l.workerEvent(executor.WorkerFailed{Service: models.ServiceID(i), Err: err})
		}
	}
}

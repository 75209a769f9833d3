package segments

import (
	"errors"
	"fmt"
	"time"
)

// Loading is work like any other: it takes the device and the cores from what
// serves. A worker that is gated therefore asks for leave before each step of
// it that takes more than about a millisecond, and waits until the daemon grants
// it. What follows may take as long as it does, and the leave ends with the next
// question, or when the model is loaded.

// stepTime is how long a worker may work with one leave before it asks for the
// next: asking before each of several hundred small sessions would cost more
// than it gives.
const stepTime = time.Millisecond

// ErrNoLeave is returned when the daemon goes away while a worker waits for
// leave to load.
var ErrNoLeave = errors.New("segments: no leave to load")

// StepFunc asks for leave to do the next step of loading, and returns when it
// is given; total is 0 if the number of steps is not known. It tells the daemon
// how far loading has come, as ProgressFunc does. It is called from one
// goroutine at a time, and not after loading has ended. After an error, which is
// ErrNoLeave, loading must end.
type StepFunc func(phase string, done, total int64) error

// freely is the StepFunc of who needs no leave.
func freely(progress ProgressFunc) StepFunc {
	return func(phase string, done, total int64) error {
		progress(phase, done, total)
		return nil
	}
}

// step returns the StepFunc of a worker.
func (w *worker) step(gated bool, progress ProgressFunc) StepFunc {
	if !gated {
		return freely(progress)
	}
	var granted time.Time
	return func(phase string, done, total int64) error {
		if !granted.IsZero() && time.Since(granted) < stepTime {
			return nil
		}
		if err := w.awaitGrant(&Ask{Phase: phase, Done: done, Total: total}); err != nil {
			return fmt.Errorf("%w: %w", ErrNoLeave, err)
		}
		granted = time.Now()
		return nil
	}
}

// awaitGrant asks, and waits for the answer. While a worker loads nobody else
// reads its socket.
func (w *worker) awaitGrant(ask *Ask) error {
	if err := w.send(ask); err != nil {
		return err
	}
	kind, payload, err := w.frames.Next()
	if err != nil {
		return err
	}
	if kind != KindGrant {
		return fmt.Errorf("%w: %s instead of %s", ErrUnexpectedKind, kind, KindGrant)
	}
	return (&Grant{}).Decode(payload)
}

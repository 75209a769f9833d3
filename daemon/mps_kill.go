package daemon

import (
	"context"
	"time"

	"github.com/overlapd/overlapd/models"
)

// terminateTimeout is how long MPS may take to end the work of a client that is
// to be killed. It is killed in any case.
const terminateTimeout = 3 * time.Second

// beforeKill returns what protects the other clients of an MPS server from the
// end of a worker that has work on the device: what becomes of them is not
// defined unless that is ended first. It is nil where there is no MPS.
func (b *backend) beforeKill() func(models.ServiceID, int) {
	if b.part == nil || b.part.Events() == nil {
		return nil
	}
	return func(id models.ServiceID, pid int) {
		if b.life.Err() != nil {
			return // all clients end now, and their server with them
		}
		ctx, cancel := context.WithTimeout(b.life, terminateTimeout)
		defer cancel()
		if err := b.part.TerminateClient(ctx, pid); err != nil {
			b.log.Warn().Err(err).Int("service_id", int(id)).Int("pid", pid).
				Msg("a worker is killed that has work on the GPU and could not be taken off it; if others hang now, restart the control daemon of MPS with all workers")
		}
	}
}

package daemon

import (
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments"
)

// profiles stores what was measured of each model and gives it back when the
// same model is loaded on the same device.
type profiles interface {
	stored(e *executor.WorkerReady) (predictor.Snapshot, bool)
}

func (d *Daemon) key(service models.ServiceID, info *segments.Info) []byte {
	return profileKey(d.device, info.Hash, info.ORTVersion, len(info.Operators), d.threads[service])
}

// stored implements profiles.
func (d *Daemon) stored(e *executor.WorkerReady) (predictor.Snapshot, bool) {
	p, ok, err := d.state.profile(d.key(e.Service, &e.Info))
	if err != nil {
		d.log.Warn().Err(err).Str("service", d.config.Services[e.Service].Name).Msg("the stored profile cannot be read; it is measured again")
	}
	return p, ok
}

// saveProfiles stores what was measured of every service that was ready once.
func (d *Daemon) saveProfiles() {
	snapshots := make(map[models.ServiceID]predictor.Snapshot)
	d.backend.ask(func(l *loop) {
		for i := range l.services {
			if s, err := l.solo.Snapshot(models.ServiceID(i)); err == nil && len(s.Cells) > 0 {
				snapshots[models.ServiceID(i)] = s
			}
		}
	})
	for id, s := range snapshots {
		state, err := d.backend.exec.State(id)
		if err != nil || state.Info == nil {
			continue
		}
		if err := d.state.saveProfile(d.key(id, state.Info), s); err != nil {
			d.log.Warn().Err(err).Str("service", d.config.Services[id].Name).Msg("storing what was measured")
		}
	}
}

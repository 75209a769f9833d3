package daemon

import (
	"fmt"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// profiles stores what was measured of each model and gives it back when the
// same model is loaded on the same device.
type profiles interface {
	stored(e *executor.WorkerReady) (predictor.Snapshot, bool)
	calibration(f *predictor.File) (predictor.CalibrationSnapshot, bool)
	chose(s config.Service, c *wire.CutChoice)
}

func (d *instance) key(service models.ServiceID, info *wire.Info) []byte {
	return profileKey(d.device, info.Hash, info.ORTVersion, len(info.Operators), d.backend.loop.fleet.share(service))
}

// stored implements profiles.
func (d *instance) stored(e *executor.WorkerReady) (predictor.Snapshot, bool) {
	p, ok, err := d.state.profile(d.key(e.Service, &e.Info))
	if err != nil {
		d.log.Warn().Err(err).Str("service", d.backend.loop.fleet.name(e.Service)).Msg("the stored profile cannot be read; it is measured again")
	}
	return p, ok
}

// calibrationKey names what a calibration holds for: it speaks of services by
// their position, and what was learned of a model holds for no other that has
// its place, or its name.
func (d *instance) calibrationKey(identity string) []byte {
	key := []byte(identity)
	for i, s := range d.backend.loop.fleet.slots {
		if key = append(key, '|'); s == nil {
			continue
		}
		key = append(key, s.config.Name...)
		if m := d.backend.loop.learner.measured(models.ServiceID(i)); m.Operators > 0 {
			key = fmt.Appendf(key, " %s/%d", m.Hash, m.Operators)
		}
	}
	return key
}

// calibration implements profiles.
func (d *instance) calibration(f *predictor.File) (predictor.CalibrationSnapshot, bool) {
	c, ok, err := d.state.calibration(d.calibrationKey(f.Identity()))
	if err != nil {
		d.log.Warn().Err(err).Msg("the stored calibration of the predictor cannot be read; it is learned again")
	}
	return c, ok
}

// saveProfiles stores what was measured of every service that was ready once.
// Of an emulated device nothing was.
func (d *instance) saveProfiles() {
	if d.emulation != nil {
		return
	}
	type profile struct {
		key      []byte
		service  string
		snapshot predictor.Snapshot
	}
	var measured []profile
	var calibration predictor.CalibrationSnapshot
	var calibrated []byte // its key
	d.backend.ask(func(l *loop) {
		calibration = l.predictor.Snapshot()
		for _, s := range l.fleet.served() {
			id := s.service.ID
			info := s.worker.info
			if p, err := l.solo.Snapshot(id); err == nil && info != nil && len(p.Cells) > 0 {
				measured = append(measured, profile{d.key(id, info), s.config.Name, p})
			}
		}
		calibrated = d.calibrationKey(calibration.Predictor)
	})
	for _, p := range measured {
		if err := d.state.saveProfile(p.key, p.snapshot); err != nil {
			d.log.Warn().Err(err).Str("service", p.service).Msg("storing what was measured")
		}
	}
	if calibration.Predictor == "" {
		return
	}
	if err := d.state.saveCalibration(calibrated, calibration); err != nil {
		d.log.Warn().Err(err).Msg("storing how well the predictor does")
	}
}

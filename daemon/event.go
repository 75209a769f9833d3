package daemon

import (
	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// serviceOf returns whose worker an event is about.
func serviceOf(event executor.Event) models.ServiceID {
	switch e := event.(type) {
	case executor.WorkerStarting:
		return e.Service
	case executor.WorkerProgress:
		return e.Service
	case executor.WorkerReady:
		return e.Service
	case executor.WorkerOutput:
		return e.Service
	case executor.WorkerLost:
		return e.Service
	case executor.WorkerFailed:
		return e.Service
	case executor.WorkerStopped:
		return e.Service
	}
	panic("daemon: an event of no service")
}

// logEvent writes what happened to a worker.
func logEvent(log zerolog.Logger, name func(models.ServiceID) string, event executor.Event) {
	switch e := event.(type) {
	case executor.WorkerStarting:
		log.Info().Str("service", name(e.Service)).Int("pid", e.PID).Msg("worker starts")
	case executor.WorkerProgress:
		log.Debug().Str("service", name(e.Service)).Str("phase", e.Phase).Int64("done", e.Done).Int64("total", e.Total).Msg("worker loads")
	case executor.WorkerReady:
		if e.PID == 0 {
			log.Info().Str("service", name(e.Service)).Int("operators", len(e.Info.Operators)).Msg("model is emulated")
			return
		}
		log.Info().Str("service", name(e.Service)).Int("pid", e.PID).Int("operators", len(e.Info.Operators)).
			Bool("cached", e.Info.CacheHit).Dur("took", e.Took).Msg("worker is ready")
	case executor.WorkerOutput:
		log.Warn().Str("service", name(e.Service)).Str("line", e.Line).Msg("worker says")
	case executor.WorkerLost:
		log.Error().Err(e.Err).Str("service", name(e.Service)).Int("pid", e.PID).Int("batches", len(e.Batches)).
			Dur("restart_in", e.RestartIn).Msg("worker is lost")
	case executor.WorkerFailed:
		log.Error().Err(e.Err).Str("service", name(e.Service)).Msg("service is given up: mend what is wrong, and try again with overlapd restart")
	case executor.WorkerStopped:
		if e.PID == 0 {
			return
		}
		log.Info().Str("service", name(e.Service)).Int("pid", e.PID).Msg("worker stopped")
	}
}

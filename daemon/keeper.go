package daemon

import (
	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/training"
)

// keeperJobs is how many jobs may wait for the keeper. While that many do,
// nothing further is measured.
const keeperJobs = 64

// keeper works on the state file away from the scheduler goroutine: a
// transaction waits for the disk.
type keeper struct {
	store *training.Store
	log   zerolog.Logger
	jobs  chan keeperJob
}

type keeperJob struct {
	what string // is being done, for messages
	do   func(*training.Store) error
}

func newKeeper(store *training.Store, log zerolog.Logger) *keeper {
	return &keeper{store: store, log: log, jobs: make(chan keeperJob, keeperJobs)}
}

// run does the jobs until close.
func (k *keeper) run() {
	for job := range k.jobs {
		if err := job.do(k.store); err != nil {
			k.log.Warn().Err(err).Msg(job.what)
		}
	}
}

// full reports whether the next job would not be taken.
func (k *keeper) full() bool { return len(k.jobs) == cap(k.jobs) }

// keep takes a job, or reports that there are too many.
func (k *keeper) keep(what string, do func(*training.Store) error) bool {
	select {
	case k.jobs <- keeperJob{what, do}:
		return true
	default:
		k.log.Warn().Str("job", what).Msg("the state file is too slow; this is left out")
		return false
	}
}

// close lets run end once the jobs that were taken are done.
func (k *keeper) close() { close(k.jobs) }

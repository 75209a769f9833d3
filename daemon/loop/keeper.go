package loop

import (
	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/training"
)

// keeperJobs is how many jobs may wait for the keeper. While that many do,
// nothing further is measured.
const keeperJobs = 64

// Keeper works on the state file away from the scheduler goroutine: a
// transaction waits for the disk.
type Keeper struct {
	store *training.Store
	log   zerolog.Logger
	jobs  chan keeperJob
}

type keeperJob struct {
	what string // is being done, for messages
	do   func(*training.Store) error
}

func NewKeeper(store *training.Store, log zerolog.Logger) *Keeper {
	return &Keeper{store: store, log: log, jobs: make(chan keeperJob, keeperJobs)}
}

// Run does the jobs until close.
func (k *Keeper) Run() {
	for job := range k.jobs {
		if err := job.do(k.store); err != nil {
			k.log.Warn().Err(err).Msg(job.what)
		}
	}
}

// Full reports whether the next job would not be taken.
func (k *Keeper) Full() bool { return len(k.jobs) == cap(k.jobs) }

// Keep takes a job, or reports that there are too many.
func (k *Keeper) Keep(what string, do func(*training.Store) error) bool {
	select {
	case k.jobs <- keeperJob{what, do}:
		return true
	default:
		k.log.Warn().Str("job", what).Msg("the state file is too slow; this is left out")
		return false
	}
}

// Close lets Run end once the jobs that were taken are done.
func (k *Keeper) Close() { close(k.jobs) }

package loop

import (
	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/learning"
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
	jobs  chan learning.Job
}

func NewKeeper(store *training.Store, log zerolog.Logger) *Keeper {
	return &Keeper{store: store, log: log, jobs: make(chan learning.Job, keeperJobs)}
}

// Run does the jobs until close.
func (k *Keeper) Run() {
	for j := range k.jobs {
		if err := j.Do(k.store); err != nil {
			k.log.Warn().Err(err).Msg(j.What)
		}
	}
}

// Full reports whether the next job would not be taken.
func (k *Keeper) Full() bool { return len(k.jobs) == cap(k.jobs) }

// Keep takes a job, or reports that there are too many.
func (k *Keeper) Keep(what string, do func(*training.Store) error) bool {
	select {
	case k.jobs <- learning.Job{What: what, Do: do}:
		return true
	default:
		k.log.Warn().Str("job", what).Msg("state write skipped: queue full")
		return false
	}
}

// Close lets Run end once the jobs that were taken are done.
func (k *Keeper) Close() { close(k.jobs) }

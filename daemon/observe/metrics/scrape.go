package metrics

import (
	"iter"

	"github.com/overlapd/overlapd/daemon/status"
)

// Scrape is what is told of a daemon at one moment besides what its Recorders have
// counted. Counters count from the start of the daemon.
type Scrape struct {
	Instances []*status.Status // each scheduler, with services of its own

	// Traces is what became of the traces of queries: how many were traced, how many
	// of these were left out, and of their spans how many were exported, or failed.
	Traces struct{ Queries, Dropped, Exported, Failed uint64 }

	// Storage is what cannot be stored: nothing of what is measured once the state
	// file is lost, and no decisions while the log is stopped.
	Storage struct {
		StateLost, LogStopped bool
		DecisionsLost         uint64
	}
}

// scrape is everything that families read.
type scrape struct {
	Scrape
	version, policy string
	record          record
}

func (s *scrape) services() iter.Seq[*status.Service] {
	return func(yield func(*status.Service) bool) {
		for _, i := range s.Instances {
			for n := range i.Services {
				if !yield(&i.Services[n]) {
					return
				}
			}
		}
	}
}

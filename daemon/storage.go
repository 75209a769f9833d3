package daemon

import (
	"fmt"

	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/statefile"
)

// storage knows what a daemon cannot store. It serves on without, so nobody
// would notice.
type storage struct {
	state     *statefile.File
	decisions []decisionLog // of the units that have one
}

// decisionLog is a journal.Writer.
type decisionLog interface {
	Lost() (events uint64, fault error)
}

func (d *Daemon) storage() *storage {
	if d.state == nil {
		return nil
	}
	s := &storage{state: d.state.db}
	for _, u := range d.units {
		if u.decisions != nil {
			s.decisions = append(s.decisions, u.decisions)
		}
	}
	return s
}

// faults returns a sentence for each thing that is not stored now. There are
// none without a storage.
func (s *storage) faults() (all []string) {
	if s == nil {
		return nil
	}
	if err := s.state.Lost(); err != nil {
		all = append(all, err.Error())
	}
	for _, w := range s.decisions {
		if lost, err := w.Lost(); err != nil {
			all = append(all, fmt.Sprintf("the decision log cannot be written, and has lost %d events: %v; it goes on once it can be", lost, err))
		}
	}
	return all
}

// counts returns what a scrape tells of it, none without a storage.
func (s *storage) counts() (c metrics.Storage) {
	if s == nil {
		return c
	}
	c.StateLost = s.state.Lost() != nil
	for _, w := range s.decisions {
		lost, fault := w.Lost()
		c.DecisionsLost += lost
		c.LogStopped = c.LogStopped || fault != nil
	}
	return c
}

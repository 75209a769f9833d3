package daemon

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/daemon/status"
)

// scrapeTimeout is how long a scrape waits for a status. If there is none in time,
// it is answered with what was published last.
const scrapeTimeout = 100 * time.Millisecond

// scrapers collect the numbers of a scrape, one for each instance.
type scrapers []*scraper

func newScrapers(units []*instance, version, policy string) (all scrapers) {
	for _, u := range units {
		all = append(all, &scraper{u, version, policy})
	}
	return all
}

// snapshot returns the numbers of all instances as one.
func (s scrapers) snapshot() *metrics.Snapshot {
	parts := make([]*metrics.Snapshot, len(s))
	for i := range s {
		parts[i] = s[i].snapshot()
	}
	return metrics.Join(parts...)
}

// scraper collects the numbers of one instance: its published status, and what may be
// read without the scheduler goroutine.
type scraper struct {
	*instance
	version string
	policy  string
}

func (s *scraper) snapshot() *metrics.Snapshot {
	t, _ := s.backend.StatusWithin(scrapeTimeout)
	if t == nil {
		t = new(status.Status)
	}
	now := s.backend.Now()
	snap := &metrics.Snapshot{Version: s.version, Policy: s.policy, Record: s.recorder.Latest(), Age: now - t.At, Scheduler: s.scheduler(t, now)}
	for i := range t.Services {
		snap.Services = append(snap.Services, s.service(&t.Services[i], t.At))
	}
	if s.gpus != nil {
		snap.GPUs = s.gpus()
	}
	return snap
}

func (s *scraper) scheduler(t *status.Status, now time.Duration) metrics.Scheduler {
	m, p := &t.Scheduler, &t.Prediction
	waiting, limit := s.backend.Inbox()
	of := metrics.Scheduler{
		Schedulers: 1,
		Rounds:     m.Rounds, Busy: m.Busy, Made: m.Plans.Made, Kept: m.Plans.Kept, Overturned: m.Plans.Overturned,
		Inbox: waiting, InboxLimit: limit, BeatAge: now - s.backend.Beat(),
		Predictor: p.Network, Unknown: p.Unknown, Fallbacks: p.Fallbacks,
	}
	return of
}

func (s *scraper) service(t *status.Service, at time.Duration) metrics.Service {
	sv := t.Service
	of := metrics.Service{
		Name: sv.Name, Slot: int(sv.ID), Ready: sv.Ready(), Target: sv.QoSTarget, QueueLimit: sv.QueueLimit,
		Postponed: t.Waiting.Postponed, Counted: t.Counted, Requests: sv.Stats.Counts(), Restarts: t.Restarts,
	}
	if t.Counted.Queued > 0 {
		of.OldestAge = max(at-t.Waiting.Oldest, 0)
	}
	if state, err := s.exec.State(sv.ID); err == nil {
		of.IntermediateBytes, of.InputBytes, of.ResidentBytes = state.IntermediateBytes, state.InputBytes, state.ResidentBytes
	}
	return of
}

// storage knows what a daemon cannot store. It serves on without, so nobody
// would notice.
type storage struct {
	state     *statefile.File
	decisions []decisionLog // those of the instances that have one
}

// decisionLog is a journal.Writer.
type decisionLog interface {
	Lost() (events uint64, fault error)
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

// count writes the same into what a scrape reads.
func (s *storage) count(snap *metrics.Snapshot) {
	if s == nil {
		return
	}
	c := &snap.Storage
	c.StateLost = s.state.Lost() != nil
	for _, w := range s.decisions {
		lost, fault := w.Lost()
		c.DecisionsLost += lost
		c.LogStopped = c.LogStopped || fault != nil
	}
}

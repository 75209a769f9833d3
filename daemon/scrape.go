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

// newExporter returns what answers scrapes.
func (d *Daemon) newExporter(version string) func() ([]byte, error) {
	var recorders []*metrics.Recorder
	for _, u := range d.instances {
		recorders = append(recorders, u.recorder)
	}
	return metrics.NewExporter(version, d.config.Policy, recorders, d.scrape).Text
}

// scrape returns how all instances stand, what became of traces, and what is not
// stored.
func (d *Daemon) scrape() (s metrics.Scrape) {
	for _, u := range d.instances {
		now, _ := u.backend.StatusWithin(scrapeTimeout, false)
		s.Instances = append(s.Instances, now)
	}
	s.Traces = d.tracer.Counts()
	d.storage().count(&s)
	return s
}

// status returns how the daemon stands, false if a scheduler goroutine does not say.
func (d *Daemon) status() (*status.Status, bool) {
	s, ok := d.face.Status()
	if ok {
		s.NotStored = d.storage().count(new(metrics.Scrape))
	}
	return s, ok
}

// storage knows what a daemon cannot store. It serves on without, so nobody
// would notice.
type storage struct {
	state     *statefile.File // nil for none
	decisions []decisionLog   // those of the instances that have one
}

// decisionLog is a journal.Writer.
type decisionLog interface {
	Lost() (events uint64, fault error)
}

func (d *Daemon) storage() (s storage) {
	if d.state != nil {
		s.state = d.state.db
	}
	for _, u := range d.instances {
		if u.decisions != nil {
			s.decisions = append(s.decisions, u.decisions)
		}
	}
	return s
}

// count writes what is not stored now into a scrape, and returns a sentence for each
// such thing.
func (s storage) count(to *metrics.Scrape) (faults []string) {
	c := &to.Storage
	if s.state != nil && s.state.Lost() != nil {
		c.StateLost, faults = true, append(faults, s.state.Lost().Error())
	}
	for _, w := range s.decisions {
		lost, err := w.Lost()
		c.DecisionsLost += lost
		if err != nil {
			c.LogStopped = true
			faults = append(faults, fmt.Sprintf("the decision log cannot be written, and has lost %d events: %v; it goes on once it can be", lost, err))
		}
	}
	return faults
}

package metrics

import (
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap"
)

// Snapshot is everything that is told of a daemon at one moment. Counters count
// from the start of the daemon.
type Snapshot struct {
	Version string
	Policy  string

	Record    *record       // what the scheduler goroutine counted
	Age       time.Duration // the age of Record, Scheduler and what the services have of it
	Scheduler Scheduler
	Services  []Service // each name once
	GPUs      []GPU     // none if the services run on no GPU, or it cannot be asked

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

// Scheduler is what the scheduler and its goroutine did.
type Scheduler struct {
	Schedulers             int // how many are told of: one, or those of a daemon on a GPU that is divided
	Rounds                 uint64
	Busy                   time.Duration     // the time in which the device had a round
	Made, Kept, Overturned uint64            // plans
	Inbox, InboxLimit      int               // messages that wait, now
	BeatAge                time.Duration     // since the goroutine last ended a turn
	Predictor              bool              // groups of several spans are predicted by a network
	Fallbacks              map[string]uint64 // groups the network did not answer for, by reason
	Unknown                uint64            // groups of which nothing could be predicted
}

// Service is a service. What is marked "now" is how it stands, the rest counts.
type Service struct {
	Name       string
	Slot       int           // its place among the services of Record
	Ready      bool          // now
	Target     time.Duration // its QoS target
	QueueLimit int
	OldestAge  time.Duration // the age of the query that has waited longest, now
	Postponed  int           // queries, now

	// Counted is what the scheduler counts, and Requests what clients see, with the
	// time that the spans took.
	Counted  overlap.ServiceMetrics
	Requests query.Counts

	Restarts          uint64 // times that its worker was started again
	IntermediateBytes int64  // now, as the following
	InputBytes        int64
	ResidentBytes     int64 // its worker's, 0 if that is not known
}

// GPU is a reading of a GPU or MIG device. What it cannot tell is negative, and
// left out.
type GPU struct {
	UUID             string
	Utilization      float64 // 0 to 1
	MemoryTotalBytes int64
	MemoryUsedBytes  int64
	PowerWatts       float64
	PowerLimitWatts  float64
}

// Join returns what is told of a daemon with several schedulers, of one of which
// each snapshot is. What they count is added up; of ages the greatest is told,
// and a network predicts groups if it does for all. Version and policy are those
// of the first. The snapshots must not be empty, and stay as they are.
func Join(parts ...*Snapshot) *Snapshot {
	if len(parts) == 1 {
		return parts[0]
	}
	all := &Snapshot{Version: parts[0].Version, Policy: parts[0].Policy, Record: newRecord(0)}
	all.Scheduler.Predictor = true
	for _, p := range parts {
		all.Age = max(all.Age, p.Age)
		before := len(all.Record.services)
		for _, sv := range p.Services {
			sv.Slot += before
			all.Services = append(all.Services, sv)
		}
		all.GPUs = append(all.GPUs, p.GPUs...)
		all.Scheduler.add(&p.Scheduler)
		all.Record.add(p.Record)
	}
	return all
}

func (s *Scheduler) add(o *Scheduler) {
	s.Schedulers += o.Schedulers
	s.Rounds += o.Rounds
	s.Busy += o.Busy
	s.Made += o.Made
	s.Kept += o.Kept
	s.Overturned += o.Overturned
	s.Inbox += o.Inbox
	s.InboxLimit += o.InboxLimit
	s.BeatAge = max(s.BeatAge, o.BeatAge)
	s.Predictor = s.Predictor && o.Predictor
	s.Unknown += o.Unknown
	if s.Fallbacks == nil {
		s.Fallbacks = map[string]uint64{}
	}
	for reason, n := range o.Fallbacks {
		s.Fallbacks[reason] += n
	}
}

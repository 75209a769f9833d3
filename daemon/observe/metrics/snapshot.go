package metrics

import (
	"time"
)

// Snapshot is everything that is told of a daemon at one moment. Counters count
// from the start of the daemon.
type Snapshot struct {
	Version string
	Policy  string

	Record    *Record       // of the scheduler goroutine
	Age       time.Duration // of Record, Scheduler and what the services have of it
	Scheduler Scheduler
	Services  []Service // each name once
	Traces    Traces
	Storage   Storage
	GPUs      []GPU // none if the services run on no GPU, or it cannot be asked
}

// Count is how often something happened for one reason.
type Count struct {
	Reason string // one of a list in the program
	N      uint64
}

// Scheduler is what the scheduler and its goroutine did.
type Scheduler struct {
	Schedulers             int // how many are told of: one, or those of a daemon on a GPU that is divided
	Rounds                 uint64
	Busy                   time.Duration // of the device: what the rounds took together
	Made, Kept, Overturned uint64        // plans
	Inbox, InboxLimit      int           // messages that wait, now
	BeatAge                time.Duration // since the goroutine last ended a turn
	Predictor              bool          // groups of several spans are predicted by a network
	Fallbacks              []Count       // of the network, by reason
	Unknown                uint64        // groups of which nothing could be predicted
}

// Traces is what became of the traces of queries.
type Traces struct {
	Queries, Dropped uint64 // traced; of them, left out
	Exported, Failed uint64 // spans
}

// Storage is what cannot be stored.
type Storage struct {
	StateLost     bool // nothing is stored any more of what is measured
	LogStopped    bool // decisions are not written down, now
	DecisionsLost uint64
}

// Service is a service. What is marked "now" is how it stands, the rest counts.
type Service struct {
	Name       string
	Slot       int           // its place among the services of Record
	Ready      bool          // now
	Target     time.Duration // its QoS target
	QueueLimit int
	Queued     int           // queries, now
	OldestAge  time.Duration // of the query that has waited longest, now
	Postponed  int           // queries, now
	Paused     int           // batches, now

	Accepted, Finished, Late, Cancelled uint64
	Refused, Dropped, Failed            []Count
	Batches, Merged, Retried            uint64

	Restarts          uint64 // of its worker
	IntermediateBytes int64  // now, as the following
	InputBytes        int64
	ResidentBytes     int64 // of its worker, 0 if that is not known

	Requests Requests
	Clocks   Clocks
}

// Clocks are what the spans of a service took together.
type Clocks struct {
	Spans  uint64        // a number
	Engine time.Duration // in its worker's engine, by the host's clock
	Device time.Duration // by the device's own clock, 0 if it has none
}

// Requests is what Triton counts of a model: requests as clients see them.
type Requests struct {
	Success    uint64
	Failure    []Count // all of Triton's reasons, in any order
	Queries    uint64  // sum of the batch sizes of Success
	Executions uint64  // batches

	// What the requests of Success took together.
	Request, Queue, ComputeInput, ComputeInfer, ComputeOutput time.Duration
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
	all := &Snapshot{Version: parts[0].Version, Policy: parts[0].Policy, Record: NewRecord(0)}
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
	for _, c := range o.Fallbacks {
		s.Fallbacks = addCount(s.Fallbacks, c)
	}
}

func addCount(to []Count, c Count) []Count {
	for i := range to {
		if to[i].Reason == c.Reason {
			to[i].N += c.N
			return to
		}
	}
	return append(to, c)
}

// add adds what another record noted, and appends its services.
func (r *Record) add(o *Record) {
	r.turns += o.turns
	r.busy += o.busy
	r.exceeded += o.exceeded
	r.solo += o.solo
	r.gained += o.gained
	r.lost += o.lost
	to, from := r.groups.all(), o.groups.all()
	for i := range to {
		to[i].add(from[i])
	}
	r.services = append(r.services, o.services...)
}

// add adds a histogram with the same bounds.
func (h *distribution) add(o *distribution) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.sum += o.sum
}

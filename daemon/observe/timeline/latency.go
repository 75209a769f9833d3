package timeline

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/stats"
)

// window is how many of the last queries of a service are looked at.
const window = 256

// Recent is what became of the last queries of a service.
type Recent struct {
	Ended  int           `json:"recent"`        // at most the length of the window
	Missed int           `json:"recent_missed"` // of them, late or without outputs
	P50    time.Duration `json:"p50_ns"`        // of all of them, from arrival to answer
	P99    time.Duration `json:"p99_ns"`
	Max    time.Duration `json:"max_ns"`
}

// latencies holds the last queries of a service. It is a value: a copy is
// looked at while others are added.
type latencies struct {
	took   [window]time.Duration
	missed [window]bool
	added  uint64
}

func (l *latencies) add(took time.Duration, inTime bool) {
	at := l.added % window
	l.took[at], l.missed[at] = took, !inTime
	l.added++
}

// recent sums the window up, and sorts it.
func (l *latencies) recent() (r Recent) {
	r.Ended = int(min(l.added, window))
	if r.Ended == 0 {
		return r
	}
	for _, missed := range l.missed[:r.Ended] {
		if missed {
			r.Missed++
		}
	}
	took := l.took[:r.Ended]
	slices.Sort(took)
	r.P50, r.P99, r.Max = stats.Quantile(took, 0.5), stats.Quantile(took, 0.99), took[r.Ended-1]
	return r
}

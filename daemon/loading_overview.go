package daemon

import (
	"time"

	"github.com/overlapd/overlapd/daemon/metrics"
)

// LoadingOverview is a worker that loads a model by leave: it asks before each
// step, and waits while others are served.
type LoadingOverview struct {
	Service       string  `json:"service"`
	Phase         string  `json:"phase"`          // of loading, in the worker's words
	Waiting       bool    `json:"waiting"`        // for leave; else it does a step
	Seconds       float64 `json:"seconds"`        // that it has waited, or worked, since it asked or was given leave
	Done          int64   `json:"done"`           // steps of Total
	Total         int64   `json:"total"`          // 0 if that is not known
	LoadSeconds   float64 `json:"load_seconds"`   // since it asked for the first time
	WaitedSeconds float64 `json:"waited_seconds"` // of that, for leave
}

// loads returns the workers that load by leave: those that wait, in the order in
// which they get it, and then those that have it.
func (l *loop) loads(now time.Duration) (list []LoadingOverview) {
	for i := range l.loading.asks {
		list = append(list, l.loadOf(&l.loading.asks[i], now, true))
	}
	for i := range l.loading.works {
		list = append(list, l.loadOf(&l.loading.works[i], now, false))
	}
	return list
}

func (l *loop) loadOf(s *loadStep, now time.Duration, waits bool) LoadingOverview {
	return LoadingOverview{
		Service: l.name(s.service), Phase: s.phase, Waiting: waits, Seconds: (now - s.since).Seconds(),
		Done: s.done, Total: s.total, LoadSeconds: (now - s.began).Seconds(), WaitedSeconds: s.waitedBy(now, waits).Seconds(),
	}
}

// waitedBy returns how long the worker has waited for leave in all.
func (s *loadStep) waitedBy(now time.Duration, waits bool) time.Duration {
	if waits {
		return s.waited + now - s.since
	}
	return s.waited
}

// tellLoads appends what a scrape tells of the workers that load.
func (l *loop) tellLoads(to []metrics.Loading, now time.Duration) []metrics.Loading {
	for i := range l.loading.asks {
		s := &l.loading.asks[i]
		to = append(to, metrics.Loading{Service: l.name(s.service), Waited: s.waitedBy(now, true)})
	}
	for i := range l.loading.works {
		s := &l.loading.works[i]
		to = append(to, metrics.Loading{Service: l.name(s.service), Waited: s.waitedBy(now, false)})
	}
	return to
}

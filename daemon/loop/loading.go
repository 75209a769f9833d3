package loop

import (
	"maps"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// loading is how far the workers have come that load their models. They do so
// on threads of low priority beside what is served, but a group that is measured
// meanwhile would be measured too slow.
type loading map[models.ServiceID]load

type load struct {
	began       time.Time
	phase       string
	done, total int64
}

// heard takes in what happened to a worker.
func (g loading) heard(e *executor.Event, now time.Time) {
	switch e.Kind {
	case executor.WorkerProgress:
		began := now
		if before, ok := g[e.Service]; ok {
			began = before.began
		}
		g[e.Service] = load{began, e.Phase, e.Done, e.Total}
	case executor.WorkerReady, executor.WorkerLost, executor.WorkerStopped:
		delete(g, e.Service)
	}
}

// active reports whether any worker loads.
func (g loading) active() bool { return len(g) > 0 }

// status returns the workers that load, by service.
func (g loading) status(name func(models.ServiceID) string, now time.Time) (list []status.Loading) {
	for _, id := range slices.Sorted(maps.Keys(g)) {
		l := g[id]
		list = append(list, status.Loading{Service: name(id), Phase: l.phase, Done: l.done, Total: l.total, LoadSeconds: now.Sub(l.began).Seconds()})
	}
	return list
}

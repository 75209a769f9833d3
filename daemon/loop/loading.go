package loop

import (
	"cmp"
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
type loading map[worker]load

// worker is that of a service on a device.
type worker struct {
	service models.ServiceID
	device  int
}

type load struct {
	began       time.Time
	phase       string
	done, total int64
}

// heard records what happened to a worker.
func (g loading) heard(device int, e *executor.Event, now time.Time) {
	at := worker{e.Service, device}
	switch e.Kind {
	case executor.WorkerProgress:
		began := now
		if before, ok := g[at]; ok {
			began = before.began
		}
		g[at] = load{began, e.Phase, e.Done, e.Total}
	case executor.WorkerReady, executor.WorkerLost, executor.WorkerStopped:
		delete(g, at)
	}
}

// active reports whether any worker loads.
func (g loading) active() bool { return len(g) > 0 }

// status returns the workers that load, by service.
func (g loading) status(name func(models.ServiceID) string, device func(int) string, now time.Time) (list []status.Loading) {
	for _, at := range slices.SortedFunc(maps.Keys(g), func(a, b worker) int {
		return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.device, b.device))
	}) {
		l := g[at]
		list = append(list, status.Loading{Service: name(at.service), Device: device(at.device), Phase: l.phase, Done: l.done, Total: l.total, LoadSeconds: now.Sub(l.began).Seconds()})
	}
	return list
}

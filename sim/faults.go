package sim

import (
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/models"
)

// lifetime is when a worker dies, of one service on one device.
type lifetime struct {
	rand *rand.Rand
}

// beginFaults starts the lives of all workers.
func (w *world) beginFaults(services int) {
	if w.scenario.Faults.Every == 0 {
		return
	}
	for i := range len(w.nodes) * services {
		w.deaths = append(w.deaths, lifetime{stream(w.scenario.Seed, forFaults, i)})
		w.live(i, 0)
	}
}

// live has a worker die after a time.
func (w *world) live(worker int, from time.Duration) {
	mean := float64(w.scenario.Faults.Every)
	lives := min(w.deaths[worker].rand.ExpFloat64()*mean, float64(maxTime))
	w.timers.push(timer{at: from + max(time.Duration(lives), 1), kind: workerDies, worker: worker})
}

func (w *world) fire(t timer) error {
	services := len(w.scenario.Services)
	switch t.kind {
	case clientLeaves:
		return w.leave(t.query)
	case workerDies:
		w.timers.push(timer{at: t.at + w.scenario.Faults.Restart, kind: workerBack, worker: t.worker})
		return w.nodes[t.worker/services].die(models.ServiceID(t.worker % services))
	}
	w.live(t.worker, t.at)
	return w.nodes[t.worker/services].back(models.ServiceID(t.worker % services))
}

package loop

import (
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/overlap"
)

// asleep is a service whose model is on disk. It has no worker, and scheduler and predictors do not
// know it. The service that is loaded in its place continues its counters.
type asleep struct {
	entry  *query.Service // what requests find
	config config.Service
	line   *lineage
}

// asleepID is the ID of services that sleep, which no worker has.
const asleepID = -1

// rest lets services sleep, see [Backend.Rest].
func (ss *services) rest(gone chan struct{}, sleeper query.Sleeper, list []config.Service) {
	var serving []*service
	for i := range list {
		c := &list[i]
		a := &asleep{query.NewService(asleepID, c.Name), *c, new(lineage)}
		a.entry.Policy, a.entry.Asleep = ss.env.config.Policy, sleeper
		setTargets(a.entry, c, func(func(*replica) bool) {})
		if before := ss.asleep[c.Name]; before != nil {
			ss.wakeUp(before)
			a.line, a.entry.Stats = before.line, before.entry.Stats
		}
		if old := ss.serving(c.Name); old != nil {
			serving = append(serving, old)
			a.line, a.entry.Stats = old.line, old.entry.Stats
			if sig := old.entry.Signature(); sig != nil && old.config.Model == c.Model {
				_ = a.entry.Loaded(sig.Info) // it was the same before
			}
		}
		ss.asleep[c.Name] = a
	}
	ss.retire(gone, serving...)
	ss.publish()
}

// wakeUp removes a service that sleeps. What requests found looks for another one of its name, once
// that is published.
func (ss *services) wakeUp(a *asleep) {
	delete(ss.asleep, a.config.Name)
	a.entry.Retired.Store(true)
}

// status returns how the service stands.
func (a *asleep) status() status.Service {
	s := &service{entry: a.entry, config: a.config, line: a.line}
	counted := a.line.past
	counted.Name = a.config.Name
	return serviceStatus(s, 0, counted, overlap.Waiting{})
}

package loop

import (
	"fmt"

	"github.com/overlapd/overlapd/daemon/observe"
)

// succession is how services that have joined take the place of others.
type succession struct{ *fleet }

// takeOver lets a service that has joined answer queries, in the place of the
// one of its name, once all of its workers are ready. It goes on with what that one has
// counted.
func (f succession) takeOver(s *member) {
	if !s.joined() {
		return
	}
	if !s.joining.held {
		old := f.serving(s.config.Name)
		f.enter(s, old)
		f.retire(nil, old)
		f.publish()
	}
	s.joining.end(nil)
}

// enter has a member that has joined serve once it is published, where it goes on with what
// the one before it has counted, if there is one.
func (f succession) enter(s, old *member) {
	s.state = stateServing
	f.varies(s, scheduled(s.service.ID, &s.config).Of)
	f.emit(observe.Event{Kind: observe.Set, Service: &f.specs[s.service.ID], Fresh: old == nil})
	if old != nil {
		old.line.restarts += s.line.restarts
		s.line, s.service.Stats = old.line, old.service.Stats
	}
}

// replace has services that have loaded serve in the place of others, in one step.
func (f succession) replace(joined []*Joining, names []string) error {
	for _, j := range joined {
		if !j.member.joined() {
			return fmt.Errorf("the worker of %s exited before it could serve", j.member.config.Name)
		}
	}
	var old []*member
	for _, name := range names {
		old = append(old, f.serving(name))
	}
	for _, j := range joined {
		f.enter(j.member, nil)
	}
	f.retire(nil, old...)
	f.publish()
	return nil
}

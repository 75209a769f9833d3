package executor

import "github.com/overlapd/overlapd/segments/wire"

// remember lets the next worker of the service cut its model as this one has
// chosen, without measuring again. Only the supervisor calls it.
func (s *service) remember(info *wire.Info) {
	asked := s.spec.Load.Choose
	if asked == nil || !info.Cut.Measured() {
		return
	}
	next := *asked
	next.Known = info.Cut
	s.spec.Load.Choose = &next
}

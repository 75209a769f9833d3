package config

import (
	"slices"
)

// Changes says what a new configuration changes, and when. Services go by
// name, in the order of the configuration that has them.
type Changes struct {
	Added    []string `json:"added,omitempty"`    // services that only the new one has
	Removed  []string `json:"removed,omitempty"`  // services that only the old one has
	Replaced []string `json:"replaced,omitempty"` // need a new worker; what else changes of them comes with it
	Changed  []string `json:"changed,omitempty"`  // need none
	Settings []string `json:"settings,omitempty"` // keys outside the services that take effect at once, such as log_level
	Restart  []string `json:"restart,omitempty"`  // keys outside the services that take effect after a restart, such as limits.connections
}

// None reports whether nothing changes, neither now nor after a restart.
func (c *Changes) None() bool { return c.services()+len(c.Settings)+len(c.Restart) == 0 }

// services returns how many services are concerned.
func (c *Changes) services() int {
	return len(c.Added) + len(c.Removed) + len(c.Replaced) + len(c.Changed)
}

// Diff returns what the next configuration changes of the old one. Both are
// valid. A model that has kept its path is asked about: rewritten reports
// whether the file of a service is not the one that its worker has loaded.
func Diff(old, next Config, rewritten func(service string) bool) Changes {
	c := Changes{Removed: missing(&old, &next)}
	for i := range next.Services {
		s := &next.Services[i]
		was := old.Service(s.Name)
		switch {
		case was == nil:
			c.Added = append(c.Added, s.Name)
		case was.needsWorker(s) || rewritten(s.Name):
			c.Replaced = append(c.Replaced, s.Name)
		case was.changes(s):
			c.Changed = append(c.Changed, s.Name)
		}
	}
	for _, key := range listKeys(old).differ(listKeys(next)) {
		if effectOf(key) == atOnce {
			c.Settings = append(c.Settings, key)
		} else {
			c.Restart = append(c.Restart, key)
		}
	}
	if !samePlaces(&old, &next) {
		c.Restart = append(c.Restart, instanceKey)
	}
	return c
}

// instanceKey is the key of how a GPU is divided.
const instanceKey = "mig.instance"

// Service returns the entry of a service, or nil.
func (c *Config) Service(name string) *Service {
	i := slices.IndexFunc(c.Services, func(s Service) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Services[i]
}

// missing returns the services of c that other has not.
func missing(c, other *Config) (names []string) {
	for i := range c.Services {
		if name := c.Services[i].Name; !other.Has(name) {
			names = append(names, name)
		}
	}
	return names
}

// needsWorker reports whether what a worker was started with is another in
// next.
func (s *Service) needsWorker(next *Service) bool {
	return s.Model != next.Model || s.Threads != next.Threads || s.Cut != next.Cut || !s.MPS.same(&next.MPS)
}

func (l *MPSLimits) same(other *MPSLimits) bool {
	return l.Percentage == other.Percentage && l.PinnedMemory == other.PinnedMemory && l.priority() == other.priority()
}

// changes reports whether anything differs that the daemon itself goes by. A
// worker does with whatever batches come; max_batch and seq_lens are for it no
// more than what it warms up.
func (s *Service) changes(next *Service) bool {
	return s.Target != next.Target || s.QueueLimit != next.QueueLimit ||
		s.MaxBatch != next.MaxBatch || s.MaxQueryBatch != next.MaxQueryBatch || s.BestEffort != next.BestEffort ||
		!slices.Equal(s.MeasuredSizes(), next.MeasuredSizes()) || !slices.Equal(s.SeqLens, next.SeqLens)
}

// samePlaces reports whether a GPU is divided alike and each service that stays
// is on the instance on which it was.
func samePlaces(old, next *Config) bool {
	if !slices.EqualFunc(old.MIG.Instances, next.MIG.Instances, func(a, b MIGInstance) bool { return a.Profile == b.Profile }) {
		return false
	}
	for i := range old.Services {
		name := old.Services[i].Name
		if next.Has(name) && old.MIG.Place(name) != next.MIG.Place(name) {
			return false
		}
	}
	return true
}

// Place returns on which instance a service is, or -1.
func (m *MIG) Place(service string) int {
	return slices.IndexFunc(m.Instances, func(i MIGInstance) bool { return slices.Contains(i.Services, service) })
}

// Applied returns the configuration that holds once next has taken effect as
// far as it can without a restart: its services and its settings, and all the
// rest as it was. A service that is new has a place on a divided GPU if there
// is an instance of that number and profile.
func Applied(old, next Config) Config {
	c := old
	c.LogLevel, c.DrainTimeout = next.LogLevel, next.DrainTimeout
	c.Services = slices.Clone(next.Services)
	c.MIG.Instances = slices.Clone(old.MIG.Instances)
	for i := range c.MIG.Instances {
		at := &c.MIG.Instances[i]
		at.Services = slices.DeleteFunc(slices.Clone(at.Services), func(name string) bool { return !next.Has(name) })
		if i >= len(next.MIG.Instances) || next.MIG.Instances[i].Profile != at.Profile {
			continue
		}
		for _, name := range next.MIG.Instances[i].Services {
			if !old.Has(name) {
				at.Services = append(at.Services, name)
			}
		}
	}
	return c
}

package daemon

import (
	"slices"
)

// diff returns what the next configuration changes of the old one. Both are
// valid. A model that has kept its path is asked about: rewritten reports
// whether the file of a service is not the one that its worker has loaded.
func diff(old, next Config, rewritten func(service string) bool) Changes {
	c := Changes{Removed: missing(&old, &next)}
	for i := range next.Services {
		s := &next.Services[i]
		was := old.service(s.Name)
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

// service returns the entry of a service, or nil.
func (c *Config) service(name string) *ServiceConfig {
	i := slices.IndexFunc(c.Services, func(s ServiceConfig) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Services[i]
}

// missing returns the services of c that other has not.
func missing(c, other *Config) (names []string) {
	for i := range c.Services {
		if name := c.Services[i].Name; !other.has(name) {
			names = append(names, name)
		}
	}
	return names
}

// needsWorker reports whether what a worker was started with is another in
// next.
func (s *ServiceConfig) needsWorker(next *ServiceConfig) bool {
	return s.Model != next.Model || s.Threads != next.Threads || s.Cut != next.Cut || !s.MPS.same(&next.MPS)
}

func (l *MPSLimits) same(other *MPSLimits) bool {
	return l.Percentage == other.Percentage && l.PinnedMemory == other.PinnedMemory && l.priority() == other.priority()
}

// changes reports whether anything differs that the daemon itself goes by. A
// worker does with whatever batches come; max_batch and seq_lens are for it no
// more than what it warms up.
func (s *ServiceConfig) changes(next *ServiceConfig) bool {
	return s.Target != next.Target || s.QueueLimit != next.QueueLimit ||
		s.MaxBatch != next.MaxBatch || s.MaxQueryBatch != next.MaxQueryBatch || s.BestEffort != next.BestEffort ||
		!slices.Equal(s.sizes(), next.sizes()) || !slices.Equal(s.SeqLens, next.SeqLens)
}

// samePlaces reports whether a GPU is divided alike and each service that stays
// is on the instance on which it was.
func samePlaces(old, next *Config) bool {
	if !slices.EqualFunc(old.MIG.Instances, next.MIG.Instances, func(a, b MIGInstance) bool { return a.Profile == b.Profile }) {
		return false
	}
	for i := range old.Services {
		name := old.Services[i].Name
		if next.has(name) && old.MIG.place(name) != next.MIG.place(name) {
			return false
		}
	}
	return true
}

// place returns on which instance a service is, or -1.
func (m *MIGConfig) place(service string) int {
	return slices.IndexFunc(m.Instances, func(i MIGInstance) bool { return slices.Contains(i.Services, service) })
}

// applied returns the configuration that holds once next has taken effect as
// far as it can without a restart: its services and its settings, and all the
// rest as it was. A service that is new has a place on a divided GPU if there
// is an instance of that number and profile.
func applied(old, next Config) Config {
	c := old
	c.LogLevel, c.DrainTimeout = next.LogLevel, next.DrainTimeout
	c.Services = slices.Clone(next.Services)
	c.MIG.Instances = slices.Clone(old.MIG.Instances)
	for i := range c.MIG.Instances {
		at := &c.MIG.Instances[i]
		at.Services = slices.DeleteFunc(slices.Clone(at.Services), func(name string) bool { return !next.has(name) })
		if i >= len(next.MIG.Instances) || next.MIG.Instances[i].Profile != at.Profile {
			continue
		}
		for _, name := range next.MIG.Instances[i].Services {
			if !old.has(name) {
				at.Services = append(at.Services, name)
			}
		}
	}
	return c
}

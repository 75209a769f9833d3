package config

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// Reloaded is what a new configuration changes, and when, and what became of it once
// it was reloaded. Services go by name, in the order of the configuration that has
// them. A service that is replaced needs new workers, and whatever else changes of
// it comes with that, and so does one that is retried, which had been given up; one that is moved only comes to other devices, where it stays it
// keeps its workers, and what else changes comes with that, too; one that is changed
// needs no worker. Settings are the keys outside
// the services that take effect at once, such as log_level, and Restart are those
// that take effect after a restart, such as limits.connections.
//
// Failed has the reason why a service of Added, Replaced or Retried could not be loaded; of
// Replaced the old model serves on, unless the service is in Down: it had been given
// up before.
type Reloaded struct {
	Added    []string          `json:"added,omitempty"`
	Removed  []string          `json:"removed,omitempty"`
	Replaced []string          `json:"replaced,omitempty"`
	Retried  []string          `json:"retried,omitempty"`
	Moved    []string          `json:"moved,omitempty"`
	Changed  []string          `json:"changed,omitempty"`
	Settings []string          `json:"settings,omitempty"`
	Restart  []string          `json:"restart,omitempty"`
	Failed   map[string]string `json:"failed,omitempty"`
	Down     []string          `json:"down,omitempty"`
	Took     time.Duration     `json:"took_ns"`
}

// None reports whether nothing changes, neither now nor after a restart.
func (c *Reloaded) None() bool {
	return len(c.Added)+len(c.Removed)+len(c.Replaced)+len(c.Retried)+len(c.Moved)+len(c.Changed)+len(c.Settings)+len(c.Restart) == 0
}

// States of a service in a Step, in this order: its new worker loads the model,
// is ready and waits for its turn, and serves; or it failed, and what served
// before serves on. A service that is only removed or changed is done at once.
const (
	StepLoading = "loading"
	StepSwitch  = "switch"
	StepDone    = "done"
	StepFailed  = "failed"
)

// Step is progress of a reload. While a service loads, Done of Total is done, in
// a unit of the worker's own.
type Step struct {
	Service string `json:"service"`
	State   string `json:"state"`
	Done    int64  `json:"done,omitempty"`
	Total   int64  `json:"total,omitempty"`
}

// Diff returns what the next configuration changes of the old one. Both are
// valid, and expanded. A model that has kept its path is asked about: rewritten reports
// whether the file of a service is not the one that its worker has loaded, and givenUp
// whether it was given up.
func Diff(old, next Config, rewritten, givenUp func(service string) bool) Reloaded {
	var c Reloaded
	for _, name := range old.Names() {
		if next.Service(name) == nil {
			c.Removed = append(c.Removed, name)
		}
	}
	applied := Applied(old, next)
	for i := range applied.Services {
		s := &applied.Services[i]
		was := old.Service(s.Name)
		if was == nil {
			c.Added = append(c.Added, s.Name)
			continue
		}
		switch changed, worker := was.changes(s); {
		case worker || rewritten(s.Name):
			c.Replaced = append(c.Replaced, s.Name)
		case givenUp(s.Name):
			c.Retried = append(c.Retried, s.Name)
		case !slices.Equal(old.On(s.Name), applied.On(s.Name)):
			c.Moved = append(c.Moved, s.Name)
		case changed:
			c.Changed = append(c.Changed, s.Name)
		}
	}
	was, is := settings(&old), settings(&next)
	for i := range is {
		switch {
		case format(was[i].value) == format(is[i].value), is[i].name == deviceKey:
		case is[i].tag.Get("reload") == "now":
			c.Settings = append(c.Settings, is[i].name)
		default:
			c.Restart = append(c.Restart, is[i].name)
		}
	}
	if old.Device != next.Device || !slices.Equal(old.Devices, next.Devices) {
		c.Restart = append(c.Restart, deviceKey)
	}
	return c
}

// settings returns the keys outside the services, and outside the tables of devices.
func settings(c *Config) (list []key) {
	c.keys(func(k key) {
		if !k.isTables() && !strings.Contains(k.name, "[") {
			list = append(list, k)
		}
	})
	return list
}

// changes reports whether a service changes at all, but for where it is, and whether by
// a key that its worker was started with. Other pipelines need no worker but on new devices. A worker does with whatever batches come: what else
// changes is for it no more than what it warms up.
func (s *Service) changes(next *Service) (any, worker bool) {
	if len(s.Variants) != len(next.Variants) {
		return true, true
	}
	old, now := *s, *next
	any = !reflect.DeepEqual(s.Planned, next.Planned)
	old.Sizes, now.Sizes = s.MeasuredSizes(), next.MeasuredSizes()
	var was []key
	walk("", reflect.ValueOf(&old).Elem(), func(k key) { was = append(was, k) })
	walk("", reflect.ValueOf(&now).Elem(), func(k key) {
		if format(was[0].value) != format(k.value) && k.tag.Get("reload") != "replicas" {
			any, worker = true, worker || k.tag.Get("reload") == "worker"
		}
		was = was[1:]
	})
	return any, worker
}

// Applied returns the configuration that holds once next has taken effect as
// far as it can without a restart: its services and its settings, and all the
// rest as it was. Of the devices that a service names, those count that are in the
// old pool; where none is, a service stays where it was, and a new one is nowhere.
func Applied(old, next Config) Config {
	c := old
	for i, k := range settings(&c) {
		if k.tag.Get("reload") == "now" {
			k.value.Set(settings(&next)[i].value)
		}
	}
	c.Services = slices.Clone(next.Services)
	for i := range c.Services {
		s := &c.Services[i]
		there := slices.DeleteFunc(slices.Clone(s.On), func(name string) bool {
			return !slices.ContainsFunc(old.Devices, func(d Device) bool { return d.Name == name })
		})
		was := old.Service(s.Name)
		switch {
		case len(there) > 0:
			s.On = there
		case len(s.On) > 0 && was != nil:
			s.On = was.On
		}
	}
	return c
}

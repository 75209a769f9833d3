package config

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// Reloaded says what a new configuration changes, and what became of it. Services are
// listed by name, in the order of their configuration, each in one list:
//
//   - Replaced services need new workers; all their other changes come with these.
//   - Retried services had failed permanently and get new workers.
//   - Moved services change their devices and keep their workers where they stay.
//   - Changed services need no new worker.
//
// Settings are the keys outside services that take effect immediately, such as log_level.
// Restart are the keys that take effect after a restart, such as limits.connections.
//
// Failed says why a service of Added, Replaced or Retried could not be loaded. A replaced
// service then continues with its old model, unless it is in Down because it had failed
// permanently before.
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

// States of a service in a Step, in this order: the new worker loads the model, is ready
// and waits for its turn, and serves; or it has failed, and the previous worker continues.
// A service that is only removed or changed goes to StepDone directly.
const (
	StepLoading = "loading"
	StepSwitch  = "switch"
	StepDone    = "done"
	StepFailed  = "failed"
)

// Step is the progress of a service in a reload. While the service loads, Done of Total is
// complete, in units of the worker.
type Step struct {
	Service string `json:"service"`
	State   string `json:"state"`
	Done    int64  `json:"done,omitempty"`
	Total   int64  `json:"total,omitempty"`
}

// Diff returns what the configuration next changes compared with old. Both must be valid
// and expanded. Only the caller knows the state of workers: rewritten reports whether the
// model file of a service has changed since its worker loaded it, and givenUp whether the
// service has failed permanently.
func Diff(old, next Config, rewritten, givenUp func(service string) bool) Reloaded {
	var c Reloaded
	for _, name := range old.Names() {
		if next.Service(name) == nil {
			c.Removed = append(c.Removed, name)
		}
	}
	// Devices are compared as they will be, without those that need a restart.
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

// settings returns the keys that belong neither to services nor to devices.
func settings(c *Config) (list []key) {
	c.keys(func(k key) {
		if !k.isTables() && !strings.Contains(k.name, "[") {
			list = append(list, k)
		}
	})
	return list
}

// changes reports whether anything but the devices of a service has changed, and whether
// that includes a key that its worker was started with. A changed tokenizer needs no worker,
// and changed pipelines need them only on new devices. Batch sizes need none either, because a worker accepts any; they only
// determine what it warms up.
func (s *Service) changes(next *Service) (any, worker bool) {
	if len(s.Variants) != len(next.Variants) {
		return true, true
	}
	old, now := *s, *next
	any = !reflect.DeepEqual(s.Planned, next.Planned) || (s.Text == nil) != (next.Text == nil) || s.Text != nil && s.Text.Hash != next.Text.Hash
	// Sizes may be set or follow from max_batch; what counts is the result.
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

// Applied returns the configuration that is in effect once next was applied as far as
// possible without a restart: services and settings of next, and everything else of old. A
// service can only use devices of the old pool. If it names none of these, it stays where
// it was, and a new service runs nowhere.
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

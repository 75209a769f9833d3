package daemon

import "time"

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

// Reloaded is what became of a reload. A service in Failed is one of Added or
// Replaced; of the latter the old model serves on.
type Reloaded struct {
	Changes
	Failed map[string]string `json:"failed,omitempty"` // why a service could not be loaded
	Took   time.Duration     `json:"took_ns"`
}

// States of a service in a ReloadStep, in this order. A service that is only
// removed or changed goes from none to StepDone.
const (
	StepLoading = "loading" // its new worker loads the model
	StepSwitch  = "switch"  // the new worker is ready and waits for its turn
	StepDone    = "done"    // it is as the configuration says
	StepFailed  = "failed"  // it is not; what served before serves on
)

// ReloadStep is progress of a reload.
type ReloadStep struct {
	Service string `json:"service"`
	State   string `json:"state"`
	Done    int64  `json:"done,omitempty"` // of Total, while loading; their unit is the worker's
	Total   int64  `json:"total,omitempty"`
}

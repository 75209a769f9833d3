package daemon

import (
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// Reloaded is what became of a reload. A service in Failed is one of Added or
// Replaced; of the latter the old model serves on.
type Reloaded struct {
	config.Changes
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

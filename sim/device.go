package sim

import (
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
)

// Device is what groups run on: a *device.Model, or another in tests. The spans
// of a group name models by their position in Models.
type Device interface {
	// Models lists the models that the device can run.
	Models() []device.ModelInfo

	// Latency returns how long a group takes in the middle of its runs.
	Latency(g models.Group) time.Duration

	// Sample returns how long one run of a group takes.
	Sample(g models.Group, r *rand.Rand) time.Duration

	// OperatorTimes returns what each operator of a model takes alone, in
	// nanoseconds, as device.OperatorTimes defines it.
	OperatorTimes(model, size, seqLen int) []int64
}

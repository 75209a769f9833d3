package sim

import (
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
)

// Device is what groups run on. The spans of a group name models by their
// position in Models.
type Device interface {
	// Models lists the models that the device can run.
	Models() []device.ModelInfo

	// Latency returns how long a group takes in the middle of its runs.
	Latency(g models.Group) time.Duration

	// Sample returns how long one run of a group takes.
	Sample(g models.Group, r *rand.Rand) time.Duration
}

// soloTimer is a device that keeps the solo times of its models from run to
// run.
type soloTimer interface {
	soloTimes(model, size, seqLen int) []int64
}

package demo

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// What is served: models of the device, with targets in the range of those of the
// Abacus paper, 50 to 150 ms.
var services = []struct {
	model   string
	target  time.Duration
	seqLens []int
}{
	{"resnet50", 50 * time.Millisecond, nil},
	{"inception_v3", 100 * time.Millisecond, nil},
	{"bert", 75 * time.Millisecond, []int{8, 16, 32, 64}},
}

// sizes are those of the batches that clients send, each as likely. They are merged up to the
// largest batch that the device knows.
var sizes = []int{2, 4, 8, 16}

const (
	// offeredQPS is what all are put under: somewhat less than what ours sustains.
	offeredQPS = 850
	maxBatch   = 32
	// mostViolations is of the queries, at the highest load that counts.
	mostViolations = 0.01
	// virtualTime is how long the load lasts in each run, unless somebody asks for longer: all runs
	// together take a second then. longestTime bounds what is asked for.
	virtualTime = 3 * time.Second
	longestTime = 10 * time.Minute

	ourPolicy = "overlap"
	// mergingPolicy batches as ours does, and runs one batch at a time: what ours gains over it is by
	// overlapping alone.
	mergingPolicy = "edf"
)

// span is operators of a batch of a service that ran.
type span struct {
	service    models.ServiceID
	start, end time.Duration
}

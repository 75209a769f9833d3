package daemon

import (
	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/executor"
)

// zooSeed is the seed of the weights of the zoo's models.
const zooSeed = 1

// Options is what a daemon needs besides its configuration.
type Options struct {
	Worker  []string // command line of a worker
	Check   []string // command line of a child that runs statefile.RunCheck, none to believe the state file
	Version string
	Commit  string
	Device  string       // in words, such as the processor's name
	Cores   int          // threads of a service that sets none
	Fit     loop.FitFunc // nil if no predictor is to be fitted
	Offline bool         // for Measure: there is no endpoint
	GPU     gpu.Options
	Log     zerolog.Logger

	workers   func(executor.Options) (loop.Workers, error) // nil for processes
	emulation func(*config.Config) (*emulation, error)     // nil for that of a profile
}

package config

import (
	"strings"
	"time"
)

// Service is one service. Its model is "zoo:NAME", the path of an ONNX file, or
// "emulated:NAME". It has a worker on each of the devices that it is on, on every one
// of the pool if it names none, and the threads of the other workers if it sets none.
type Service struct {
	Name          string        `toml:"name"`
	Model         string        `toml:"model" reload:"worker"`
	On            []string      `toml:"on" reload:"replicas"`
	Target        time.Duration `toml:"target" default:"100ms"`
	QueueLimit    int           `toml:"queue_limit" default:"256" min:"1" max:"1048576"`
	MaxBatch      int           `toml:"max_batch" default:"1" min:"1" max:"4096"`
	MaxQueryBatch int           `toml:"max_query_batch" default:"64" min:"1" max:"4096"`
	Threads       int           `toml:"threads" default:"0" min:"0" max:"1024" reload:"worker"`

	// Cut is how many operators the model is cut into: 0 for one per node, on a GPU
	// for what the worker chooses; -1 for one per node there, too.
	Cut        int   `toml:"cut" default:"0" min:"-1" max:"1048576" reload:"worker"`
	BestEffort bool  `toml:"best_effort"`
	Sizes      []int `toml:"sizes"`
	SeqLens    []int `toml:"seq_lens" default:"[16, 64]"`

	// MPS is what the service may take of a GPU that it shares.
	MPS struct {
		Percentage   int    `toml:"active_thread_percentage" default:"0" min:"0" max:"100" gpu:"only" reload:"worker"`
		PinnedMemory int64  `toml:"pinned_memory_limit" default:"0B" min:"1MiB" zero:"all" gpu:"only" reload:"worker"`
		Priority     string `toml:"client_priority" default:"normal" oneof:"normal,below_normal" gpu:"only" reload:"worker"`
	}
}

// DefaultService returns a service of which only the name and the model are
// missing.
func DefaultService() Service {
	var s Service
	setDefaults(&s)
	return s
}

// MeasuredSizes returns the batch sizes that are measured: those that are
// configured, or 1 and its doubles up to what is merged, and at least 4, for
// clients choose batches of their own, too.
func (s *Service) MeasuredSizes() []int {
	if len(s.Sizes) > 0 {
		return s.Sizes
	}
	const least = 4
	var sizes []int
	most := max(s.MaxBatch, min(least, s.MaxQueryBatch))
	for n := 1; n < most; n *= 2 {
		sizes = append(sizes, n)
	}
	return append(sizes, most)
}

// IsPath reports whether the model of a service is a file that somebody may
// replace, and neither of the zoo nor of an emulated device.
func IsPath(model string) bool {
	return !strings.HasPrefix(model, ZooPrefix) && !strings.HasPrefix(model, EmulatedPrefix)
}

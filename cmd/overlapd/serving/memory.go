package serving

import (
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments"
)

// What a daemon takes of its host's memory, apart from what the configuration bounds.
const (
	daemonMemory = 256 << 20

	// workerMemory is that of a process with ONNX Runtime, before it loads a model.
	workerMemory = 150 << 20

	// memoryStep is what a limit is rounded up to, so that small changes do not replace pods.
	memoryStep = 64 << 20
)

// HostMemory returns the most memory that the daemon of a configuration and its workers take
// of the host, where the files of all models are found. No worker counts on another to be
// loaded before it.
func HostMemory(c *config.Config, file func(model string) (string, error)) (bytes int64, err error) {
	bytes = daemonMemory + c.Limits.MemoryBytes
	// Expanded has a service for each variant, since each has a worker of its own.
	for _, s := range c.Expanded().Services {
		path, err := file(s.Model)
		if err != nil {
			return 0, err
		}
		f, err := models.Open(path)
		if err != nil {
			return 0, err
		}
		var weights int64
		for i := range f.Graph.Initializers {
			weights += f.Graph.Initializers[i].Bytes
		}
		loading := segments.LoadBytes(f)
		_ = f.Close() // it was read
		w := &c.Worker
		bytes += workerMemory + max(loading, weights+w.InputBytes+w.OutputBytes+w.IntermediateBytes)
	}
	return (bytes + memoryStep - 1) / memoryStep * memoryStep, nil
}

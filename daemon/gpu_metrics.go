package daemon

import (
	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
)

// gpuReadings returns the latest sample of a part, for metrics.
func gpuReadings(p *gpu.Part) func() []metrics.GPU {
	return func() []metrics.GPU { return gpuMetrics(p.Status()) }
}

func gpuMetrics(status gpu.Status) []metrics.GPU {
	s := status.Sample
	if s == nil {
		return nil
	}
	m := metrics.GPU{
		UUID: s.UUID, Utilization: -1, MemoryTotalBytes: -1, MemoryUsedBytes: -1,
		PowerWatts: orUnknown(s.Power), PowerLimitWatts: orUnknown(s.PowerLimit),
	}
	if s.Utilization.Known {
		m.Utilization = float64(s.Utilization.Value.GPU) / 100
	}
	if s.Memory.Known {
		m.MemoryTotalBytes, m.MemoryUsedBytes = int64(s.Memory.Value.Total), int64(s.Memory.Value.Used)
	}
	return []metrics.GPU{m}
}

func orUnknown(r cuda.Reading[float64]) float64 {
	if !r.Known {
		return -1
	}
	return r.Value
}

package metrics

// gpuFamilies are named as Triton names them. There are none without a GPU, and
// none of what a GPU cannot tell, such as the utilization of a MIG device.
var gpuFamilies = []family{
	ofGPU("nv_gpu_utilization", "Share of the driver's last sampling period in which a kernel ran, 0 to 1.",
		func(g *GPU) float64 { return g.Utilization }),
	ofGPU("nv_gpu_memory_total_bytes", "Memory of the GPU, in bytes.",
		func(g *GPU) float64 { return float64(g.MemoryTotalBytes) }),
	ofGPU("nv_gpu_memory_used_bytes", "Memory of the GPU that is in use, in bytes.",
		func(g *GPU) float64 { return float64(g.MemoryUsedBytes) }),
	ofGPU("nv_gpu_power_usage", "Power that the GPU draws, in watts; of a MIG device that of the whole GPU.",
		func(g *GPU) float64 { return g.PowerWatts }),
	ofGPU("nv_gpu_power_limit", "Power that the GPU may draw, in watts.",
		func(g *GPU) float64 { return g.PowerLimitWatts }),
}

// ofGPU is a gauge with a value for each GPU that can tell it. It has one label
// and no more: perf_analyzer looks for exactly that.
func ofGPU(name, help string, value func(*GPU) float64) family {
	return family{name: name, kind: gauge, help: help, labels: []string{"gpu_uuid"}, values: func(s *Snapshot, e *emitter) {
		for i := range s.GPUs {
			if v := value(&s.GPUs[i]); v >= 0 {
				e.value(v, s.GPUs[i].UUID)
			}
		}
	}}
}

package sim

import (
	"fmt"
	"testing"
)

// BenchmarkDevices serves what keeps many devices busy that run one batch at a time, by
// policies that decide quickly: it is what the simulator itself takes for a query.
func BenchmarkDevices(b *testing.B) {
	bench := func(services, devices int, dispatch, policy string) {
		b.Run(fmt.Sprintf("services=%d/devices=%d/%s/%s", services, devices, dispatch, policy), func(b *testing.B) {
			sc := Scenario{
				Arrivals: Arrivals{Process: Poisson, QPS: 1000 * float64(devices)}, Queries: max(b.N, 2), Seed: 1,
				Policy: policy, Devices: devices, Dispatch: dispatch, Device: linearDevice(b, "resnet50,0.268,5.172\n"),
			}
			for i := range services {
				sc.Services = append(sc.Services, Service{Name: fmt.Sprint(i), Model: "resnet50", Target: 400 * ms, MaxBatch: 64})
			}
			b.ReportAllocs()
			r := run(b, sc)
			b.ReportMetric(float64(sc.Queries)/b.Elapsed().Seconds(), "queries/s")
			b.ReportMetric(100*r.Violations, "%violated")
			b.ReportMetric(float64(sc.Queries)/float64(r.Batches), "queries/batch")
		})
	}
	for _, services := range []int{1, 37} {
		for _, devices := range []int{8, 64} {
			for _, dispatch := range []string{LeastLoaded, Pool} {
				bench(services, devices, dispatch, "edf")
				bench(services, devices, dispatch, "clockwork")
			}
		}
	}
}

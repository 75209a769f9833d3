package sim_test

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/lab/synthetic"
)

// A simulation runs the scheduler of the daemon on a modelled device, in virtual time.
func Example() {
	gpu, err := device.NewModel(synthetic.Device())
	if err != nil {
		panic(err)
	}
	for _, policy := range []string{"edf", "overlap"} {
		result, err := sim.Run(sim.Scenario{
			Services: []sim.Service{
				{Name: "image", Model: "resnet50", Target: 50 * time.Millisecond},
				{Name: "text", Model: "bert", Target: 80 * time.Millisecond, SeqLens: []int{64}},
			},
			Arrivals: sim.Arrivals{Process: sim.Poisson, QPS: 400}, Queries: 2000, Seed: 1,
			Policy: policy, Device: gpu, Predictor: synthetic.Predictor(),
		})
		if err != nil {
			panic(err)
		}
		for _, s := range result.Services {
			fmt.Printf("%s: %d of %d queries of %s in time, p99 %.0f ms\n", policy, s.Answered-s.Late, s.Queries, s.Name, s.LatencyMS.P99)
		}
	}
	// Output:
	// edf: 954 of 954 queries of image in time, p99 41 ms
	// edf: 1046 of 1046 queries of text in time, p99 70 ms
	// overlap: 954 of 954 queries of image in time, p99 6 ms
	// overlap: 1046 of 1046 queries of text in time, p99 23 ms
}

package sim_test

import (
	"github.com/overlapd/overlapd/lab/baselines"
	"github.com/overlapd/overlapd/lab/sim"
)

func init() {
	sim.Others.New = baselines.New
	for _, p := range baselines.Policies() {
		sim.Others.Policies = append(sim.Others.Policies, p.Name)
	}
}

package reproduce

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/sim"
)

// lane does one job after another. Devices belong to a lane, since one serves
// one run at a time.
type lane struct {
	devices map[*stock]sim.Device
}

func newLane() *lane { return &lane{devices: map[*stock]sim.Device{}} }

// device returns the lane's own device of a stock.
func (l *lane) device(s *stock) (sim.Device, error) {
	if d := l.devices[s]; d != nil {
		return d, nil
	}
	d, err := device.NewModel(s.profile)
	if err != nil {
		return nil, err
	}
	l.devices[s] = d
	return d, nil
}

// trial is one run.
type trial struct {
	stock    *stock
	deploy   *deployment
	variant  variant
	arrivals sim.Arrivals
	queries  int
	devices  int
	dispatch string
	seed     uint64
}

// poisson are arrivals of so many queries per second.
func poisson(qps float64) sim.Arrivals { return sim.Arrivals{Process: sim.Poisson, QPS: qps} }

// scenario is the trial as the simulator takes it. Groups are chosen while
// others run; to choose, send and await them takes no time beside what the
// authors measured of groups.
func (t *trial) scenario(d sim.Device) sim.Scenario {
	sc := sim.Scenario{
		Arrivals: t.arrivals, Queries: t.queries, Seed: t.seed,
		Policy: t.variant.policy, Knows: t.variant.knows, Plan: true,
		Device: d, Predictor: t.stock.files[t.variant.recipe], Devices: t.devices, Dispatch: t.dispatch,
	}
	for i, m := range t.deploy.models {
		s := sim.Service{Name: m, Target: t.deploy.targets[i], MaxBatch: min(t.variant.maxBatch, largest(d, m)), Sizes: t.deploy.sizes[i]}
		if m == sequenceModel {
			s.SeqLens = t.deploy.seqLens
		}
		sc.Services = append(sc.Services, s)
	}
	return sc
}

// largest is the largest measured batch of a model, 1 if the device does not
// know it.
func largest(d sim.Device, model string) int {
	for _, m := range d.Models() {
		if m.Name == model && len(m.Sizes) > 0 {
			return slices.Max(m.Sizes)
		}
	}
	return 1
}

// run serves the queries of a trial.
func (l *lane) run(t *trial) (*sim.Result, error) {
	d, err := l.device(t.stock)
	if err != nil {
		return nil, err
	}
	return sim.Run(t.scenario(d))
}

// twiceSolo are targets of two times what each model takes alone.
func (l *lane) twiceSolo(s *stock, models []string, size, seqLen int) ([]time.Duration, error) {
	d, err := l.device(s)
	if err != nil {
		return nil, err
	}
	targets := make([]time.Duration, len(models))
	for i, m := range models {
		targets[i] = 2 * solo(d, m, size, seqLen)
	}
	return targets, nil
}

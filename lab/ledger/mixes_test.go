package ledger

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/lab/synthetic"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// mix is a set of services on devices.
type mix struct {
	Name  string
	About string // a few words

	// Scenario returns the services and devices, without arrivals. Each call returns devices
	// of its own, so that scenarios can run at the same time.
	Scenario func() (sim.Scenario, error)
}

const ms = time.Millisecond

// mixesOf returns the mixes on the synthetic device, and those on an A100 if folder holds the
// devices and predictors that "overlapd-lab reproduce abacus" has fitted.
func mixesOf(folder string) ([]mix, error) {
	demo := []sim.Service{
		{Name: "resnet50", Target: 50 * ms, MaxBatch: 32, Sizes: []int{2, 4, 8, 16}},
		{Name: "inception_v3", Target: 100 * ms, MaxBatch: 32, Sizes: []int{2, 4, 8, 16}},
		{Name: "bert", Target: 75 * ms, MaxBatch: 32, Sizes: []int{2, 4, 8, 16}, SeqLens: []int{8, 16, 32, 64}},
	}
	five := []string{"resnet50", "resnet152", "inception_v3", "vgg19", "bert"}
	list := []mix{
		onSynthetic("demo", "the services of overlapd demo", given(demo...)),
		onSynthetic("demo, pool of 2", "the same on two devices", pooled(2, given(demo...))),
		onSynthetic("demo, pool of 8", "the same on eight devices", pooled(8, given(demo...))),
		onSynthetic("demo, unequal pool", "two devices, one half as fast, on which bert does not run", func(sc *sim.Scenario) error {
			if err := pooled(2, given(demo...))(sc); err != nil {
				return err
			}
			sc.Slow, sc.Services[2].On = []float64{1, 2}, []int{0}
			return nil
		}),
		onSynthetic("demo, slow rounds", "the same, where a round costs 0.5 ms", func(sc *sim.Scenario) error {
			sc.RoundTime = 500 * time.Microsecond
			return given(demo...)(sc)
		}),
		onSynthetic("pair", "resnet152 and vgg19", alike(3, 32, "resnet152", "vgg19")),
		onSynthetic("five", "five services", alike(3, 32, five...)),
		onSynthetic("five, no batching", "the same, each query by itself", alike(3, 1, five...)),
		onSynthetic("tight beside loose", "targets of 12, 100 and 200 ms", given(
			sim.Service{Name: "resnet50", Target: 12 * ms, MaxBatch: 16, Sizes: []int{1, 2, 4}},
			sim.Service{Name: "bert", Target: 100 * ms, MaxBatch: 16, Sizes: []int{1, 2, 4}, SeqLens: []int{8, 16, 32, 64}},
			sim.Service{Name: "resnet152", Target: 200 * ms, MaxBatch: 16, Sizes: []int{1, 2, 4}},
		)),
		onSynthetic("one service", "resnet50 alone, a target of 10 ms", given(sim.Service{Name: "resnet50", Target: 10 * ms, MaxBatch: 32, Sizes: []int{1}})),
		onSynthetic("priority", "resnet50 before vgg19", given(
			sim.Service{Name: "resnet50", Target: 50 * ms, MaxBatch: 8, Sizes: []int{1}, Priority: 1},
			sim.Service{Name: "vgg19", Target: 50 * ms, MaxBatch: 8, Sizes: []int{1}},
		)),
		onSynthetic("best effort", "resnet50 and bert, and vgg19 in what they leave", given(
			sim.Service{Name: "resnet50", Target: 50 * ms, MaxBatch: 8, Sizes: []int{1, 2, 4}, Share: 1},
			sim.Service{Name: "bert", Target: 75 * ms, MaxBatch: 8, Sizes: []int{1, 2, 4}, SeqLens: []int{8, 64}, Share: 1},
			sim.Service{Name: "vgg19", Target: 200 * ms, MaxBatch: 8, Sizes: []int{1}, BestEffort: true, Share: 0.2},
		)),
		onCores("two cores", "resnet50 and bert, targets of 300 ms", 2, sim.Service{Name: "resnet50", Target: 300 * ms, MaxBatch: 4}, sim.Service{Name: "bert", Target: 300 * ms, MaxBatch: 4}),
		onCores("two cores, tight", "bert's target is 70 ms, resnet50's a second", 2, sim.Service{Name: "resnet50", Target: 1000 * ms}, sim.Service{Name: "bert", Target: 70 * ms, Share: 2}),
		onCores("eight cores, tight", "resnet50 within 25 ms, beside others", 8, sim.Service{Name: "resnet50", Target: 25 * ms}, sim.Service{Name: "bert", Target: 150 * ms}, sim.Service{Name: "inception", Target: 400 * ms}),
	}
	if folder == "" {
		return list, nil
	}
	a100, err := readFitted(folder)
	if err != nil {
		return nil, err
	}
	four := []string{"resnet101", "resnet152", "vgg19", "bert"}
	return append(list,
		a100.mix("A100: ResNets", "resnet50 and resnet101", alike(3, 32, "resnet50", "resnet101")),
		a100.mix("A100: with bert", "resnet101 and bert", alike(3, 32, "resnet101", "bert")),
		a100.mix("A100: inception", "resnet152 and inception_v3", alike(3, 32, "resnet152", "inception_v3")),
		a100.mix("A100: VGGs", "vgg16 and vgg19", alike(2.5, 32, "vgg16", "vgg19")),
		a100.mix("A100: no batching", "resnet50 and resnet101, each query by itself", alike(3, 1, "resnet50", "resnet101")),
		a100.mix("A100: four", "four services", alike(3, 32, four...)),
		a100.mix("A100: four, no batching", "the same, each query by itself", alike(3, 1, four...)),
	), nil
}

// change completes a scenario whose device is known.
type change func(*sim.Scenario) error

func onSynthetic(name, about string, complete change) mix {
	return mix{name, about, func() (sc sim.Scenario, err error) {
		if sc.Device, err = device.NewModel(synthetic.Device()); err != nil {
			return sc, err
		}
		sc.Predictor = synthetic.Predictor()
		return sc, complete(&sc)
	}}
}

// onCores serves on a CPU, whose models take so long on one core as those of docs/benchmarks/cpu.md.
func onCores(name, about string, cores int, services ...sim.Service) mix {
	return mix{name, about, func() (sc sim.Scenario, err error) {
		p, err := device.Linear("core", "resnet50,58,2\nbert,41,4\ninception,90,4\n")
		if err != nil {
			return sc, err
		}
		one, err := device.NewModel(p)
		sc.Device = &sim.Cores{Device: one, Units: cores, Serial: 0.1, Contention: 0.05}
		sc.Services = slices.Clone(services)
		return sc, err
	}}
}

// fitted is a device that was fitted to measurements.
type fitted struct {
	profile   *device.Profile
	predictor *predictor.File
}

func readFitted(folder string) (f fitted, err error) {
	const name = "pairs-serving-clock"
	only := func(pattern string) (string, error) {
		list, err := filepath.Glob(filepath.Join(folder, pattern))
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("%s has no file %s; make it with overlapd-lab reproduce abacus --data DIR --out OUT --figures 14 and give OUT/fitted", folder, pattern)
		}
		if err != nil {
			return "", err
		}
		return list[0], nil
	}
	path, err := only("device-" + name + "-*.device.json")
	if err != nil {
		return f, err
	}
	if f.profile, err = device.ReadFile(path); err != nil {
		return f, err
	}
	if path, err = only("predictor-" + name + "-overlapd-*.predictor.json"); err != nil {
		return f, err
	}
	f.predictor, err = predictor.ReadFile(path)
	return f, err
}

func (f *fitted) mix(name, about string, complete change) mix {
	return mix{name, about, func() (sc sim.Scenario, err error) {
		if sc.Device, err = device.NewModel(f.profile); err != nil {
			return sc, err
		}
		sc.Predictor = f.predictor
		return sc, complete(&sc)
	}}
}

// given sets services as they are.
func given(services ...sim.Service) change {
	return func(sc *sim.Scenario) error {
		sc.Services = slices.Clone(services)
		return nil
	}
}

// pooled serves on several devices, which one scheduler decides for.
func pooled(devices int, complete change) change {
	return func(sc *sim.Scenario) error {
		sc.Devices, sc.Dispatch = devices, sim.Pool
		return complete(sc)
	}
}

// alike sets services with all sizes and sequence lengths that the device was measured with,
// and one target: some times the isolated latency of the largest query.
func alike(times float64, maxBatch int, names ...string) change {
	return func(sc *sim.Scenario) error {
		known, longest := sc.Device.Models(), time.Duration(0)
		for _, name := range names {
			i := slices.IndexFunc(known, func(m device.ModelInfo) bool { return m.Name == name })
			if i < 0 {
				return fmt.Errorf("the device has no model %s", name)
			}
			m := &known[i]
			whole := models.Span{Service: models.ServiceID(i), End: m.Operators, Size: slices.Max(m.Sizes), SeqLen: slices.Max(m.SeqLens)}
			longest = max(longest, sc.Device.Latency(models.Group{Spans: []models.Span{whole}}))
			s := sim.Service{Name: name, MaxBatch: maxBatch, Sizes: m.Sizes}
			if m.SeqLens[0] > 0 {
				s.SeqLens = m.SeqLens
			}
			sc.Services = append(sc.Services, s)
		}
		for i := range sc.Services {
			sc.Services[i].Target = time.Duration(times * float64(longest))
		}
		return nil
	}
}

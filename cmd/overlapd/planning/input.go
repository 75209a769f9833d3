package planning

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/data"
	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/planning/selection"
	"github.com/overlapd/overlapd/training"
)

// unplanned reads a configuration without the plan that it names: a new one may take its
// place, and the file need not be there yet.
func unplanned(path string) (c config.Config, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		c, err = config.Parse(path, data)
	}
	return c, err
}

// pooled reads a configuration with several devices.
func pooled(path string) (c config.Config, err error) {
	if c, err = unplanned(path); err == nil && len(c.Devices) == 0 {
		err = fmt.Errorf("%s has one device, which runs everything: a plan needs several [[device]] tables", path)
	}
	return c, err
}

// configured returns the services and the pool of a configuration as planning sees them,
// each device with so many MiB, and with the times that the profile of an emulated device
// has, or that a daemon has measured.
func configured(path string, memory float64) (services []planning.Service, devices []planning.Device, err error) {
	c, err := pooled(path)
	if err != nil {
		return nil, nil, err
	}
	// Of CPUs the cores are the only difference that is known. GPUs of a pool count as equal.
	first, cores := &c.Devices[0], len(c.Devices[0].CPUs())
	for _, d := range c.Devices {
		to := planning.Device{Name: d.Name, Memory: memory, Speed: 1}
		if own := len(d.CPUs()); cores > 0 && own > 0 {
			to.Speed = float64(own) / float64(cores)
		}
		devices = append(devices, to)
	}
	// Expanded has a service for each variant, in order.
	run := c.Expanded()
	// A profile has the times of each device. Measurements are of this host, whose devices are told apart
	// by their cores only.
	var times [][]soloTime
	if c.Emulated() {
		times, err = emulatedTimes(&run, devices)
	} else {
		times, err = measuredTimes(&run)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, s := range c.Services {
		to := planning.Service{Name: s.Name, Model: strings.Join(s.Models(), ", "), Target: float64(s.Target) / float64(time.Millisecond), MaxBatch: s.MaxBatch}
		// Its variants are loaded together, and the fastest sustains the load.
		for range s.Models() {
			alpha, beta := fitLine(times[0])
			if times = times[1:]; to.Alpha == 0 || alpha > 0 && alpha+beta < to.Alpha+to.Beta {
				to.Alpha, to.Beta = alpha, beta
			}
		}
		// No plan helps a target that the device misses without any load.
		if to.Alpha > 0 && to.Alpha+to.Beta > to.Target {
			return nil, nil, fmt.Errorf("service %s: one request alone takes %s ms on device %q, and its target is %v: raise the target", s.Name, stats.Digits(3, to.Alpha+to.Beta), first.Name, s.Target)
		}
		services = append(services, to)
	}
	return services, devices, nil
}

// emulatedTimes returns what each service takes on the first device, by its profile, and
// makes the speed of each device how much faster it is for all of them.
func emulatedTimes(c *config.Config, devices []planning.Device) (times [][]soloTime, err error) {
	whole := 0.0
	for d, device := range c.Pool() {
		of, err := profileTimes(c, device.Profile)
		if err != nil {
			return nil, err
		}
		// One batch of the smallest size of each service is the measure, for all devices the same.
		sum := 0.0
		for _, list := range of {
			sum += list[0].ms
		}
		if times == nil {
			times, whole = of, sum
		}
		devices[d].Speed = whole / sum
	}
	return times, nil
}

// measuredTimes returns what each service takes by the state file.
func measuredTimes(c *config.Config) (times [][]soloTime, err error) {
	err = data.ReadState(c.StateDir, func(s *daemon.State) (err error) {
		times, err = storedTimes(s.Datasets(), c.Names())
		return err
	})
	return times, err
}

// storedTimes returns what services take on the device of which most of them are stored,
// nothing of those that were never measured there.
func storedTimes(store *training.Store, services []string) (times [][]soloTime, err error) {
	sets, err := store.List()
	known := map[string][]training.Model{}
	for _, set := range sets {
		for _, m := range set.Models {
			if slices.Contains(services, m.Name) && !slices.Contains(known[set.Device], m) {
				known[set.Device] = append(known[set.Device], m)
			}
		}
	}
	times = make([][]soloTime, len(services))
	most := 0
	// Sorted, so that of devices that know equally many the same one is taken each time.
	for _, device := range slices.Sorted(maps.Keys(known)) {
		operators, oerr := store.Operators(device, known[device])
		if err = errors.Join(err, oerr); len(operators) <= most {
			continue
		}
		// What is stored of other devices is of models that run elsewhere.
		most = len(operators)
		for i, name := range services {
			times[i] = nil
			for _, o := range operators[name] {
				sum := 0.0
				for _, micros := range o.Micros {
					sum += micros / 1000
				}
				times[i] = append(times[i], soloTime{o.Size, o.SeqLen, sum})
			}
		}
	}
	return times, err
}

// fitLine returns α and β of the line α·size + β through times of the longest sequences
// with the least squares, 0 of none. No α is below 0, nor β: where times fall or rise
// faster than sizes, they are a line through their mean, or through 0.
func fitLine(times []soloTime) (alpha, beta float64) {
	if len(times) == 0 {
		return 0, 0
	}
	longest := longestSequence(times)
	n, x, y, xx, xy := 0.0, 0.0, 0.0, 0.0, 0.0
	for _, t := range times {
		if size := float64(t.size); t.seqLen == longest {
			n, x, y, xx, xy = n+1, x+size, y+t.ms, xx+size*size, xy+size*t.ms
		}
	}
	if spread := n*xx - x*x; spread > 0 {
		alpha = (n*xy - x*y) / spread
	}
	// Planners divide by α, and with a negative β small batches would take less than no time.
	if beta = (y - alpha*x) / n; alpha <= 0 && n > 1 {
		const flat = 1e-6 // of the time, for a batch costs something
		return flat * y / n, y / n
	} else if alpha <= 0 || beta < 0 {
		return math.Max(xy/xx, 0), 0
	}
	return alpha, beta
}

// soloTime is what a batch of a service takes alone.
type soloTime struct {
	size, seqLen int
	ms           float64
}

// openProfile returns the device that a profile describes, as the emulated device and simulations read it.
func openProfile(path string) (*device.Model, error) {
	profile, err := device.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := device.NewModel(profile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// modelOf returns the position of a service's model on the device of a profile.
func modelOf(m *device.Model, path string, s *config.Service) (at int, err error) {
	if at = m.Index(strings.TrimPrefix(s.Model, config.EmulatedPrefix)); at < 0 {
		err = fmt.Errorf("%s does not know %q; name a model that it has (overlapd-lab device show)", path, s.Model)
	}
	return at, err
}

// profileTimes returns what each service takes alone on the device of a profile, with the longest
// sequences that it has.
func profileTimes(c *config.Config, path string) (times [][]soloTime, err error) {
	m, err := openProfile(path)
	if err != nil {
		return nil, err
	}
	for i := range c.Services {
		at, err := modelOf(m, path, &c.Services[i])
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", c.Services[i].Name, err)
		}
		// Sizes that the device does not have are interpolated by those who need them.
		info, list := m.Models()[at], []soloTime(nil)
		seqLen := slices.Max(info.SeqLens)
		for _, size := range info.Sizes {
			took := m.Latency(models.Group{Spans: []models.Span{{Service: models.ServiceID(at), End: info.Operators, Size: size, SeqLen: seqLen}}})
			list = append(list, soloTime{size, seqLen, float64(took) / float64(time.Millisecond)})
		}
		times = append(times, list)
	}
	return times, nil
}

// longestSequence returns the longest that was measured. Plans count on it, since no one says how long
// sequences will be.
func longestSequence(times []soloTime) int {
	return slices.MaxFunc(times, func(a, b soloTime) int { return cmp.Compare(a.seqLen, b.seqLen) }).seqLen
}

// latencies returns what the longest sequences take, by batch.
func latencies(times []soloTime, maxBatch int) []float64 {
	longest := longestSequence(times)
	known := map[int]float64{}
	for _, t := range times {
		if t.seqLen == longest {
			known[t.size] = t.ms
		}
	}
	return selection.Interpolate(known, maxBatch, longestQueue)
}

// selectable returns a worker with the variants of a service of a configuration, with the
// times that the profile of an emulated device has, or that a daemon has measured here. Of
// sequences the longest count.
func selectable(path, service string) (w selection.Worker, err error) {
	c, err := config.Load(path)
	if err != nil {
		return w, err
	}
	if s := c.Service(service); s == nil || len(s.Variants) == 0 {
		return w, fmt.Errorf("%s has no service %q with variants; name one that has", path, service)
	}
	// A policy is for equal workers, so the first device of the service stands for all.
	first := c.Pool()[c.On(service)[0]]
	run := c.Expanded()
	run.Services = slices.DeleteFunc(run.Services, func(s config.Service) bool { of, _ := s.Of(); return of != service })
	var times [][]soloTime
	if c.Emulated() {
		if w, err = daemon.Selectable(c, service, serving.OfflineOptions(&c)); err == nil {
			times, err = profileTimes(&run, first.Profile)
		}
	} else {
		err = data.ReadState(c.StateDir, func(s *daemon.State) error {
			if w, err = daemon.Selectable(c, service, serving.OfflineOptions(&c)); err == nil {
				times, err = solosOf(s, &w)
			}
			return err
		})
	}
	// Variants are in the order of the expanded services.
	for i := range times {
		w.Variants[i].Latency = latencies(times[i], run.Services[i].MaxBatch)
	}
	return w, err
}

// solosOf returns what a daemon has measured of the variants of a worker.
func solosOf(state *daemon.State, w *selection.Worker) (times [][]soloTime, err error) {
	for _, v := range w.Variants {
		known, err := state.SoloTimesOf(w.Device, v.Hash)
		if err != nil {
			return nil, err
		}
		var list []soloTime
		for _, cell := range known.Cells {
			sum := 0.0
			for _, nanos := range cell.Nanos {
				sum += nanos
			}
			list = append(list, soloTime{cell.Size, cell.SeqLen, sum / float64(time.Millisecond)})
		}
		// A policy with a guess for one variant would choose it always, or never.
		if len(list) == 0 {
			// The threads are part of what the hash stands for, and the usual reason.
			_, share, _ := strings.Cut(v.Hash, "/")
			return nil, fmt.Errorf("variant %s was never measured on %s with %s; run the daemon, which measures it at its start and stores the result when it stops, or give --profile", v.Name, w.Device, share)
		}
		times = append(times, list)
	}
	return times, nil
}

package planning

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/data"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/training"
)

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

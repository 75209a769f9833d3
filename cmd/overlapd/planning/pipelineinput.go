package planning

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/data"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/planning/selection"
	"github.com/overlapd/overlapd/predictor"
)

// plannedBlocks is how many blocks the operators of a model are grouped into (PPipe,
// section 5.2).
const plannedBlocks = 10

// timesOf is microseconds of each operator of a model, by size of batch.
type timesOf map[int][]float64

// pipelineInput makes services and devices of a configuration, as planning sees them.
type pipelineInput struct {
	options *pipelineOptions
	config  config.Config
	// state is what daemons have measured, by what it holds for: device, model, ONNX Runtime, operators
	// and threads.
	state   map[string]predictor.Snapshot
	devices []planning.Device
}

// configured returns the services of the configuration that get pipelines, its devices, and
// the services that get none: those of best effort, and those with variants.
func (o *pipelineOptions) configured() (services []planning.Service, devices []planning.Device, others []planning.Service, err error) {
	c, err := pooled(o.config)
	if err != nil {
		return nil, nil, nil, err
	}
	in := &pipelineInput{options: o, config: c}
	if err := in.readDevices(); err != nil {
		return nil, nil, nil, err
	}
	for i := range in.config.Services {
		s := &in.config.Services[i]
		to := planning.Service{Name: s.Name, Model: strings.Join(s.Models(), ", "), MaxBatch: s.MaxBatch, Target: float64(s.Target) / float64(time.Millisecond)}
		// What a batch takes is said by its blocks, but a service needs some time to be read with others.
		to.Alpha = 1e-9
		switch {
		case len(s.On) > 0:
			return nil, nil, nil, fmt.Errorf("service %s has on, but a pipeline plan assigns its devices: leave on out", s.Name)
		case s.BestEffort || len(s.Variants) > 0:
			for _, d := range in.devices {
				to.Devices = append(to.Devices, d.Name)
			}
			others = append(others, to)
		default:
			if err := in.measure(s, &to); err != nil {
				return nil, nil, nil, fmt.Errorf("service %s: %w", s.Name, err)
			}
			services = append(services, to)
		}
	}
	if services, _, err = planning.ReadServices(o.data, "", services); err != nil {
		return nil, nil, nil, err
	}
	return services, in.devices, others, nil
}

// readDevices sets the devices, of one class where they are of one kind, and what was
// measured on them.
func (in *pipelineInput) readDevices() (err error) {
	// A daemon finds out how much memory a GPU has only when it starts.
	memory := map[string]float64{}
	if in.options.devices != "" {
		given, err := parseDevices(in.options.devices, manyMiB)
		if err != nil {
			return err
		}
		for _, d := range given {
			if memory[d.Name] = d.Memory; !slices.ContainsFunc(in.config.Devices, func(c config.Device) bool { return c.Name == d.Name }) {
				return fmt.Errorf("--devices: the configuration has no device %s; name one that it has", d.Name)
			}
		}
	}
	for i, d := range in.config.Pool() {
		in.devices = append(in.devices, planning.Device{Name: d.Name, Class: in.class(i), Memory: cmp.Or(memory[d.Name], manyMiB), Speed: 1})
	}
	if in.config.Emulated() {
		return nil
	}
	return data.ReadState(in.config.StateDir, func(s *daemon.State) error {
		in.state, err = s.SoloTimes()
		return err
	})
}

// class names what a device is: of devices of one class everything takes equally long.
func (in *pipelineInput) class(i int) string {
	d := in.config.Pool()[i]
	switch d.Kind {
	case config.DeviceEmulated:
		return strings.TrimSuffix(filepath.Base(d.Profile), ".device.json")
	case config.DeviceCUDA:
		return strings.TrimSpace("GPU " + d.GPU + " " + d.MIG)
	}
	return report.Count(in.cores(i), "core")
}

// cores returns how many cores a device of the CPU has, by default all of this host.
func (in *pipelineInput) cores(i int) int {
	return cmp.Or(len(in.config.Pool()[i].CPUs()), runtime.NumCPU())
}

// measure fills in what is known of the operators of a service's model on each class.
func (in *pipelineInput) measure(s *config.Service, to *planning.Service) error {
	live, err := in.inspect(s, to)
	if err != nil {
		return err
	}
	// The blocks are those of the first class, by its smallest batch. On other classes the same blocks may
	// be of unequal lengths, but a stage must end at the same operator everywhere.
	b := &to.Blocks
	b.Margin, b.Times = in.options.margin, map[string][][][]float64{}
	for i, d := range in.devices {
		// Devices of a class have the same times.
		if b.Times[d.Class] != nil {
			continue
		}
		times, err := in.times(i, s, to)
		if err != nil {
			return err
		}
		if b.Ends == nil {
			smallest := slices.Min(slices.Collect(maps.Keys(times)))
			to.Operators = len(times[smallest])
			b.Ends = planning.Group(times[smallest], plannedBlocks)
		}
		if b.Times[d.Class] = [][][]float64{inBlocks(times, b.Ends, s.MaxBatch)}; len(times) == 0 {
			return fmt.Errorf("it has no measurements on device %s", d.Name)
		}
	}
	// Where it was measured it may have been cut otherwise, and then no time is of an operator here.
	if len(live) != to.Operators {
		return fmt.Errorf("its model has %d operators here, but was measured with %d: set cut, and measure it again", len(live), to.Operators)
	}
	const bits = 8 // of a byte that moves
	for _, end := range b.Ends {
		b.Moves = append(b.Moves, float64(live[end-1])*bits/(in.options.bandwidth*1e3)) // Gbit/s are 1000 bits a microsecond
	}
	return nil
}

// inBlocks returns what blocks take for each size of batch, up to the largest that was
// measured and that is merged.
func inBlocks(times timesOf, ends []int, most int) (batches [][]float64) {
	// Sizes in between are interpolated, as the daemon merges to any size up to the largest.
	from := 0
	for n, end := range ends {
		sums := map[int]float64{}
		for size, micros := range times {
			for _, v := range micros[from:end] {
				sums[size] += v
			}
		}
		for i, v := range selection.Interpolate(sums, max(most, 1), 0) {
			if n == 0 {
				batches = append(batches, nil)
			}
			batches[i] = append(batches[i], v)
		}
		from = end
	}
	return batches
}

// inspect returns the bytes that are alive behind each operator for one query, and notes
// the hash of the model.
func (in *pipelineInput) inspect(s *config.Service, to *planning.Service) (live []int64, err error) {
	// An emulated model has no values, so what moves is what the flag says.
	if in.config.Emulated() {
		m, at, err := in.emulated(0, s)
		if err == nil {
			live = slices.Repeat([]int64{in.options.liveBytes}, m.Models()[at].Operators)
		}
		return live, err
	}
	path, err := cli.ModelPath(s.Model)
	if err != nil {
		return nil, err
	}
	to.Hash, live, err = data.LiveBytes(path, s.Cut, s.OpLibraries)
	return live, err
}

// emulated returns the device that the i-th one is made after, and the position of a
// service's model there.
func (in *pipelineInput) emulated(i int, s *config.Service) (m *device.Model, at int, err error) {
	path := in.config.Pool()[i].Profile
	if m, err = openProfile(path); err == nil {
		at, err = modelOf(m, path, s)
	}
	return m, at, err
}

// times returns what the operators of a service's model take on the i-th device alone, with
// the longest sequences that are known.
func (in *pipelineInput) times(i int, s *config.Service, to *planning.Service) (times timesOf, err error) {
	times = timesOf{}
	if in.config.Emulated() {
		m, at, err := in.emulated(i, s)
		if err != nil {
			return nil, err
		}
		info := m.Models()[at]
		for _, size := range info.Sizes {
			times[size] = inMicros(m.OperatorTimes(models.Span{Service: models.ServiceID(at), End: info.Operators, Size: size, SeqLen: slices.Max(info.SeqLens)}))
		}
		return times, nil
	}
	found, err := in.measured(i, s, to.Hash)
	longest := 0
	for _, cell := range found.Cells {
		longest = max(longest, cell.SeqLen)
	}
	for _, cell := range found.Cells {
		if cell.SeqLen == longest {
			times[cell.Size] = inMicros(cell.Nanos)
		}
	}
	return times, err
}

// inMicros turns nanoseconds into microseconds.
func inMicros[N int64 | float64](nanos []N) (list []float64) {
	for _, n := range nanos {
		list = append(list, float64(n)/1000)
	}
	return list
}

// measured returns what a daemon measured of a model on a device like the i-th one.
func (in *pipelineInput) measured(i int, s *config.Service, hash string) (found predictor.Snapshot, err error) {
	d := in.config.Pool()[i]
	share := fmt.Sprintf("%d threads", cmp.Or(s.Threads, in.config.Worker.Threads, in.cores(i)))
	cpu, on := cli.CPU(), ""
	for _, key := range slices.Sorted(maps.Keys(in.state)) {
		// Another version of ONNX Runtime cuts otherwise, which the number of operators shows.
		part := strings.Split(key, "|")
		const parts = 5
		if len(part) != parts || part[1] != hash || part[4] != share && !strings.HasPrefix(part[4], share+",") || len(in.state[key].Cells) == 0 {
			continue
		}
		gpu := !strings.HasPrefix(part[0], cli.CPU())
		if gpu != (d.Kind == config.DeviceCUDA) || !gpu && part[0] != cpu || gpu && strings.Contains(part[0], "MIG") != (d.MIG != "") || !strings.Contains(part[0], d.MIG) {
			continue
		}
		// A state that was carried from host to host may know two devices that fit. Guessing would give a
		// plan that misses its targets.
		if on != "" && on != part[0] {
			return found, fmt.Errorf("it was measured on %s and on %s, and device %s may be either: use another state folder for one of them", on, part[0], d.Name)
		}
		found, on = in.state[key], part[0]
	}
	if on == "" {
		return found, fmt.Errorf("it was never measured on a device like %s, with %s; run the daemon there, which measures it at its start and stores the result when it stops", d.Name, share)
	}
	return found, nil
}

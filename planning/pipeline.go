package planning

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/textfile"
)

// Pipeline is a way of the batches of a service over several devices, one after the other
// (PPipe, section 3).
type Pipeline struct {
	Batch   int     `json:"batch"`      // the size that it was planned for, which none exceeds
	Rate    float64 `json:"rate"`       // requests a second that it answers
	Latency float64 `json:"latency_ms"` // of a full batch: until it is full, in stages and on links
	Stages  []Stage `json:"stages"`
}

// Stage is the operators [Start, End) of a pipeline, with the devices of one class that
// run them.
type Stage struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Class string `json:"class,omitempty"`

	// Devices are names. Where Share is above 1, each device is divided into so many equal
	// parts, and named once for each part that the stage has. The other parts are those of
	// stages at the same place in other pipelines of the service, or of none. A device that
	// is not divided may have stages of several pipelines, which then share its time.
	Devices []string `json:"devices"`
	Share   int      `json:"share"`

	Time float64 `json:"time_ms"`           // of a full batch, on one part of a device
	Move float64 `json:"move_us,omitempty"` // that each query adds to the time until a batch is at the next stage
}

// Limits of pipelines, of plans that are made and of those that are read.
const (
	maxStages    = 8
	maxShare     = 16
	maxPipelines = 4096 // of a service
	maxOperators = 1_000_000
)

// pool is where the parts of a device are: at one place of the pipelines of a service.
type pool struct {
	service, place, share int
}

// pipelineFaults returns what contradicts itself in the pipelines of a plan.
func (p *Placement) pipelineFaults() (faults []error) {
	fault := func(format string, args ...any) {
		if len(faults) <= textfile.MaxFaults {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	devices := map[string]*Device{}
	for d := range p.Devices {
		devices[p.Devices[d].Name] = &p.Devices[d]
	}
	pools, used := map[string]pool{}, map[string]int{}
	for i, s := range p.Services {
		if len(s.Pipelines) > 0 && p.Kind != kindPipeline || len(s.Pipelines) > maxPipelines {
			fault("service %.40q has %d pipelines in a plan of the kind %.40q", s.Name, len(s.Pipelines), p.Kind)
		}
		var all []string
		for n, way := range s.Pipelines {
			if err := way.check(s.Operators); err != nil {
				fault("service %.40q, pipeline %d: %w", s.Name, n+1, err)
			}
			for at, stage := range way.Stages {
				here, inStage := pool{i, at, stage.Share}, map[string]int{}
				for _, name := range stage.Devices {
					device, known := devices[name]
					before, taken := pools[name]
					inStage[name]++
					used[name]++
					switch {
					case !known || device.Class != stage.Class:
						fault("service %.40q, pipeline %d, stage %d: device %.40q is not there, or of another class", s.Name, n+1, at+1, name)
					case inStage[name] > stage.Share || stage.Share > 1 && used[name] > stage.Share:
						fault("service %.40q, pipeline %d, stage %d: device %.40q has fewer parts than are used", s.Name, n+1, at+1, name)
					case taken && before != here && max(before.share, stage.Share) > 1:
						fault("service %.40q, pipeline %d, stage %d: device %.40q is divided, and has parts of other stages", s.Name, n+1, at+1, name)
					}
					pools[name] = here
				}
				all = append(all, stage.Devices...)
			}
		}
		on := slices.Sorted(slices.Values(s.Devices))
		if slices.Sort(all); len(s.Pipelines) > 0 && !slices.Equal(slices.Compact(all), on) {
			fault("service %.40q runs on other devices than those of its pipelines", s.Name)
		}
	}
	return faults
}

// check returns why a pipeline is none of a model with so many operators.
func (w *Pipeline) check(operators int) error {
	if w.Batch < 1 || w.Batch > maxBatch || wrong(w.Rate) || wrong(w.Latency) || len(w.Stages) < 1 || len(w.Stages) > maxStages {
		return fmt.Errorf("a batch of %d, a rate of %v, a latency of %v ms and %d stages: they must be numbers from 0, with 1 to %d in a batch and 1 to %d stages",
			w.Batch, w.Rate, w.Latency, len(w.Stages), maxBatch, maxStages)
	}
	end := 0
	for i, s := range w.Stages {
		last := i == len(w.Stages)-1
		switch {
		case s.Start != end || s.End <= s.Start || last && s.End != operators || operators > maxOperators:
			return fmt.Errorf("stage %d has the operators from %d to %d; stages must divide all %d, none of them empty", i+1, s.Start, s.End, operators)
		case s.Share < 1 || s.Share > maxShare || len(s.Devices) == 0:
			return fmt.Errorf("stage %d has %d devices in %d parts each; give devices, and 1 to %d parts", i+1, len(s.Devices), s.Share, maxShare)
		case wrong(s.Time) || wrong(s.Move) || last && s.Move != 0:
			return fmt.Errorf("stage %d takes %v ms, and %v us to the next; they must be numbers from 0, and nothing comes after the last", i+1, s.Time, s.Move)
		}
		end = s.End
	}
	return nil
}

// errRoutes is wrapped by errors of pipelines that are not for the model or devices there.
var errRoutes = errors.New("the pipelines of the plan are for another model or other devices")

// Routes returns the pipelines of a service as the scheduler takes them, for a pool of
// devices with these names, in its order, and the model that is loaded. It returns an error
// if they are for another model, for one that was cut into other operators, for devices
// that are not there, or for parts of devices, which a daemon does not make.
func (s *Service) Routes(devices []string, hash string, operators int) (routes []models.Pipeline, err error) {
	var faults []error
	if s.Hash != "" && hash != "" && s.Hash != hash {
		faults = append(faults, fmt.Errorf("service %s was planned with the model %.12s, and %.12s is loaded", s.Name, s.Hash, hash))
	}
	if s.Operators != operators {
		faults = append(faults, fmt.Errorf("service %s was planned with %d operators, and its model has %d", s.Name, s.Operators, operators))
	}
	for _, way := range s.Pipelines {
		route := models.Pipeline{Batch: way.Batch}
		for _, stage := range way.Stages {
			to := models.Stage{End: stage.End, Move: time.Duration(stage.Move * float64(time.Microsecond))}
			for _, name := range stage.Devices {
				at := slices.Index(devices, name)
				if at < 0 {
					faults = append(faults, fmt.Errorf("service %s is to run on device %s, which is not there", s.Name, name))
				}
				to.Devices = append(to.Devices, at)
			}
			if stage.Share > 1 {
				faults = append(faults, fmt.Errorf("service %s is to run on parts of devices, which nothing divides; give no more than whole ones", s.Name))
			}
			route.Stages = append(route.Stages, to)
		}
		routes = append(routes, route)
	}
	if err := listFaults(errRoutes, faults); err != nil {
		return nil, fmt.Errorf("%w; %s", err, pipeRemedy)
	}
	return routes, nil
}

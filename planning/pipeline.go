package planning

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
)

// Pipeline is a route of a service's batches over several devices, one after another (PPipe,
// section 3).
type Pipeline struct {
	// Batch is the planned size of a batch, which none exceeds.
	Batch int `json:"batch"`

	// Rate is in requests a second.
	Rate float64 `json:"rate"`

	// Latency is that of a full batch: while it fills, in stages and on links.
	Latency float64 `json:"latency_ms"`
	Stages  []Stage `json:"stages"`
}

// Stage is the operators [Start, End) of a pipeline, with the devices of one class that run them.
type Stage struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Class string `json:"class,omitempty"`

	// Devices are names. If Share exceeds 1, each device is divided into that many equal parts, and
	// named once for each part that the stage has. The other parts are idle or belong to stages at
	// the same place in other pipelines of the service. An undivided device may run stages of
	// several pipelines, which then share its time.
	Devices []string `json:"devices"`
	Share   int      `json:"share"`

	// Time is that of a full batch, on one part of a device.
	Time float64 `json:"time_ms"`

	// Move is the time that each query adds to the transfer of a batch to the next stage.
	Move float64 `json:"move_us,omitempty"`
}

// Limits of pipelines, both of plans that are made and of plans that are read. maxPipelines is for
// each service.
const (
	maxStages    = 8
	maxShare     = 16
	maxPipelines = 4096
	maxOperators = 1_000_000
)

// pool identifies what shares a divided device: the stages at one place of a service's pipelines,
// with the same share.
type pool struct {
	service, place, share int
}

// pipelineFaults returns the contradictions in the pipelines of a plan.
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
			fault("service %.40q has %d pipelines, too many or in a plan of the wrong kind, %.40q", s.Name, len(s.Pipelines), p.Kind)
		}
		var all []string
		for n, way := range s.Pipelines {
			if err := way.check(s.Operators); err != nil {
				fault("service %.40q, pipeline %d: %w", s.Name, n+1, err)
			}
			for at, stage := range way.Stages {
				// A divided device belongs to one pool, and its parts to the stages of that pool.
				here, inStage := pool{i, at, stage.Share}, map[string]int{}
				for _, name := range stage.Devices {
					device, known := devices[name]
					before, taken := pools[name]
					inStage[name]++
					used[name]++
					switch {
					case !known || device.Class != stage.Class:
						fault("service %.40q, pipeline %d, stage %d: device %.40q does not exist or is of another class", s.Name, n+1, at+1, name)
					case inStage[name] > stage.Share || stage.Share > 1 && used[name] > stage.Share:
						fault("service %.40q, pipeline %d, stage %d: device %.40q has fewer parts than are used", s.Name, n+1, at+1, name)
					case taken && before != here && max(before.share, stage.Share) > 1:
						fault("service %.40q, pipeline %d, stage %d: device %.40q is divided but also runs other stages", s.Name, n+1, at+1, name)
					}
					pools[name] = here
				}
				all = append(all, stage.Devices...)
			}
		}
		// The devices of a service are the union of those of its pipelines.
		on := slices.Sorted(slices.Values(s.Devices))
		if slices.Sort(all); len(s.Pipelines) > 0 && !slices.Equal(slices.Compact(all), on) {
			fault("service %.40q does not run on exactly the devices of its pipelines", s.Name)
		}
	}
	return faults
}

// check returns an error if the pipeline is invalid for a model with that number of operators.
func (w *Pipeline) check(operators int) error {
	if w.Batch < 1 || w.Batch > maxBatch || wrong(w.Rate) || wrong(w.Latency) || len(w.Stages) < 1 || len(w.Stages) > maxStages {
		return fmt.Errorf("batch of %d, rate of %v, latency of %v ms and %d stages; give numbers from 0, batches of 1 to %d and 1 to %d stages",
			w.Batch, w.Rate, w.Latency, len(w.Stages), maxBatch, maxStages)
	}
	end := 0
	for i, s := range w.Stages {
		last := i == len(w.Stages)-1
		switch {
		case s.Start != end || s.End <= s.Start || last && s.End != operators || operators > maxOperators:
			return fmt.Errorf("stage %d has the operators from %d to %d; divide all %d among stages, none of them empty", i+1, s.Start, s.End, operators)
		case s.Share < 1 || s.Share > maxShare || len(s.Devices) == 0:
			return fmt.Errorf("stage %d has %d devices in %d parts each; give devices, and 1 to %d parts", i+1, len(s.Devices), s.Share, maxShare)
		case wrong(s.Time) || wrong(s.Move) || last && s.Move != 0:
			return fmt.Errorf("stage %d takes %v ms, and %v us to the next; give numbers from 0, and 0 after the last stage", i+1, s.Time, s.Move)
		}
		end = s.End
	}
	return nil
}

// errRoutes is wrapped by errors of pipelines that do not fit the model or the devices.
var errRoutes = errors.New("the pipelines of the plan are for another model or other devices")

// Routes returns the pipelines of a service in the scheduler's form, for the loaded model and a
// pool of devices with the given names, in this order. It returns an error if the pipelines are for
// another model, for one cut into other operators, for devices that do not exist, or for parts of
// devices, which the daemon does not support.
func (s *Service) Routes(devices []string, hash string, operators int) (routes []models.Pipeline, err error) {
	var faults []error
	if s.Hash != "" && hash != "" && s.Hash != hash {
		faults = append(faults, fmt.Errorf("service %s was planned with the model %.12s, but %.12s is loaded", s.Name, s.Hash, hash))
	}
	if s.Operators != operators {
		faults = append(faults, fmt.Errorf("service %s was planned with %d operators, but its model has %d", s.Name, s.Operators, operators))
	}
	for _, way := range s.Pipelines {
		route := models.Pipeline{Batch: way.Batch}
		for _, stage := range way.Stages {
			to := models.Stage{End: stage.End, Move: time.Duration(stage.Move * float64(time.Microsecond))}
			for _, name := range stage.Devices {
				at := slices.Index(devices, name)
				if at < 0 {
					faults = append(faults, fmt.Errorf("service %s is planned on device %s, which does not exist", s.Name, name))
				}
				to.Devices = append(to.Devices, at)
			}
			if stage.Share > 1 {
				faults = append(faults, fmt.Errorf("service %s is planned on parts of devices, but the daemon does not divide devices; plan with whole ones", s.Name))
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

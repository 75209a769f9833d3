package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/textfile"
)

// maxScenarioBytes limits a scenario file.
const maxScenarioBytes = 16 << 20

// targetOverSolo is the target of a service that is given none, as a multiple of
// the time of its largest query alone, as in the paper.
const targetOverSolo = 2

// scenarioFile is a scenario as files and flags have it. The columns of the file of
// arrivals that mean nothing to the simulator are in ignored.
type scenarioFile struct {
	Device    string            `json:"device"`
	Predictor string            `json:"predictor,omitempty"`
	Policies  []string          `json:"policies"`
	Services  []scenarioService `json:"services"`
	Arrivals  scenarioArrivals  `json:"arrivals"`
	Queries   int               `json:"queries"`
	Seed      uint64            `json:"seed"`

	Devices    int    `json:"devices"`
	Dispatch   string `json:"dispatch,omitempty"`
	Ways       int    `json:"ways,omitempty"`
	Plan       bool   `json:"plan,omitempty"`
	MaxRetries int    `json:"max_retries,omitempty"`
	Knows      string `json:"knows,omitempty"`

	DecisionMicros float64         `json:"decision_us,omitempty"`
	RoundMicros    float64         `json:"round_us,omitempty"`
	Faults         scenarioFaults  `json:"faults,omitzero"`
	Clients        scenarioClients `json:"clients,omitzero"`

	ignored []string
}

type scenarioService struct {
	Name         string  `json:"name"`
	Model        string  `json:"model,omitempty"`
	TargetMillis float64 `json:"target_ms,omitempty"`
	MaxBatch     int     `json:"max_batch,omitempty"`
	QueueLimit   int     `json:"queue_limit,omitempty"`
	BestEffort   bool    `json:"best_effort,omitempty"`
	Priority     int     `json:"priority,omitempty"`
	Sizes        []int   `json:"sizes,omitempty"`
	SeqLens      []int   `json:"seq_lens,omitempty"`
	Share        float64 `json:"share,omitempty"`
}

type scenarioArrivals struct {
	Process string          `json:"process"`
	QPS     float64         `json:"qps,omitempty"`
	Shape   float64         `json:"shape,omitempty"`
	States  []scenarioState `json:"states,omitempty"`
	File    string          `json:"file,omitempty"`
	Scale   float64         `json:"scale,omitempty"`
	Keep    float64         `json:"keep,omitempty"`
}

// scenarioState is a state of an MMPP with the mean time that it lasts.
type scenarioState struct {
	QPS     float64 `json:"qps"`
	Seconds float64 `json:"seconds"`
}

type scenarioFaults struct {
	EverySeconds   float64 `json:"every_s"`
	RestartSeconds float64 `json:"restart_s"`
	Failing        float64 `json:"failing,omitempty"`
}

type scenarioClients struct {
	Leaving       float64 `json:"leaving,omitempty"`
	TimeoutMillis float64 `json:"timeout_ms,omitempty"`
}

// errScenario is wrapped by errors of scenario files.
var errScenario = errors.New("not a scenario")

var scenarioKind = textfile.Kind{MaxBytes: maxScenarioBytes, Foreign: errScenario, Damaged: errScenario}

// readScenario reads a scenario file. Relative paths in it start from its folder.
func readScenario(path string) (f scenarioFile, err error) {
	if err := scenarioKind.ReadFile(path, &f); err != nil {
		return f, fmt.Errorf("%w; see overlapd simulate --help for an example", err)
	}
	for _, p := range []*string{&f.Device, &f.Predictor, &f.Arrivals.File} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	return f, nil
}

// scenario reads the files that f names and returns the scenario, without a policy.
func (f *scenarioFile) scenario() (sim.Scenario, error) {
	var sc sim.Scenario
	if f.Device == "" {
		return sc, errors.New("no device: give a profile with --device; overlapd device fit makes one")
	}
	profile, err := device.ReadFile(f.Device)
	if err != nil {
		return sc, err
	}
	on, err := device.NewModel(profile)
	if err != nil {
		return sc, err
	}
	sc = sim.Scenario{
		Device: on, DeviceName: profile.Device, Queries: f.Queries, Seed: f.Seed,
		Devices: f.Devices, Dispatch: f.Dispatch, Ways: f.Ways, Plan: f.Plan, MaxRetries: f.MaxRetries, Knows: f.Knows,
		DecisionTime: times(f.DecisionMicros, time.Microsecond), RoundTime: times(f.RoundMicros, time.Microsecond),
	}
	sc.Faults.Every, sc.Faults.Restart = times(f.Faults.EverySeconds, time.Second), times(f.Faults.RestartSeconds, time.Second)
	sc.Faults.Failing = f.Faults.Failing
	sc.Clients.Leaving, sc.Clients.Timeout = f.Clients.Leaving, times(f.Clients.TimeoutMillis, time.Millisecond)
	if f.Predictor != "" {
		if sc.Predictor, err = predictor.ReadFile(f.Predictor); err != nil {
			return sc, err
		}
	}
	for i := range f.Services {
		s, err := f.Services[i].service(on)
		if err != nil {
			return sc, err
		}
		sc.Services = append(sc.Services, s)
	}
	sc.Arrivals, err = f.Arrivals.arrivals()
	if err != nil || sc.Arrivals.Process != sim.Times {
		return sc, err
	}
	if f.Arrivals.File == "" {
		return sc, errors.New("the arrivals are times, but no file of them is given")
	}
	f.ignored, err = sim.GiveRecorded(&sc, f.Arrivals.File)
	return sc, err
}

// service returns a service with the defaults of what s leaves out: the sizes and
// sequence lengths that its model was measured with, and a target.
func (s *scenarioService) service(on *device.Model) (sim.Service, error) {
	sv := sim.Service{
		Name: s.Name, Model: s.Model, Target: times(s.TargetMillis, time.Millisecond), MaxBatch: s.MaxBatch, QueueLimit: s.QueueLimit,
		BestEffort: s.BestEffort, Priority: s.Priority, Sizes: s.Sizes, SeqLens: s.SeqLens, Share: s.Share,
	}
	if sv.Model == "" {
		sv.Model = s.Name
	}
	at := on.Index(sv.Model)
	if at < 0 {
		var names []string
		for _, m := range on.Models() {
			names = append(names, m.Name)
		}
		return sv, fmt.Errorf("service %s: the device knows no model %s; it has %s", s.Name, sv.Model, strings.Join(names, ", "))
	}
	m := on.Models()[at]
	if len(sv.Sizes) == 0 {
		sv.Sizes = m.Sizes
	}
	if most := slices.Max(m.SeqLens); most == 0 {
		sv.SeqLens = nil
	} else if len(sv.SeqLens) == 0 {
		sv.SeqLens = m.SeqLens
	}
	if sv.Target == 0 {
		whole := models.Span{Service: models.ServiceID(at), End: m.Operators, Size: slices.Max(sv.Sizes)}
		if len(sv.SeqLens) > 0 {
			whole.SeqLen = slices.Max(sv.SeqLens)
		}
		solo := on.Latency(models.Group{Spans: []models.Span{whole}})
		sv.Target = (targetOverSolo * solo).Round(time.Microsecond)
	}
	return sv, nil
}

func (a *scenarioArrivals) arrivals() (sim.Arrivals, error) {
	list := sim.Arrivals{Process: a.Process, QPS: a.QPS, Shape: a.Shape, Scale: a.Scale, Keep: a.Keep}
	for _, s := range a.States {
		list.AddState(s.QPS, times(s.Seconds, time.Second))
	}
	if list.Process != sim.Loads {
		return list, nil
	}
	if a.File == "" {
		return list, errors.New("the arrivals are loads, but no file of them is given")
	}
	var err error
	list.Loads, err = sim.ReadLoads(a.File)
	return list, err
}

// parse reads the value of --arrivals.
func (a *scenarioArrivals) parse(text string) error {
	name, rest, _ := strings.Cut(text, ":")
	*a = scenarioArrivals{Process: name, QPS: a.QPS, Scale: a.Scale, Keep: a.Keep}
	var err error
	switch name {
	case sim.Times, sim.Loads:
		if a.File = rest; rest == "" {
			err = errors.New("no file")
		}
	case sim.Gamma:
		if a.Shape, err = strconv.ParseFloat(rest, 64); err != nil {
			err = fmt.Errorf("%q is no shape", rest)
		}
	case sim.MMPP:
		for part := range strings.SplitSeq(rest, ",") {
			qps, mean, _ := strings.Cut(part, "/")
			var s scenarioState
			var d time.Duration
			var e1, e2 error
			s.QPS, e1 = strconv.ParseFloat(qps, 64)
			d, e2 = time.ParseDuration(mean)
			s.Seconds = d.Seconds()
			a.States = append(a.States, s)
			if err == nil && (e1 != nil || e2 != nil) {
				err = fmt.Errorf("%q is no state", part)
			}
		}
	case sim.Poisson, sim.Constant:
		if rest != "" {
			err = fmt.Errorf("%q is too much; the rate is --qps", rest)
		}
	default:
		err = errors.New("no such process")
	}
	if err != nil {
		return fmt.Errorf("--arrivals %s: %w; want poisson, constant, gamma:SHAPE, mmpp:QPS/MEAN,QPS/MEAN, times:FILE or loads:FILE", text, err)
	}
	return nil
}

// times returns x units, at most the largest duration.
func times(x float64, unit time.Duration) time.Duration {
	if x *= float64(unit); x < math.MaxInt64 {
		return time.Duration(x)
	}
	return math.MaxInt64
}

// policyNames returns the names of all policies.
func policyNames() (names []string) {
	for _, p := range overlap.Policies() {
		names = append(names, p.Name)
	}
	return names
}

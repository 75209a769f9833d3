package reproduce

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/sim"
)

// decider serves queries on one device and looks at every decision: how often
// the predictor is asked for it, about how many groups, and how long it takes.
// Nothing is chosen ahead, so that a decision is one call.
type decider struct {
	device    sim.Device
	scenario  sim.Scenario
	bound     []int // of each service the model on the device
	predictor *asked
	scheduler *overlap.Scheduler

	rounds int
	took   []time.Duration // by decision, of the processor
}

// asked counts what a predictor is asked.
type asked struct {
	*predictor.Predictor
	calls, groups int
}

// Predict implements overlap.Predictor.
func (a *asked) Predict(groups []models.Group, estimates []models.Estimate) {
	a.calls++
	a.groups += len(groups)
	a.Predictor.Predict(groups, estimates)
}

func newDecider(d sim.Device, sc sim.Scenario, file *predictor.File, ways int) (*decider, error) {
	k := &decider{device: d, scenario: sc}
	var services []models.Service
	var served []predictor.Served
	var operators []int
	for i, s := range sc.Services {
		at := -1
		for j, m := range d.Models() {
			if m.Name == s.Name {
				at = j
				operators = append(operators, m.Operators)
			}
		}
		if at < 0 {
			return nil, fmt.Errorf("%w: the device does not know %s", ErrData, s.Name)
		}
		k.bound = append(k.bound, at)
		services = append(services, models.Service{
			ID: models.ServiceID(i), Name: s.Name, Operators: operators[i], QoSTarget: s.Target, QueueLimit: queueLimit, MaxBatch: max(s.MaxBatch, 1),
		})
		served = append(served, predictor.Served{Service: s.Name, Model: s.Name, Operators: operators[i]})
	}
	table, err := k.soloTable(operators)
	if err != nil {
		return nil, err
	}
	k.predictor = &asked{Predictor: predictor.New(table)}
	bind, err := file.Match(file.Device, served)
	if err != nil {
		return nil, err
	}
	if err := k.predictor.Use(file, bind); err != nil {
		return nil, err
	}
	k.scheduler, err = overlap.New(overlap.Config{Services: services, Policy: sc.Policy, Predictor: k.predictor, Ways: ways})
	return k, err
}

// queueLimit is that of the daemon's configuration.
const queueLimit = 1024

func (k *decider) soloTable(operators []int) (*predictor.Solo, error) {
	table, err := predictor.NewSolo(operators...)
	if err != nil {
		return nil, err
	}
	for i, s := range k.scenario.Services {
		seqLens := s.SeqLens
		if len(seqLens) == 0 {
			seqLens = []int{0}
		}
		sizes := k.device.Models()[k.bound[i]].Sizes
		for _, size := range sizes {
			for _, seqLen := range seqLens {
				nanos := k.device.OperatorTimes(k.bound[i], size, seqLen)
				if err := table.SetOperators(models.ServiceID(i), size, seqLen, nanos); err != nil {
					return nil, err
				}
			}
		}
	}
	return table, nil
}

// serve serves the queries of the scenario, one round after another.
func (k *decider) serve(random *rand.Rand) error {
	queries, err := k.scenario.Submissions()
	if err != nil {
		return err
	}
	now := time.Duration(0)
	for next := 0; next < len(queries) || !k.scheduler.Idle(); {
		for ; next < len(queries) && queries[next].At <= now; next++ {
			q := &queries[next]
			err := k.scheduler.Arrive(now, models.Query{
				ID: models.QueryID(next + 1), Service: q.Service, Size: q.Size, SeqLen: q.SeqLen,
				Arrival: q.At, Deadline: q.At + k.scenario.Services[q.Service].Target,
			})
			if err != nil {
				return fmt.Errorf("query %d: %w", next, err)
			}
		}
		began := time.Now()
		r, ok := k.scheduler.Next(now)
		took := time.Since(began)
		k.scheduler.Answers()
		k.scheduler.Released()
		switch {
		case ok:
			k.rounds++
			k.took = append(k.took, took)
			if now, err = k.round(&r, now, random); err != nil {
				return err
			}
		case next < len(queries):
			now = queries[next].At
		default:
			at, some := k.scheduler.Wake()
			if !some {
				return nil
			}
			now = max(at, now+1)
		}
	}
	return nil
}

// round runs a round and returns when it is over.
func (k *decider) round(r *overlap.Round, now time.Duration, random *rand.Rand) (time.Duration, error) {
	on := models.Group{Spans: make([]models.Span, len(r.Group.Spans))}
	o := models.Outcome{Round: r.Number}
	for i, s := range r.Group.Spans {
		o.Spans = append(o.Spans, models.SpanOutcome{Span: s, Reached: s.End})
		s.Service = models.ServiceID(k.bound[s.Service])
		on.Spans[i] = s
	}
	o.Took = k.device.Sample(on, random)
	for i := range o.Spans {
		o.Spans[i].Took = o.Took
	}
	now += o.Took
	_ = k.predictor.Observe(r.Group, o.Took) // what is out of range teaches nothing
	return now, k.scheduler.Finish(now, o)
}

package predictor

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
)

// plausible limits how far below the isolated latency of its longest span a prediction for a group
// may be. It is less than 1 because the operators of a model are measured one by one, each with its
// own overhead.
const plausible = 0.8

// Predictor estimates the latency of operator groups. One span takes its isolated latency. For
// several spans it uses the network, corrected by measurements. Without a network, or if it was not
// trained on such groups, it uses the sum of their isolated latencies. A Predictor is not safe for
// concurrent use; it belongs to the goroutine that owns the scheduler.
type Predictor struct {
	solo        *Solo
	calibration *calibration

	// model is nil if there is no network. bind is indexed by service and covers the services
	// that existed when Use was called.
	model *model
	file  *File
	bind  []binding

	answers   [sources]uint64
	unknown   uint64
	fallbacks [fallbacks]uint64

	// The groups that the network evaluates together, and the estimates they belong to. The
	// memory is kept here so that Predict does not allocate.
	asked  int
	of     [MaxRows]int
	answer [MaxRows]answer
	groups [MaxRows]models.Group
	spans  [MaxRows][MaxSpans]models.Span
	micros [MaxRows]float64
}

// answer is a prediction for a group by one source, and the least plausible latency of the group.
// Both are in nanoseconds.
type answer struct {
	key       shapeKey
	predicted float64
	least     float64
}

// New returns a predictor without a network.
func New(solo *Solo) *Predictor {
	return &Predictor{solo: solo, calibration: newCalibration()}
}

// Predict sets estimates[i] to the estimate of groups[i], or to zero if the isolated latency of one
// of its spans is unknown. It does not allocate.
func (p *Predictor) Predict(groups []models.Group, estimates []models.Estimate) {
	for len(groups) > 0 {
		n := min(len(groups), MaxRows)
		p.predict(groups[:n], estimates[:n])
		groups, estimates = groups[n:], estimates[n:]
	}
}

func (p *Predictor) predict(groups []models.Group, estimates []models.Estimate) {
	p.asked = 0
	for i := range groups {
		a, ok := p.ask(groups[i])
		switch {
		case !ok:
			p.unknown++
			estimates[i] = models.Estimate{}
		case a.key.source == sourceNetwork:
			p.of[p.asked], p.answer[p.asked] = i, a
			p.asked++
		default:
			p.answers[a.key.source]++
			estimates[i] = p.estimate(a)
		}
	}
	p.runNetwork()
	for k := range p.asked {
		p.answers[sourceNetwork]++
		estimates[p.of[k]] = p.estimate(p.answer[k])
	}
}

// ask returns the prediction for a group. If the network covers the group, ask only queues it,
// and runNetwork fills in the prediction. ask returns false if the isolated latency of a span
// is unknown.
func (p *Predictor) ask(g models.Group) (a answer, ok bool) {
	spans := g.Spans
	var longest float64
	for i := range spans {
		d, known := p.solo.Span(spans[i])
		if !known {
			return answer{}, false
		}
		a.predicted += float64(d)
		longest = max(longest, float64(d))
	}
	a.least = plausible * longest
	switch {
	case len(spans) == 0:
		return answer{}, false
	case len(spans) == 1 && len(g.Beside) > 0:
		a.key = keyOf(spans, sourceBeside)
		for _, id := range g.Beside {
			a.key.add(id)
		}
		return a, true
	case len(spans) == 1:
		a.key = keyOf(spans, sourceSolo)
		return a, true
	}
	reason := p.cover(spans)
	p.fallbacks[reason]++
	if reason == fallbackNone {
		a.key = keyOf(spans, sourceNetwork)
	} else {
		a.key = keyOf(spans, sourceSum)
	}
	return a, true
}

// cover prepares spans as the next group for the network, or returns why the network cannot
// estimate it.
func (p *Predictor) cover(spans []models.Span) fallback {
	if p.model == nil {
		return fallbackPredictor
	}
	if len(spans) > MaxSpans {
		return fallbackGroup
	}
	as := p.spans[p.asked][:len(spans)]
	reason := fallbackGroup
	for i := range spans {
		as[i] = spans[i]
		model := p.bound(spans[i].Service)
		if model < 0 {
			return fallbackModel
		}
		as[i].Service = models.ServiceID(model)
		if m := &p.file.Features.Models[model]; spans[i].Size > m.MaxSize || spans[i].SeqLen > m.MaxSeqLen {
			reason = fallbackSize
		}
	}
	g := models.Group{Spans: as}
	if !p.file.Features.Covers(g) {
		return reason
	}
	p.groups[p.asked] = g
	return fallbackNone
}

// runNetwork fills in the predictions of the queued groups.
func (p *Predictor) runNetwork() {
	if p.asked == 0 {
		return
	}
	p.model.predict(p.groups[:p.asked], p.micros[:p.asked])
	for k := range p.asked {
		a := &p.answer[k]
		a.predicted = max(p.micros[k]*1e3, a.least)
	}
}

func (p *Predictor) estimate(a answer) models.Estimate {
	m := p.calibration.margin(a.key)
	latency := duration(max(a.predicted*m.latency, a.least))
	return models.Estimate{Latency: latency, Bound: max(duration(a.predicted*m.bound), latency)}
}

// Observe records that a group which ended now took the given time. A group with a span of unknown
// isolated latency is ignored, unless it is the only span.
func (p *Predictor) Observe(now time.Duration, g models.Group, took time.Duration) error {
	if took <= 0 || took > MaxTime {
		return fmt.Errorf("group took %v: %w", took, errRange)
	}
	p.asked = 0
	fallbacks := p.fallbacks
	a, ok := p.ask(g)
	// Nobody asked for this estimate, so it must not count.
	p.fallbacks = fallbacks
	if ok && a.key.source == sourceNetwork {
		p.answer[0], p.asked = a, 1
		p.runNetwork()
		a = p.answer[0]
	}
	if ok {
		p.calibration.observe(now, a.key, p.part(g.Spans, a.predicted), a.predicted, float64(took))
	}
	if len(g.Spans) != 1 {
		return nil
	}
	s, solo := &g.Spans[0], p.solo.On(g.Spans[0].Share)
	solo.now = p.calibration.now
	if len(g.Beside) > 0 && ok { // what others cost it is not its own time
		took = max(duration(float64(took)/p.calibration.margin(a.key).latency), 1)
	}
	return solo.Observe(s.Service, s.Start, s.End, s.Size, s.SeqLen, took)
}

// part returns a time as a fraction of the isolated latency of the longest whole model in the
// group.
func (p *Predictor) part(spans []models.Span, nanos float64) float64 {
	longest := nanos
	for _, s := range spans {
		s.Start, s.End = 0, p.solo.services[s.Service].operators
		whole, _ := p.solo.Span(s)
		longest = max(longest, float64(whole))
	}
	return nanos / longest
}

// Report returns the quality of predictions. The shapes take most of the time and are optional.
func (p *Predictor) Report(shapes bool) Report {
	r := Report{Unknown: p.unknown, Answers: map[string]uint64{}, Fallbacks: map[string]uint64{}}
	for i, n := range p.answers {
		r.Answers[sourceNames[i]] = n
	}
	for i, n := range p.fallbacks {
		r.Fallbacks[fallbackNames[i]] = n
	}
	delete(r.Fallbacks, fallbackNames[fallbackNone])
	if shapes {
		r.Shapes = p.calibration.report()
	}
	return r
}

// Snapshot returns a copy of the calibration.
func (p *Predictor) Snapshot() CalibrationSnapshot {
	kept := p.calibration.snapshot()
	if p.file != nil {
		kept.Predictor = p.file.Identity()
	}
	return kept
}

// Restore replaces the calibration. It ignores what a snapshot holds about another network than the
// one in use. For an invalid snapshot it returns errSnapshot and changes nothing.
func (p *Predictor) Restore(kept CalibrationSnapshot) error {
	start, same := Exact, false
	if p.file != nil {
		start, same = p.file.Test.Quantiles, kept.Predictor == p.file.Identity()
	}
	c, err := restore(kept, same, start)
	if err != nil {
		return err
	}
	p.calibration = c
	return nil
}

// binding is the index of a service's model in the file, or -1, together with the model of the
// service at that time. It is void once the service has another model.
type binding struct{ file, model int }

// Use starts to use a network. For each service in the table of isolated latencies, including
// dropped ones, bind holds the index of its model in the file, or -1; see [File.Match]. The file
// must not change afterwards. If it is the file in use, the calibration of groups whose models stay
// the same is kept. On an error nothing changes.
//
// The network does not know a service that is added later, or whose model changes by Reset, until
// Use is called again. Other services stay bound.
func (p *Predictor) Use(f *File, bind []int) error {
	if len(bind) != len(p.solo.services) {
		return fmt.Errorf("%w: models of %d services, there are %d", errRange, len(bind), len(p.solo.services))
	}
	for service, model := range bind {
		if model < -1 || model >= len(f.Features.Models) {
			return fmt.Errorf("%w: service %d has model %d of %d", errRange, service, model, len(f.Features.Models))
		}
	}
	list := make([]binding, len(bind))
	for i, model := range bind {
		list[i] = binding{file: model, model: p.solo.services[i].model}
	}
	if f == p.file {
		for i := range list {
			if i >= len(p.bind) || list[i] != p.bind[i] {
				p.calibration.forget(models.ServiceID(i))
			}
		}
		p.bind = list
		return nil
	}
	m, err := newModel(f)
	if err != nil {
		return err
	}
	p.model, p.file, p.bind = m, f, list
	p.calibration.restart(sourceNetwork, f.Test.Quantiles)
	return nil
}

// bound returns the index in the file of a service's model, or -1.
func (p *Predictor) bound(service models.ServiceID) int {
	if int(service) >= len(p.bind) || p.bind[service].model != p.solo.services[service].model {
		return -1
	}
	return p.bind[service].file
}

// Reset is [Solo.Reset] for a service that may have run before. It also discards the calibration of
// groups with the service, because it does not apply to another model.
func (p *Predictor) Reset(service models.ServiceID, operators int) error {
	if err := p.solo.Reset(service, operators); err != nil {
		return err
	}
	p.calibration.forget(service)
	return nil
}

// Drop discards a service: its isolated latencies and the calibration of groups with it. Reset of
// the table may give its ID to another service.
func (p *Predictor) Drop(service models.ServiceID) error {
	if err := p.solo.Drop(service); err != nil {
		return err
	}
	p.calibration.forget(service)
	return nil
}

// Forget stops using the network.
func (p *Predictor) Forget() {
	p.model, p.file, p.bind = nil, nil, nil
	p.calibration.restart(sourceNetwork, Exact)
}

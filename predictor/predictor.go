package predictor

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
)

// plausible is the least part of the solo time of its longest span that a
// group can take. It is not the whole, since the operators of a model were
// each measured with their own overhead.
const plausible = 0.8

// Predictor estimates how long operator groups take. One span takes its solo time.
// Several take what the network predicts, corrected by what was measured; where
// there is none, or it was not trained on such groups, they take the sum of
// their solo times. A Predictor is not safe for concurrent use; it belongs to
// the goroutine that owns the scheduler.
type Predictor struct {
	solo        *Solo
	calibration *calibration

	// model is nil if there is no network. bind is by service, of those there were
	// when it began to be used.
	model *model
	file  *File
	bind  []binding

	answers   [sources]uint64
	unknown   uint64
	fallbacks [fallbacks]uint64

	// What the network is asked in one go, and whose estimates that is. The memory is
	// here so that predicting does not allocate.
	asked  int
	of     [MaxRows]int
	answer [MaxRows]answer
	groups [MaxRows]models.Group
	spans  [MaxRows][MaxSpans]models.Span
	micros [MaxRows]float64
}

// answer is the prediction of a source for a group, and the least that is plausible
// for it, in nanoseconds.
type answer struct {
	key       shapeKey
	predicted float64
	least     float64
}

// New returns a predictor that has no network.
func New(solo *Solo) *Predictor {
	return &Predictor{solo: solo, calibration: newCalibration()}
}

// Predict sets estimates[i] to the estimate of groups[i], or to zero if the
// solo time of one of its spans is unknown. It does not allocate.
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
		if s := groups[i].Spans; len(s) == 1 && s[0].Series {
			estimates[i] = p.series(groups[i])
			continue
		}
		a, ok := p.ask(groups[i].Spans)
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

// series returns the estimate of a group whose only span is a series: that of one of its
// queries as many times as there are.
func (p *Predictor) series(g models.Group) (e models.Estimate) {
	once, times := g.Spans[0].Once()
	a, ok := p.ask([]models.Span{once})
	if !ok {
		p.unknown++
		return e
	}
	p.answers[a.key.source]++
	e = p.estimate(a)
	e.Latency, e.Bound = time.Duration(times)*e.Latency, time.Duration(times)*e.Bound
	return e
}

// ask returns the prediction for a group. Where it is the network that answers,
// the group becomes the next that it is asked about, and what is predicted is
// left to runNetwork. It is false if the solo time of a span is unknown.
func (p *Predictor) ask(spans []models.Span) (a answer, ok bool) {
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

// cover sets the next group that the network is asked about to these spans, or
// returns why it cannot answer.
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

// runNetwork sets what is predicted of the groups that the network is asked
// about.
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

// Observe takes in what a group took that ended now. A group with a span whose solo time is
// unknown teaches nothing, unless it has no other.
func (p *Predictor) Observe(now time.Duration, g models.Group, took time.Duration) error {
	if took <= 0 || took > MaxTime {
		return fmt.Errorf("group took %v: %w", took, errRange)
	}
	if len(g.Spans) == 1 && g.Spans[0].Series { // each of its queries took its part
		once, times := g.Spans[0].Once()
		g.Spans, took = []models.Span{once}, max(took/time.Duration(times), 1)
	}
	p.asked = 0
	fallbacks := p.fallbacks
	a, ok := p.ask(g.Spans)
	p.fallbacks = fallbacks // nobody has asked
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
	s := &g.Spans[0]
	p.solo.now = p.calibration.now
	return p.solo.Observe(s.Service, s.Start, s.End, s.Size, s.SeqLen, took)
}

// part returns what share a time is of what the longest model of some spans takes alone.
func (p *Predictor) part(spans []models.Span, nanos float64) float64 {
	longest := nanos
	for _, s := range spans {
		s.Start, s.End = 0, p.solo.services[s.Service].operators
		whole, _ := p.solo.Span(s)
		longest = max(longest, float64(whole))
	}
	return nanos / longest
}

// Report returns how well predictions do, with the shapes, which take the longest,
// or without.
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

// Snapshot copies what was learned of the quality of predictions.
func (p *Predictor) Snapshot() CalibrationSnapshot {
	kept := p.calibration.snapshot()
	if p.file != nil {
		kept.Predictor = p.file.Identity()
	}
	return kept
}

// Restore replaces what was learned of the quality of predictions. Of another
// network than the one in use nothing is taken over. An impossible snapshot is
// refused with errSnapshot, and nothing has changed.
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

// binding is which model of the file a service has, or -1, as long as it is the
// model that it was bound to.
type binding struct{ file, model int }

// Use begins to use a network. bind gives for each service of the table of solo
// times, those that were dropped among them, the position of its model in the
// file, or -1; see [File.Match]. The file must not change from then on. If it is
// the one in use, what was learned of groups whose models stay the same is kept.
// On an error nothing has changed.
//
// A service that is added later, or has another model since its Reset, is not
// known to the network until Use is called again; the others stay bound.
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

// bound returns the model in the file of a service that the table of solo times
// has, or -1.
func (p *Predictor) bound(service models.ServiceID) int {
	if int(service) >= len(p.bind) || p.bind[service].model != p.solo.services[service].model {
		return -1
	}
	return p.bind[service].file
}

// Reset is [Solo.Reset] for a service that may have run before: what was learned
// of groups with its last model is not believed of the next one.
func (p *Predictor) Reset(service models.ServiceID, operators int) error {
	if err := p.solo.Reset(service, operators); err != nil {
		return err
	}
	p.calibration.forget(service)
	return nil
}

// Drop forgets a service: its solo times, and what was learned of groups with
// it. Its ID may be given to another one by Reset of the table.
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

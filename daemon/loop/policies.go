package loop

import (
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning/selection"
)

// policies keeps the policies by which variants are selected.
//
// It runs in the scheduler goroutine, where a panic ends the daemon, and policies come from
// files, so nothing of a file is an index here: selection.ReadSet returns a set only if it is
// whole and fits the variants, selection itself compares latencies and makes choices, and what
// it chooses is a name, which the scheduler looks up ([services.Select]). TestPoliciesNeverPanic
// holds this to files, configurations and reloads that are made up.
type policies struct {
	env      *env
	services *services
}

// Of what policies are calculated for: queries that may wait, levels of slack, and the lowest
// load as a part of the highest that there could be.
const (
	longestQueue = 32
	slackLevels  = 50
	lowestLoad   = 1.0 / 64
)

// solvePeriod is how long policies that are calculated are kept at least.
const solvePeriod = time.Minute

// heed has each family know what part of the devices others take from it, and calculates its
// policies where there are none for its variants as they are. What its own spans saved beside
// others is time that those did not take from it: a query that runs beside another for nothing
// leaves all of the device.
func (p *policies) heed() {
	if len(p.services.families) == 0 {
		return
	}
	load := p.env.timeline.Load(true)
	if load.WindowSeconds == 0 {
		return
	}
	for _, of := range p.services.families {
		others := 0.0
		for name, l := range load.Services {
			if s := p.services.serving(name); s == nil || s.family != of {
				others += l.DeviceSeconds
			} else {
				others -= l.SavedSeconds
			}
		}
		of.live.Share(others / (load.WindowSeconds * float64(len(p.env.devices))))
		p.consider(of)
	}
}

// consider has policies for a family calculated or read, if that is due.
func (p *policies) consider(of *family) {
	file, again := of.file, of.solved > 0
	if of.solving || len(of.variants) < 2 || !of.serves() || again && (file != "" || p.env.now()-of.solved < solvePeriod) {
		return
	}
	w, ok := p.worker(of)
	if set := of.live.Set(); !ok || again && set != nil && !set.Drifted(&w) {
		return
	}
	of.solving, of.solved = true, max(p.env.now(), 1)
	p.env.options.Goroutines.Go(func() {
		defer p.env.breadth.hold()()
		var set *selection.Set
		var err error
		if file != "" {
			set, err = selection.ReadSet(file, &w)
		} else {
			set, err = w.SolveSet(p.env.options.Life, w.Rate*lowestLoad, w.Rate, nil)
		}
		p.env.mail.tell(func() { p.follow(of, set, err) })
	})
}

// follow has a family follow policies, if there are any.
func (p *policies) follow(of *family, set *selection.Set, err error) {
	of.solving, of.refused = false, err
	if of.live.Use(set); err != nil {
		p.env.log.Error().Err(err).Str("service", of.front.Name).Msg("no variant policy: the fastest variant answers")
		return
	}
	first, last := set.Policies[0], set.Policies[len(set.Policies)-1]
	p.env.log.Info().Str("service", of.front.Name).Int("policies", len(set.Policies)).
		Float64("from", thousandths(first.Rate)).Float64("to", thousandths(last.Rate)).
		Float64("accuracy_from", thousandths(first.Accuracy)).Float64("accuracy_to", thousandths(last.Accuracy)).
		Msg("variants selected by a policy")
}

// thousandths rounds a number for the log, which would have all its digits.
func thousandths(v float64) float64 { return math.Round(1000*v) / 1000 }

// worker returns what a policy of a family is for: its variants that are known, each with
// its latencies in the middle of its runs. The scheduler holds what is selected against the
// bound: if that were counted here, too, a device would bear less than it does, and of two
// variants the one that ran more often would seem slower by all that has disturbed it. It is
// false while one is still to load.
func (p *policies) worker(of *family) (w selection.Worker, ok bool) {
	w = selection.Worker{CV: 1, Drop: true, Queue: longestQueue, Levels: slackLevels}
	for _, m := range of.variants {
		v, on, places := p.measured(m)
		if v.Latency == nil && !m.entry.GivenUp.Load() {
			return w, false
		}
		if v.Latency == nil {
			continue
		}
		w.Device = measuredOn(on, of.variants)
		w.Variants, w.Workers = append(w.Variants, v), max(w.Workers, places)
		w.Target = float64(m.config.Target) / float64(time.Millisecond)
		most := float64(longestQueue) / v.Latency[longestQueue-1] * 1000
		w.Rate = max(w.Rate, most*float64(w.Workers))
	}
	return w, len(w.Variants) > 1
}

// measured returns a variant with its latencies on a kind of device, none if they are not
// known, and on how many devices it is. Of several kinds that of its first device counts.
func (p *policies) measured(m *service) (v selection.Variant, on *kind, places int) {
	_, c := m.config.Of()
	v = selection.Variant{Name: m.variant, Accuracy: c.Accuracy}
	for r := range m.each {
		if on == nil {
			on = p.env.devices[r.place.Device].kind
		}
		places++
	}
	if m.info == nil || on == nil {
		return v, on, places
	}
	if !on.devices[0].Emulated { // nobody has the files of its models
		v.Hash = m.measuredAs(on)
	}
	spec := &p.services.specs[m.entry.ID]
	span := models.Span{Service: spec.ID, End: spec.Operators}
	for _, t := range m.info.Solo {
		span.SeqLen = max(span.SeqLen, t.SeqLen)
	}
	measured := map[int]float64{}
	for span.Size = 1; span.Size <= max(spec.MaxBatch, 1); span.Size *= 2 {
		if e := on.estimate(span); e.Latency > 0 {
			measured[span.Size] = float64(e.Latency) / float64(time.Millisecond)
		}
	}
	if len(measured) > 0 {
		v.Latency = selection.Interpolate(measured, min(max(spec.MaxBatch, 1), longestQueue), longestQueue)
	}
	return v, on, places
}

// estimate returns the estimate of a span alone.
func (k *kind) estimate(s models.Span) models.Estimate {
	var e [1]models.Estimate
	k.predictor.Predict([]models.Group{{Spans: []models.Span{s}}}, e[:])
	return e[0]
}

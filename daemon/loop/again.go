package loop

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// againRuns is how often a variant is run to be measured again; the fastest run counts.
const againRuns = 3

// again measures variants alone, once each after all workers of a kind of device have loaded.
// A worker that is warmed up while others load seems slower than it is. A service that runs is
// corrected by its own rounds; a variant that is not selected for its time never would be.
type again struct {
	env      *env
	services *services
	kind     *kind
	left     []variantTime
	seen     map[models.ServiceID]string // the hash of the model that was listed
	runs     bool                        // the step that was begun last is the first of those left
}

// variantTime is what warming up has found of a variant.
type variantTime struct {
	member *service
	model  *wire.Info
	time   wire.Solo
}

// list adds what is to be measured of the variants that have loaded.
func (a *again) list() {
	for _, s := range a.services.served() {
		if s.family == nil || s.info == nil || s.on(a.kind) == nil || a.kind.devices[0].Emulated || a.seen[s.entry.ID] == s.info.Hash {
			continue
		}
		a.seen[s.entry.ID] = s.info.Hash
		for _, t := range s.info.Solo {
			a.left = append(a.left, variantTime{s, s.info, t})
		}
	}
}

// rounds returns the step that comes next, none if all is measured.
func (a *again) rounds() (rounds []models.Group) {
	a.left = slices.DeleteFunc(a.left, func(v variantTime) bool { return v.member.state != stateServing || v.member.info != v.model })
	if a.runs = len(a.left) > 0; !a.runs {
		return nil
	}
	v := &a.left[0]
	whole := models.Span{Service: v.member.entry.ID, End: len(v.time.Nanos), Size: v.time.Size, SeqLen: v.time.SeqLen}
	for range againRuns {
		whole.Batch++
		rounds = append(rounds, models.Group{Spans: []models.Span{whole}})
	}
	return rounds
}

// finished takes in how long the runs of the step took, or why it failed. If queries came in
// between it is run again.
func (a *again) finished(took []learning.Timing, err error) {
	a.runs = false
	if err == learning.ErrDisturbed {
		return
	}
	v := a.left[0]
	a.left = a.left[1:]
	if err != nil {
		a.env.log.Debug().Err(err).Str("service", v.member.config.Name).Msg("measuring a variant again failed")
		return
	}
	fastest := slices.MinFunc(took, func(x, y learning.Timing) int { return int(x.Latency - y.Latency) }).Latency
	a.correct(&v, fastest)
}

// correct lowers what is known of a variant to what its whole model took, each operator in
// proportion, and has policies that held for other times calculated anew.
func (a *again) correct(v *variantTime, took time.Duration) {
	var sum int64
	for _, n := range v.time.Nanos {
		sum += n
	}
	scaled := wire.Solo{Size: v.time.Size, SeqLen: v.time.SeqLen}
	for _, n := range v.time.Nanos {
		scaled.Nanos = append(scaled.Nanos, int64(float64(n)*float64(took)/float64(max(sum, 1))))
	}
	id := v.member.entry.ID
	if a.kind.slower(a.services.specs[id], scaled) || a.kind.solo.SetOperators(id, scaled.Size, scaled.SeqLen, scaled.Nanos) != nil {
		return
	}
	v.member.family.solved = 0
}

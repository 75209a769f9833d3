package sim

import (
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
)

// Profiled is the device of a profile. Groups that the profile says nothing of,
// of more spans than were measured, or with two spans of one model, run one
// span after another on it.
type Profiled struct {
	*device.Model
	solo map[soloKey][]int64
}

type soloKey struct{ model, size, seqLen int }

// FromProfile returns the device of a profile, or the error of its Validate.
// The profile must not change while it is in use.
func FromProfile(p *device.Profile) (*Profiled, error) {
	m, err := device.NewModel(p)
	if err != nil {
		return nil, err
	}
	return &Profiled{Model: m, solo: map[soloKey][]int64{}}, nil
}

// Latency returns how long a group takes in the middle of its runs.
func (d *Profiled) Latency(g models.Group) (sum time.Duration) {
	if len(g.Spans) < 2 || d.Covers(g) {
		return d.Model.Latency(g)
	}
	for i := range g.Spans {
		sum += d.Model.Latency(models.Group{Spans: g.Spans[i : i+1]})
	}
	return sum
}

// Sample returns how long one run of a group takes.
func (d *Profiled) Sample(g models.Group, r *rand.Rand) (sum time.Duration) {
	if len(g.Spans) < 2 || d.Covers(g) {
		return d.Model.Sample(g, r)
	}
	for i := range g.Spans {
		sum += d.Model.Sample(models.Group{Spans: g.Spans[i : i+1]}, r)
	}
	return sum
}

func (d *Profiled) soloTimes(model, size, seqLen int) []int64 {
	key := soloKey{model, size, seqLen}
	times, ok := d.solo[key]
	if !ok {
		times = measureSolo(d, model, d.Models()[model].Operators, size, seqLen)
		d.solo[key] = times
	}
	return times
}

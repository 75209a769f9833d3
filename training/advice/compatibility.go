package advice

import (
	"math"

	"github.com/overlapd/overlapd/training"
)

const (
	affinityRounds = 200 // affinities are fitted in turns
	affinityShrink = 0.5 // what the assumption weighs that a model is like the mean
	halfWeight     = 10  // groups that give a set half the weight of one with many
)

// compatibility estimates what models gain that were never measured together.
// The compatibility of a set is log(gain)/log(models), so that 0 is one after
// the other and 1 is perfect overlap for any number of models. It is taken to
// be the mean of all sets plus the affinities of the models.
type compatibility struct {
	mean     float64
	affinity []float64 // by model, shrunk to 0 the less is known of it
	sets     map[setKey]*setGain
	measured []int // pairs that each model was measured in
	off      float64
}

// setKey names a set of models: their positions plus one, in order.
type setKey [training.MaxSpans]uint16

func keyOf(members []int) (k setKey) {
	for i, m := range members {
		k[i] = uint16(m + 1)
	}
	return k
}

func newCompatibility(models int, sets []setGain) *compatibility {
	c := &compatibility{affinity: make([]float64, models), measured: make([]int, models), sets: map[setKey]*setGain{}}
	for i := range sets {
		s := &sets[i]
		c.sets[keyOf(s.members)] = s
		if len(s.members) == 2 && s.Groups >= fewestGroups {
			c.measured[s.members[0]]++
			c.measured[s.members[1]]++
		}
	}
	c.fit(sets)
	return c
}

func (c *compatibility) fit(sets []setGain) {
	for range affinityRounds {
		top, bottom := 0.0, 0.0
		for i := range sets {
			w := sets[i].weight()
			top += w * (sets[i].compatibility() - c.sum(sets[i].members))
			bottom += w
		}
		if bottom == 0 {
			return
		}
		c.mean = top / bottom
		for m := range c.affinity {
			c.affinity[m] = c.best(m, sets)
		}
	}
	errors, n := 0.0, 0.0
	for i := range sets {
		d := sets[i].compatibility() - c.mean - c.sum(sets[i].members)
		errors += sets[i].weight() * d * d
		n += sets[i].weight()
	}
	c.off = math.Sqrt(errors / n)
}

// best returns the affinity of a model that fits its sets best, all others
// being as they are.
func (c *compatibility) best(model int, sets []setGain) float64 {
	top, bottom := 0.0, affinityShrink
	for i := range sets {
		s := &sets[i]
		for _, m := range s.members {
			if m != model {
				continue
			}
			part := 2 / float64(len(s.members))
			rest := s.compatibility() - c.mean - (c.sum(s.members) - part*c.affinity[m])
			top += s.weight() * part * rest
			bottom += s.weight() * part * part
		}
	}
	return top / bottom
}

// sum returns what the affinities add to the mean.
func (c *compatibility) sum(members []int) (sum float64) {
	for _, m := range members {
		if m >= 0 {
			sum += c.affinity[m]
		}
	}
	return 2 * sum / float64(len(members))
}

// pair returns the compatibility of two models, and their set if it was
// measured. A model that nothing is known of has the position -1.
func (c *compatibility) pair(a, b int) (float64, *setGain) {
	if a > b {
		a, b = b, a
	}
	if a >= 0 && a != b {
		if s := c.sets[keyOf([]int{a, b})]; s != nil && s.Groups >= fewestGroups {
			return s.compatibility(), s
		}
	}
	return c.mean + c.sum([]int{a, b}), nil
}

func (g *setGain) weight() float64 {
	return float64(g.Groups) / float64(g.Groups+halfWeight)
}

func (g *setGain) compatibility() float64 {
	return math.Log(g.Gain) / math.Log(float64(len(g.members)))
}

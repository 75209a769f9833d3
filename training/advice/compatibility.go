package advice

import (
	"math"

	"github.com/overlapd/overlapd/training"
)

// Constants of fitting compatibilities.
const (
	// affinityRounds is the number of iterations in which affinities are fitted in turn.
	affinityRounds = 200
	// affinityShrink is the weight of the prior that a model is like the mean.
	affinityShrink = 0.5
	// halfWeight is the number of groups at which a set has half of its final weight.
	halfWeight = 10
)

// compatibility estimates the gains of models that were never measured together.
//
// The compatibility of a set is log(gain)/log(models). It is 0 if the models run as if one
// after another, and 1 for perfect overlap, for any number of models. It is modelled as the
// mean of all sets plus the affinities of the models in the set.
type compatibility struct {
	mean float64
	// affinity is indexed by model. The less is known about a model, the nearer it is to 0.
	affinity []float64
	sets     map[setKey]*setGain
	// measured counts the pairs in which each model was measured.
	measured []int
	// off is the root mean square error of the fit, in units of compatibility.
	off float64
}

// setKey identifies a set of models by their indices plus one, in ascending order.
type setKey [training.MaxSpans]uint16

// keyOf returns the key of a set. members must be in ascending order.
func keyOf(members []int) (k setKey) {
	for i, m := range members {
		k[i] = uint16(m + 1)
	}
	return k
}

// newCompatibility fits a compatibility to the measured sets of that many models.
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

// fit fits the mean and the affinities to sets, each in turn while the others are fixed.
func (c *compatibility) fit(sets []setGain) {
	for range affinityRounds {
		top, bottom := 0.0, 0.0
		for i := range sets {
			w := sets[i].weight()
			top += w * (sets[i].compatibility() - c.sum(sets[i].members))
			bottom += w
		}
		// Without sets there is nothing to fit, and every pair has a compatibility of 0.
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

// best returns the affinity of a model that fits its sets best while all others are fixed.
func (c *compatibility) best(model int, sets []setGain) float64 {
	top, bottom := 0.0, affinityShrink
	for i := range sets {
		s := &sets[i]
		for _, m := range s.members {
			if m != model {
				continue
			}
			// A pair counts both affinities in full, and a larger set counts their mean twice.
			part := 2 / float64(len(s.members))
			rest := s.compatibility() - c.mean - (c.sum(s.members) - part*c.affinity[m])
			top += s.weight() * part * rest
			bottom += s.weight() * part * part
		}
	}
	return top / bottom
}

// sum returns the contribution of the affinities to the compatibility of members.
func (c *compatibility) sum(members []int) (sum float64) {
	for _, m := range members {
		if m >= 0 {
			sum += c.affinity[m]
		}
	}
	return 2 * sum / float64(len(members))
}

// pair returns the compatibility of two models, and their set if it was measured. An unknown
// model has the index -1.
func (c *compatibility) pair(a, b int) (float64, *setGain) {
	if a > b {
		a, b = b, a
	}
	// A model was never measured with itself, so two services of one model are estimated.
	if a >= 0 && a != b {
		if s := c.sets[keyOf([]int{a, b})]; s != nil && s.Groups >= fewestGroups {
			return s.compatibility(), s
		}
	}
	return c.mean + c.sum([]int{a, b}), nil
}

// weight returns the weight of a set in the fit, which grows with its groups towards 1.
func (g *setGain) weight() float64 {
	return float64(g.Groups) / float64(g.Groups+halfWeight)
}

// compatibility returns the logarithm of the gain to the base of the number of models.
func (g *setGain) compatibility() float64 {
	return math.Log(g.Gain) / math.Log(float64(len(g.members)))
}

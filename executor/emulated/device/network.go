package device

import (
	"errors"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// Falls reports whether a unit of a hidden layer with that many units is of the falling kind:
// its output never increases when operators are added. The other units never decrease. Weights
// between units of one kind must not be negative, and those between kinds must not be positive.
// Only inputs that do not count operators may have weights of any sign. With half of the units
// of each kind, the network can represent any function that never decreases when operators are
// added.
func Falls(unit, units int) bool { return unit >= (units+1)/2 }

// Sign returns the allowed sign of the weight from input i to output o of a layer: 1 for not
// negative, -1 for not positive, and 0 for any. The inputs of the first layer are those of the
// encoder; growing marks the ones that count operators.
func Sign(layer, layers, i, inputs, o, outputs int, growing []bool) int {
	sign := 1
	switch {
	case layer == 0 && !growing[i]:
		return 0
	case layer > 0 && Falls(i, inputs):
		sign = -1
	}
	if layer < layers-1 && Falls(o, outputs) {
		sign = -sign
	}
	return sign
}

// features describes the models and groups that the network was made for.
func (p *Profile) features() predictor.Features {
	return predictor.Features{Set: predictor.FeaturesModel, Spans: p.Network.Spans, Models: p.Network.Models}
}

func (p *Profile) networkFaults() (faults []error) {
	n := &p.Network
	if n.Spans < 1 || n.Spans > MaxSpans {
		faults = append(faults, fmt.Errorf("groups of %d spans; the limit is %d", n.Spans, MaxSpans))
	}
	features := p.features()
	// Spans was checked above, with another limit.
	features.Spans = 1
	if err := features.Validate(); err != nil {
		return append(faults, err)
	}
	if p.Linear() {
		if n.Spans != 1 {
			faults = append(faults, fmt.Errorf("groups of %d spans and no layers, without which spans run one after another", n.Spans))
		}
		return faults
	}
	if _, err := predictor.NewNetwork(n.Layers); err != nil {
		return append(faults, err)
	}
	e := NewEncoder(n.Models)
	if width := n.Layers[0].Inputs; width != e.Width {
		return append(faults, fmt.Errorf("the first layer has %d inputs, its models %d", width, e.Width))
	}
	for i := range n.Layers {
		if err := signFault(n.Layers, i, e.Growing); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

var errSign = errors.New("more operators would make a group faster")

// signFault returns an error if a weight of the layer has a sign that Sign forbids.
func signFault(layers []predictor.Layer, layer int, growing []bool) error {
	l := &layers[layer]
	for at, w := range l.Weights {
		i, o := at%l.Inputs, at/l.Inputs
		if sign := Sign(layer, len(layers), i, l.Inputs, o, l.Outputs, growing); w*float32(sign) < 0 {
			return fmt.Errorf("layer %d: weight %d is %v: %w", layer, at, w, errSign)
		}
	}
	return nil
}

// The inputs of a network. Those that count operators never decrease when operators are added. The
// others describe the batches.
const (
	// Each model has costInputs inputs for its costs and one for each of its sectionOf sections.
	costInputs  = 2
	sectionOf   = 6
	groupInputs = 4

	// leastMicros is a time that hardly matters. Inputs are logarithms of times relative to it.
	leastMicros = 100
)

// encoder encodes groups as inputs of a network, both when a device is fitted and when it is
// used. It is immutable and safe for concurrent use.
type encoder struct {
	// Width is the number of inputs. Growing marks the inputs that count operators.
	Width   int
	Growing []bool

	models []encoded
}

// encoded is a model with the index of its first input.
type encoded struct {
	costs     *predictor.CostGrid
	operators int
	first     int
}

// NewEncoder returns the encoder for models whose costs form a complete grid.
func NewEncoder(list []predictor.FeatureModel) *encoder {
	e := &encoder{}
	for i := range list {
		costs := predictor.NewCostGrid(list[i].Costs)
		e.models = append(e.models, encoded{costs, list[i].Operators, e.Width})
		e.grow(1+len(costs.Sizes)+len(costs.SeqLens), false)
		e.grow(costInputs+sectionOf, true)
	}
	e.grow(groupInputs, true)
	return e
}

func (e *encoder) grow(inputs int, growing bool) {
	for range inputs {
		e.Growing = append(e.Growing, growing)
	}
	e.Width += inputs
}

// Encode sets the first Width elements of inputs for a group. It returns the time in
// microseconds to which the network's output is relative. It does not allocate.
func (e *encoder) Encode(g models.Group, inputs []float32) (baseMicros float64) {
	spans := g.Spans
	inputs = inputs[:e.Width]
	clear(inputs)
	var micros [predictor.MaxSpans]float64
	var total, longest, work float64
	for i := range spans {
		m, w := e.models[spans[i].Service].encode(&spans[i], inputs)
		micros[i] = m
		total += m
		work += w
		longest = max(longest, m)
	}
	base := predictor.Together(micros[:len(spans)], work)
	tail := inputs[e.Width-groupInputs:]
	tail[0] = scale(base)
	tail[1] = scale(total)
	tail[2] = scale(longest)
	tail[3] = scale(work)
	return leastMicros * math.Exp(baseExponent*math.Log(base/leastMicros))
}

// baseExponent is how latency grows with the base where the network's output is zero.
const baseExponent = 0.7

// scale maps a time to about its logarithm, and zero to zero.
func scale(micros float64) float32 { return float32(math.Log1p(micros / leastMicros)) }

func (m *encoded) encode(s *models.Span, inputs []float32) (micros, work float64) {
	b := inputs[m.first:]
	b[0] = 1
	b = b[1:]
	b = oneHot(b, m.costs.Sizes, s.Size)
	b = oneHot(b, m.costs.SeqLens, s.SeqLen)
	costs := m.costs.At(s.Size, s.SeqLen)
	micros, work = costs.Span(s.Start, s.End)
	b[0], b[1] = scale(micros), scale(work)
	// A section's input is the fraction of the model that the span covers within it.
	b = b[costInputs:]
	for i := range sectionOf {
		from, to := i*m.operators, (i+1)*m.operators
		inside := min(s.End*sectionOf, to) - max(s.Start*sectionOf, from)
		b[i] = float32(max(inside, 0)) / float32(m.operators)
	}
	return micros, work
}

// oneHot sets the weight of each knot of an axis for a value, and returns the inputs that follow.
func oneHot(b []float32, axis []int, value int) []float32 {
	low, high := predictor.Beside(axis, value)
	b[low] = float32(1 - high)
	if high > 0 {
		b[low+1] = float32(high)
	}
	return b[len(axis):]
}

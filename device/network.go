package device

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/predictor"
)

// Falls reports whether a unit of a hidden layer of so many never rises when
// there are more operators. The others never fall. Weights between units of
// one kind must not be negative, those between the kinds not positive; only
// inputs that do not count operators have weights of any sign. With half of
// the units of each kind such a network can be any function that never falls.
func Falls(unit, units int) bool { return unit >= (units+1)/2 }

// Sign returns what the weight from input i to output o of a layer may be: 1
// for none below zero, -1 for none above, 0 for any. The inputs of the first
// layer are the encoder's, whose growing says which of them count operators.
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

// features are the models and groups that the network was made for.
func (n *Network) features() predictor.Features {
	return predictor.Features{Set: predictor.FeaturesModel, Spans: n.Spans, Models: n.Models}
}

func (n *Network) faults() (faults []error) {
	if n.Spans < 1 || n.Spans > MaxSpans {
		faults = append(faults, fmt.Errorf("groups of %d spans; the limit is %d", n.Spans, MaxSpans))
	}
	features := n.features()
	features.Spans = 1 // they were looked at
	if err := features.Validate(); err != nil {
		return append(faults, err)
	}
	for i := range n.Models {
		if _, _, whole := predictor.NewCostGrid(n.Models[i].Costs).Axes(); !whole {
			return append(faults, fmt.Errorf("the costs of model %s lie not on a grid", n.Models[i].Name))
		}
	}
	if _, err := predictor.NewNetwork(n.Layers); err != nil {
		return append(faults, err)
	}
	e := NewEncoder(n.Models)
	if width := n.Layers[0].Inputs; width != e.Width() {
		return append(faults, fmt.Errorf("the first layer has %d inputs, its models %d", width, e.Width()))
	}
	for i := range n.Layers {
		if err := n.signFault(i, e.Growing()); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

var errSign = errors.New("more operators would make a group faster")

func (n *Network) signFault(layer int, growing []bool) error {
	l := &n.Layers[layer]
	for at, w := range l.Weights {
		i, o := at%l.Inputs, at/l.Inputs
		if sign := Sign(layer, len(n.Layers), i, l.Inputs, o, l.Outputs, growing); w*float32(sign) < 0 {
			return fmt.Errorf("layer %d: weight %d is %v: %w", layer, at, w, errSign)
		}
	}
	return nil
}

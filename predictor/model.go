package predictor

import (
	"math"

	"github.com/overlapd/overlapd/models"
)

const (
	// maxExponent keeps exp finite. No group takes longer or shorter than its
	// base by anything near that factor.
	maxExponent = 20

	leastMicros = minNanos / 1e3
	mostMicros  = maxNanos / 1e3
)

// model is a predictor file ready to serve. It owns the memory that it works
// in and so is not safe for concurrent use.
type model struct {
	encoder *encoder
	network *Network
	output  string
	bases   [MaxRows]float64 // microseconds
}

// newModel returns the model of a file, or the error of its Validate. The file
// must not change while the model is in use.
func newModel(f *File) (*model, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	encoder, err := newEncoder(&f.Features)
	if err != nil {
		return nil, err
	}
	network, err := NewNetwork(f.Layers)
	if err != nil {
		return nil, err
	}
	return &model{encoder: encoder, network: network, output: f.Output}, nil
}

// Predict returns the latencies in microseconds of groups that the features of the
// file cover, or the error of Validate. It lays the network out for the one call;
// a [Predictor] does so once.
func (f *File) Predict(groups []models.Group) (micros []float64, err error) {
	m, err := newModel(f)
	if err != nil {
		return nil, err
	}
	micros = make([]float64, len(groups))
	m.predict(groups, micros)
	return micros, nil
}

// predict sets micros[i] to the latency in microseconds of groups[i], which
// the model covers: always finite, positive and at most MaxTime. It takes
// MaxRows groups at a time and does not allocate.
func (m *model) predict(groups []models.Group, micros []float64) {
	for len(groups) > 0 {
		n := min(len(groups), MaxRows)
		for i, g := range groups[:n] {
			m.bases[i] = m.encoder.encode(g, m.network.Row(i))
		}
		for i, out := range m.network.Run(n) {
			micros[i] = latency(m.output, m.bases[i], float64(out))
		}
		groups, micros = groups[n:], micros[n:]
	}
}

// latency takes what is no number for very long, so that no group is formed
// for it.
func latency(output string, base, out float64) float64 {
	micros := base * out
	if output == OutputRatio {
		micros = base * math.Exp(min(max(out, -maxExponent), maxExponent))
	}
	if math.IsNaN(micros) {
		return mostMicros
	}
	return min(max(micros, leastMicros), mostMicros)
}

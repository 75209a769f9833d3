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

// Model is a predictor file ready to serve. It owns the memory that it works
// in and so is not safe for concurrent use.
type Model struct {
	encoder *Encoder
	network *Network
	output  string
	bases   [MaxRows]float64 // microseconds
}

// NewModel returns the model of a file, or the error of its Validate. The file
// must not change while the model is in use.
func NewModel(f *File) (*Model, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	encoder, err := NewEncoder(&f.Features)
	if err != nil {
		return nil, err
	}
	network, err := NewNetwork(f.Layers)
	if err != nil {
		return nil, err
	}
	return &Model{encoder: encoder, network: network, output: f.Output}, nil
}

// Covers reports whether a group is of the kind that the model was trained on.
// Its spans name models by their position in the file.
func (m *Model) Covers(g models.Group) bool { return m.encoder.features.Covers(g) }

// Predict sets micros[i] to the latency in microseconds of groups[i], which
// the model covers: always finite, positive and at most MaxTime. It takes
// MaxRows groups at a time and does not allocate.
func (m *Model) Predict(groups []models.Group, micros []float64) {
	for len(groups) > 0 {
		n := min(len(groups), MaxRows)
		for i, g := range groups[:n] {
			m.bases[i] = m.encoder.Encode(g, m.network.Row(i))
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

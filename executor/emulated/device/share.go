package device

import (
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// InShare returns the device as an MPS client sees it that is limited to a percentage of the
// multiprocessors ([cuda/mps.Limits]). An operator whose work occupies less than the share
// takes as long as on the whole device. Any other operator takes as long as its work takes in
// the share. Work comes from the costs of the profile, which were inferred from spans that ran
// together.
//
// The model assumes that other shares have no effect. This is optimistic, because clients of a real
// GPU compete for its memory and caches. The spans of a group therefore run one after another.
func (m *Model) InShare(percent int) (*Model, error) {
	if percent < 1 || percent > 100 {
		return nil, fmt.Errorf("a share of %d %% of a device: want 1 to 100", percent)
	}
	n, err := NewModel(m.profile)
	if err == nil && percent < 100 {
		n.share = float64(percent) / 100
	}
	return n, err
}

// stretch returns by how much longer a span takes in its share than on the whole device, in
// microseconds. It is a sum over the operators, so more operators never take less.
func (m *Model) stretch(s *models.Span) float64 {
	share := m.share
	if s.Share > 0 {
		share = float64(s.Share) / float64(m.Units())
	}
	if share == 0 {
		return 0
	}
	key := batchOf{int(s.Service), s.Size, s.SeqLen, s.Share}
	sums := m.stretched[key]
	if sums == nil {
		of := m.encoder.models[s.Service]
		costs := of.costs.At(s.Size, s.SeqLen)
		sums = make([]float64, of.operators+1)
		for i := range of.operators {
			micros, work := costs.Span(i, i+1)
			sums[i+1] = sums[i] + max(min(work, micros)/share-micros, 0)
		}
		m.stretched[key] = sums
	}
	return sums[s.End] - sums[s.Start]
}

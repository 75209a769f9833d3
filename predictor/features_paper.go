package predictor

import "github.com/overlapd/overlapd/models"

const (
	paperSlot = 4      // inputs of a slot
	paperBase = 1000.0 // microseconds: the network gives milliseconds
)

// encodePaper sets the inputs of section 5.3, figure 8: a bit for each model,
// then first operator, last operator, batch size and sequence length of each
// span. Slots are in model order, and those without a span are zero.
func (e *Encoder) encodePaper(spans []models.Span, order *[MaxSpans]uint8, inputs []float32) float64 {
	slots := inputs[len(e.features.Models):]
	for k := range spans {
		s := &spans[order[k]]
		inputs[s.Service] = 1
		slot := slots[k*paperSlot:]
		slot[0], slot[1], slot[2], slot[3] = float32(s.Start), float32(s.End), float32(s.Size), float32(s.SeqLen)
	}
	return paperBase
}

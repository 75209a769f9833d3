package reproduce

import (
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
)

// solo is what a whole model takes alone on a device, 0 if that does not know
// it.
func solo(d sim.Device, model string, size, seqLen int) time.Duration {
	if model != sequenceModel {
		seqLen = 0
	}
	for i, m := range d.Models() {
		if m.Name == model {
			return d.Latency(models.Group{Spans: []models.Span{{
				Service: models.ServiceID(i), End: m.Operators, Size: size, SeqLen: seqLen,
			}}})
		}
	}
	return 0
}

// meanSolo is what a query of a deployment takes alone in the mean.
func meanSolo(d sim.Device, of *deployment) time.Duration {
	var sum time.Duration
	n := time.Duration(0)
	for i, m := range of.models {
		for _, size := range of.sizes[i] {
			for _, seqLen := range of.seqLens {
				sum += solo(d, m, size, seqLen)
				n++
			}
		}
	}
	return sum / max(n, 1)
}

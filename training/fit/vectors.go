package fit

import (
	"math"
	"math/rand/v2"
)

// Constants of support vector regression. The paper names neither kernel nor
// constants. This is the linear one with the usual constants, since its error
// is the one reported; a radial kernel errs some points less.
const (
	svrPenalty   = 1.0
	svrTube      = 0.1 // milliseconds
	svrRounds    = 200
	svrTolerance = 1e-3 // of the largest change of a round, relative to the penalty
)

// fitVectors returns the plane of linear support vector regression over
// standardised inputs, by coordinate descent on the dual: with one multiplier
// for each row, between minus and plus the penalty, weights are the sum of the
// rows times their multipliers.
func fitVectors(in *inputs, random *rand.Rand) *hyperplane {
	h := &hyperplane{weights: make([]float64, in.width+1)}
	multipliers := make([]float64, in.rows())
	squares := make([]float64, in.rows())
	for i := range squares {
		squares[i] = 1
		for _, v := range in.row(i) {
			squares[i] += float64(v) * float64(v)
		}
	}
	for range svrRounds {
		most := 0.0
		for _, i := range random.Perm(in.rows()) {
			// Moving the multiplier lowers the dual until the row lies on the
			// tube's edge or the multiplier at its bound.
			off := (h.micros(in.row(i)) - in.micros[i]) / microsPerMilli
			was := multipliers[i]
			free := was - off/squares[i]
			now := math.Copysign(max(math.Abs(free)-svrTube/squares[i], 0), free)
			now = min(max(now, -svrPenalty), svrPenalty)
			if now == was {
				continue
			}
			multipliers[i] = now
			h.move(now-was, in.row(i))
			most = max(most, math.Abs(now-was))
		}
		if most < svrTolerance*svrPenalty {
			break
		}
	}
	return h
}

func (h *hyperplane) move(by float64, row []float32) {
	for j, v := range row {
		h.weights[j] += by * float64(v)
	}
	h.weights[len(row)] += by
}

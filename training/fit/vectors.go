package fit

import (
	"math"
	"math/rand/v2"
)

// Constants of support vector regression. The paper names neither kernel, loss
// nor constants. These are the linear kernel, the squared loss outside the
// tube, and the constants that libraries begin with; they give the errors that
// the paper reports. The loss that is not squared errs three points less.
const (
	svrPenalty   = 1.0
	svrTube      = 0.1 // milliseconds
	svrRounds    = 300
	svrTolerance = 1e-4 // milliseconds, the largest change of a round
)

// fitVectors returns the plane of linear support vector regression over
// standardised inputs, by coordinate descent on the dual: each row has a
// multiplier, and the weights are the sum of the rows times theirs.
func fitVectors(in *inputs, random *rand.Rand) *hyperplane {
	const ridge = 1 / (2 * svrPenalty)
	h := &hyperplane{weights: make([]float64, in.width+1)}
	multipliers := make([]float64, in.rows())
	for range svrRounds {
		most := 0.0
		for _, i := range random.Perm(in.rows()) {
			row := in.row(i)
			curve := 1 + ridge // of the dual along the multiplier
			for _, v := range row {
				curve += float64(v) * float64(v)
			}
			off := (h.micros(row) - in.micros[i]) / microsPerMilli
			was := multipliers[i]
			free := was - (off+ridge*was)/curve
			now := math.Copysign(max(math.Abs(free)-svrTube/curve, 0), free)
			if now == was {
				continue
			}
			multipliers[i] = now
			h.move(now-was, row)
			most = max(most, math.Abs(now-was))
		}
		if most < svrTolerance {
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

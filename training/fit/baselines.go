package fit

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
)

// hyperplane is what linear regression and linear support vector regression
// fit: milliseconds as a weighted sum of standardised inputs.
type hyperplane struct {
	weights []float64 // the last is the constant
}

// smallSingular is the part of the largest singular value below which one
// counts as zero: among the inputs of section 5.3 some may be constant.
const smallSingular = 1e-9

const microsPerMilli = 1e3

var errNoFactors = errors.New("the singular values of the inputs cannot be found")

// fitLinear returns the plane of least squares over standardised inputs.
func fitLinear(in *inputs) (*hyperplane, error) {
	x := mat.NewDense(in.rows(), in.width+1, nil)
	y := mat.NewVecDense(in.rows(), nil)
	for i := range in.rows() {
		for j, v := range in.row(i) {
			x.Set(i, j, float64(v))
		}
		x.Set(i, in.width, 1)
		y.SetVec(i, in.micros[i]/microsPerMilli)
	}
	// Of the products, since there are far more rows than inputs. This squares
	// the singular values.
	var xx mat.Dense
	var xy, w mat.VecDense
	xx.Mul(x.T(), x)
	xy.MulVec(x.T(), y)
	var svd mat.SVD
	if !svd.Factorize(&xx, mat.SVDThin) {
		return nil, fmt.Errorf("linear regression: %w", errNoFactors)
	}
	svd.SolveVecTo(&w, &xy, svd.Rank(smallSingular))
	return &hyperplane{weights: w.RawVector().Data}, nil
}

// micros returns the prediction for standardised inputs.
func (h *hyperplane) micros(row []float32) float64 {
	last := len(h.weights) - 1
	sum := h.weights[last]
	for j, v := range row {
		sum += h.weights[j] * float64(v)
	}
	return sum * microsPerMilli
}

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

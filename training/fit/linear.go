package fit

import (
	"errors"
	"fmt"

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

// micros returns what the plane says of standardised inputs.
func (h *hyperplane) micros(row []float32) float64 {
	last := len(h.weights) - 1
	sum := h.weights[last]
	for j, v := range row {
		sum += h.weights[j] * float64(v)
	}
	return sum * microsPerMilli
}

package selection

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// negligible is the probability below which the count of arrivals is cut off.
const negligible = 1e-14

// logCount returns the logarithm of the probability of k arrivals at the central queue within t
// milliseconds: of a Poisson distribution if CV is 1, else of a negative binomial one.
func (w *Worker) logCount(k int, t float64) float64 {
	mean, n := w.Rate/1000*t, float64(k)
	if mean <= 0 {
		if k == 0 {
			return 0
		}
		return math.Inf(-1)
	}
	dispersion := w.CV * w.CV
	all, _ := math.Lgamma(n + 1)
	if dispersion <= 1+1e-9 {
		return n*math.Log(mean) - mean - all
	}
	size := mean / (dispersion - 1)
	above, _ := math.Lgamma(n + size)
	below, _ := math.Lgamma(size)
	return above - all - below - size*math.Log(dispersion) + n*math.Log1p(-1/dispersion)
}

// counts returns the probability of each number of arrivals within t milliseconds, up to the first
// negligible one above the mean. The probabilities sum to 1.
func (w *Worker) counts(t float64) (p []float64) {
	mean := w.Rate / 1000 * max(t, 0)
	for k := 0; ; k++ {
		q := math.Exp(w.logCount(k, t))
		if p = append(p, q); float64(k) >= mean && q < negligible {
			break
		}
	}
	floats.Scale(1/floats.Sum(p), p)
	return p
}

// phase returns, for each r below K, the probability that the central queue has received r queries
// since the worker's last one, given that the worker has n queries and the first of them has waited
// for the given time. These are the conditional probabilities of interval A (section 4.4.2).
func (w *Worker) phase(n int, waited float64) []float64 {
	p := make([]float64, w.Workers)
	if waited <= 0 {
		// The first query has only just arrived, and any others arrived with it.
		p[0] = 1
		return p
	}
	for r := range p {
		p[r] = w.logCount((n-1)*w.Workers+r, waited)
	}
	most := floats.Max(p)
	for r := range p {
		p[r] = math.Exp(p[r] - most)
	}
	floats.Scale(1/floats.Sum(p), p)
	return p
}

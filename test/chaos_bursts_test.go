package test

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The arrivals of the code service in the trace of Azure's LLM inference of
// 2023 (Patel et al., Splitwise, ISCA 2024): 2.6 a second, whose times between
// them have a coefficient of variation of 13.
const azureVariation = 13

// bursts draws times between arrivals with the variation of the trace: of a
// hyperexponential distribution with balanced means, so that most come at once
// and the rest after long pauses. Their mean is 1.
func bursts(random *rand.Rand) func() float64 {
	p := (1 + math.Sqrt(float64(azureVariation*azureVariation-1)/float64(azureVariation*azureVariation+1))) / 2
	return func() float64 {
		if random.Float64() < p {
			return random.ExpFloat64() / (2 * p)
		}
		return random.ExpFloat64() / (2 * (1 - p))
	}
}

func TestBurstsAreAsBurstyAsTheTrace(t *testing.T) {
	t.Parallel()
	const n = 200_000
	next, sum, squares := bursts(rand.New(rand.NewPCG(1, 2))), 0.0, 0.0
	for range n {
		v := next()
		sum, squares = sum+v, squares+v*v
	}
	mean := sum / n
	if cv := math.Sqrt(squares/n-mean*mean) / mean; math.Abs(mean-1) > 0.1 || math.Abs(cv-azureVariation) > 1 {
		t.Errorf("mean %.2f, coefficient of variation %.1f, want 1 and %d", mean, cv, azureVariation)
	}
}

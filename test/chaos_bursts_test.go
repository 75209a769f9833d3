package test

import (
	"encoding/csv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
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

// azureTrace returns the times between the arrivals of the real trace, their
// mean made 1, from some arrival on; or false where the file is not there.
func azureTrace(random *rand.Rand) (next func() float64, ok bool) {
	file, err := os.Open(filepath.Join("..", "..", "shared", "data", "traces", "azure-llm-2023", "AzureLLMInferenceTrace_code.csv"))
	if err != nil {
		return nil, false
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, false
	}
	var between []float64
	var last time.Time
	total := 0.0
	for _, row := range rows[1:] {
		t, err := time.Parse("2006-01-02 15:04:05", row[0])
		if err != nil {
			return nil, false
		}
		if !last.IsZero() {
			between = append(between, t.Sub(last).Seconds())
			total += t.Sub(last).Seconds()
		}
		last = t
	}
	mean, at := total/float64(len(between)), random.IntN(len(between))
	return func() float64 {
		at = (at + 1) % len(between)
		return between[at] / mean
	}, true
}

// variation returns the mean and the coefficient of variation of n draws.
func variation(next func() float64, n int) (mean, cv float64) {
	var sum, squares float64
	for range n {
		v := next()
		sum += v
		squares += v * v
	}
	mean = sum / float64(n)
	return mean, math.Sqrt(squares/float64(n)-mean*mean) / mean
}

func TestBurstsAreAsBurstyAsTheTrace(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	sources := map[string]func() float64{"drawn": bursts(random)}
	if next, ok := azureTrace(random); ok {
		sources["the trace"] = next
	}
	for name, next := range sources {
		mean, cv := variation(next, 200_000)
		if math.Abs(mean-1) > 0.1 || math.Abs(cv-azureVariation) > 1 {
			t.Errorf("%s: mean %.2f, coefficient of variation %.1f, want 1 and %d", name, mean, cv, azureVariation)
		}
	}
}

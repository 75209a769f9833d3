package predictor

import "time"

// Format is the first field of every predictor file.
const Format = "overlapd-predictor/1"

// File is a predictor as it is stored: everything needed to serve it.
type File struct {
	Format   string    `json:"format"`
	Device   string    `json:"device"`
	Created  time.Time `json:"created"`
	Recipe   string    `json:"recipe"`
	Seed     uint64    `json:"seed"`
	Rows     int       `json:"rows"` // measured groups that it was trained on
	Features Features  `json:"features"`
	Output   Output    `json:"output"`
	Layers   []Layer   `json:"layers"`
	Test     Errors    `json:"test"` // on rows kept aside
}

// Output says what the last layer gives.
type Output string

// The outputs.
const (
	OutputRatio  Output = "log-ratio" // latency = base * exp(output)
	OutputMicros Output = "scaled"    // latency = base * output; the base may be a constant
)

// Layer is a dense layer. All but the last are followed by ReLU.
type Layer struct {
	Inputs  int       `json:"inputs"`
	Outputs int       `json:"outputs"`
	Weights []float32 `json:"weights"` // Weights[o*Inputs+i]
	Bias    []float32 `json:"bias"`
}

// Errors is how far predictions were off.
type Errors struct {
	Rows      int       `json:"rows"`
	MAPE      float64   `json:"mape"`      // mean absolute percentage error
	Quantiles Quantiles `json:"quantiles"` // of measured/predicted
}

// Quantiles are quantiles of measured/predicted.
type Quantiles struct {
	P01 float64 `json:"p01"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

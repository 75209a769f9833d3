package predictor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/overlapd/overlapd/intake"
)

// Format is the first field of every predictor file.
const Format = "overlapd-predictor/1"

// MaxFileBytes limits a predictor file.
const MaxFileBytes = 32 << 20

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

// kind is that of predictor files.
var kind = intake.Kind{Format: Format, MaxBytes: MaxFileBytes, Foreign: ErrFormat, Damaged: ErrDamaged}

// ReadFile reads a predictor file and validates it. Its errors name the path
// and what to do.
func ReadFile(path string) (*File, error) {
	f := new(File)
	if err := kind.ReadFile(path, f); err != nil {
		return nil, remedy(err)
	}
	if err := f.Validate(); err != nil {
		return nil, remedy(&intake.Fault{File: path, Err: err})
	}
	return f, nil
}

func remedy(err error) error { return fmt.Errorf("%w; overlapd train makes a predictor", err) }

// Read reads a predictor to the end of r and validates it. It returns an error
// that wraps [ErrFormat] or [ErrDamaged] if it is not one.
func Read(r io.Reader) (*File, error) {
	f := new(File)
	if err := kind.Read(r, "", f); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return f, nil
}

// WriteFile validates a predictor and writes it. Whoever reads the path finds
// the old file or the whole new one, also after a crash.
func (f *File) WriteFile(path string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	return kind.WriteFile(path, f)
}

// Identity returns what tells a predictor from others.
func (f *File) Identity() string {
	data, err := json.Marshal(f)
	if err != nil {
		return "" // it holds numbers that are none, and is refused wherever it is used
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

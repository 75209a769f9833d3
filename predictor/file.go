package predictor

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Format is the first field of every predictor file.
const Format = "overlapd-predictor/1"

// MaxFileBytes limits a predictor file.
const MaxFileBytes = 32 << 20

// fileMode is that of a new file: whoever may look at the host may read it.
const fileMode = 0o644

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

// ReadFile reads a predictor file and validates it.
func ReadFile(path string) (*File, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := Read(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Read reads a predictor to the end of r and validates it. It returns an error
// that wraps [ErrFormat] or [ErrDamaged] if it is not one.
func Read(r io.Reader) (*File, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrDamaged, MaxFileBytes)
	}
	if err := checkFormat(data); err != nil {
		return nil, err
	}
	f := new(File)
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: more follows its end", ErrDamaged)
	}
	if at := findNull(data); at >= 0 {
		return nil, fmt.Errorf("%w: byte %d: null in place of a value", ErrDamaged, at)
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return f, nil
}

// checkFormat looks at nothing but the format, so that a file of another
// version is not blamed for its fields.
func checkFormat(data []byte) error {
	if text := bytes.TrimLeft(data, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return fmt.Errorf("%w: not a JSON object", ErrFormat)
	}
	var head struct {
		Format string `json:"format"`
	}
	err := json.Unmarshal(data, &head)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(data)):
		return fmt.Errorf("%w: truncated after %d bytes", ErrDamaged, len(data))
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: byte %d: %w", ErrDamaged, syntax.Offset, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrFormat, err)
	case head.Format != Format:
		return fmt.Errorf("%w: its format is %.40q, want %q", ErrFormat, head.Format, Format)
	}
	return nil
}

// findNull returns where JSON holds a null, or -1. The decoder takes a null
// for a zero, but it is how many a tool writes NaN. Outside of strings no
// other word has an n.
func findNull(data []byte) int {
	inside := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inside = !inside
		case c == '\\' && inside:
			i++
		case c == 'n' && !inside:
			return i
		}
	}
	return -1
}

// WriteFile validates a predictor and writes it. Whoever reads the path finds
// the old file or the whole new one, also after a crash.
func (f *File) WriteFile(path string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if len(data) >= MaxFileBytes {
		return fmt.Errorf("%w: larger than %d bytes", ErrDamaged, MaxFileBytes)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	if err = fill(temp, append(data, '\n')); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

func fill(w *os.File, data []byte) error {
	_, err := w.Write(data)
	return errors.Join(err, w.Chmod(fileMode), w.Sync(), w.Close())
}

// syncFolder makes a rename last.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
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

package predictor

import (
	"errors"
	"fmt"
	"math"
)

// Limits of what a predictor file may hold.
const (
	MaxLayers = 16
	MaxWidth  = 4096 // of a layer, inputs or outputs
	maxName   = 1024 // bytes of the device and the recipe
	maxFaults = 20   // that one error lists
	maxRatio  = 1e6  // of measured to predicted
)

// Validate returns an error that wraps [ErrFormat] or [ErrDamaged] and lists
// every fault, unless the predictor can be served.
func (f *File) Validate() error {
	if f.Format != Format {
		return fmt.Errorf("%w: its format is %.40q, want %q", ErrFormat, f.Format, Format)
	}
	var faults []error
	if err := f.Features.Validate(); err != nil {
		faults = append(faults, err)
	}
	faults = append(faults, f.headFaults()...)
	faults = append(faults, layerFaults(f.Layers)...)
	if width := f.Features.Width(); len(f.Layers) > 0 && f.Layers[0].Inputs != width {
		faults = append(faults, fmt.Errorf("the first layer has %d inputs, its features %d", f.Layers[0].Inputs, width))
	}
	faults = append(faults, f.Test.faults()...)
	if len(faults) == 0 {
		return nil
	}
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], fmt.Errorf("and %d more", more))
	}
	return fmt.Errorf("%w: %w", ErrDamaged, errors.Join(faults...))
}

func (f *File) headFaults() (faults []error) {
	if f.Output != OutputRatio && f.Output != OutputMicros {
		faults = append(faults, fmt.Errorf("unknown output %.40q", f.Output))
	}
	if f.Rows < 1 {
		faults = append(faults, fmt.Errorf("trained on %d rows", f.Rows))
	}
	if len(f.Device) > maxName || len(f.Recipe) > maxName {
		faults = append(faults, fmt.Errorf("a device of %d bytes and a recipe of %d; the limit is %d", len(f.Device), len(f.Recipe), maxName))
	}
	return faults
}

// layerFaults also refuses what would take more memory than the weights that
// are there.
func layerFaults(layers []Layer) (faults []error) {
	if len(layers) == 0 || len(layers) > MaxLayers {
		return []error{fmt.Errorf("%d layers; the limit is %d", len(layers), MaxLayers)}
	}
	for i := range layers {
		l := &layers[i]
		if err := l.fault(); err != nil {
			faults = append(faults, fmt.Errorf("layer %d: %w", i, err))
		}
		if i > 0 && l.Inputs != layers[i-1].Outputs {
			faults = append(faults, fmt.Errorf("layer %d has %d inputs, the one before %d outputs", i, l.Inputs, layers[i-1].Outputs))
		}
	}
	if l := layers[len(layers)-1]; l.Outputs != 1 {
		faults = append(faults, fmt.Errorf("the last layer has %d outputs, want 1", l.Outputs))
	}
	return faults
}

func (l *Layer) fault() error {
	switch {
	case l.Inputs < 1 || l.Inputs > MaxWidth || l.Outputs < 1 || l.Outputs > MaxWidth:
		return fmt.Errorf("%d inputs and %d outputs; the limit is %d", l.Inputs, l.Outputs, MaxWidth)
	case len(l.Weights) != l.Inputs*l.Outputs:
		return fmt.Errorf("%d weights for %d inputs and %d outputs", len(l.Weights), l.Inputs, l.Outputs)
	case len(l.Bias) != l.Outputs:
		return fmt.Errorf("a bias of %d for %d outputs", len(l.Bias), l.Outputs)
	}
	for i, w := range l.Weights {
		if !finite(float64(w)) {
			return fmt.Errorf("weight %d is %v", i, w)
		}
	}
	for i, b := range l.Bias {
		if !finite(float64(b)) {
			return fmt.Errorf("bias %d is %v", i, b)
		}
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func (e *Errors) faults() (faults []error) {
	if e.Rows < 0 {
		faults = append(faults, fmt.Errorf("tested on %d rows", e.Rows))
	}
	if !(e.MAPE >= 0 && finite(e.MAPE)) {
		faults = append(faults, fmt.Errorf("a mean absolute percentage error of %v", e.MAPE))
	}
	q := e.Quantiles
	if !(0 < q.P01 && q.P01 <= q.P50 && q.P50 <= q.P90 && q.P90 <= q.P95 && q.P95 <= q.P99 && q.P99 <= maxRatio) {
		faults = append(faults, fmt.Errorf("quantiles of measured/predicted are not positive and in order: %+v", q))
	}
	return faults
}

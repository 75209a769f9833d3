package cutcost

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
)

// Deviation is how far the outputs of a model on a device are from those of the
// whole model on the CPU.
type Deviation struct {
	Outputs   int     `json:"outputs"`
	Elements  int64   `json:"elements"`
	Largest   float64 `json:"largest"`    // value of the CPU, without its sign
	MaxAbs    float64 `json:"max_abs"`    // largest difference
	MaxRel    float64 `json:"max_rel"`    // largest difference of an element, relative to it, or to a thousandth of the largest if that is more
	RelToMax  float64 `json:"rel_to_max"` // the largest difference relative to the largest value of its output
	NotFinite int64   `json:"not_finite"` // elements that are infinite or no number on one side only
}

// smallest is the part of the largest value of an output below which values
// count as large as that: what is left of a sum that cancels has no digits.
const smallest = 1e-3

// compareOutputs compares the outputs of a device with those of the CPU.
func compareOutputs(got [][]byte, want []*ort.Value) (Deviation, error) {
	var d Deviation
	if len(got) != len(want) {
		return d, fmt.Errorf("%d outputs on the device, %d on the CPU", len(got), len(want))
	}
	for i, v := range want {
		data, err := v.Bytes()
		if err != nil {
			return d, fmt.Errorf("output %d: %w", i, err)
		}
		if err := d.add(got[i], data, v.Elem()); err != nil {
			return d, fmt.Errorf("output %d: %w", i, err)
		}
	}
	return d, nil
}

// add takes in one output.
func (d *Deviation) add(got, want []byte, elem ort.ElementType) error {
	size, number := decoder(elem)
	switch {
	case number == nil:
		return fmt.Errorf("elements of type %s cannot be compared", elem)
	case len(got) != len(want) || len(want)%size != 0:
		return fmt.Errorf("%d bytes on the device, %d on the CPU", len(got), len(want))
	}
	largest := 0.0
	for at := 0; at < len(want); at += size {
		if w := math.Abs(number(want[at:])); !math.IsInf(w, 0) && !math.IsNaN(w) {
			largest = max(largest, w)
		}
	}
	worst := 0.0
	for at := 0; at < len(want); at += size {
		g, w := number(got[at:]), number(want[at:])
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		apart := math.Abs(g - w)
		if math.IsNaN(apart) || math.IsInf(apart, 0) {
			d.NotFinite++
			continue
		}
		worst = max(worst, apart)
		d.MaxRel = max(d.MaxRel, apart/max(math.Abs(w), smallest*largest, math.SmallestNonzeroFloat64))
	}
	d.Outputs++
	d.Elements += int64(len(want) / size)
	d.Largest, d.MaxAbs = max(d.Largest, largest), max(d.MaxAbs, worst)
	if worst > 0 {
		d.RelToMax = max(d.RelToMax, worst/max(largest, math.SmallestNonzeroFloat64))
	}
	return nil
}

// decoder returns the size of an element and what reads one, nil if the type is
// none that models of services return.
func decoder(elem ort.ElementType) (int, func([]byte) float64) {
	little := binary.LittleEndian
	switch elem {
	case ort.Float32:
		return 4, func(b []byte) float64 { return float64(math.Float32frombits(little.Uint32(b))) }
	case ort.Float64:
		return 8, func(b []byte) float64 { return math.Float64frombits(little.Uint64(b)) }
	case ort.Float16:
		return 2, func(b []byte) float64 { return models.DecodeFloat16(little.Uint16(b)) }
	case ort.Int32:
		return 4, func(b []byte) float64 { return float64(int32(little.Uint32(b))) }
	case ort.Int64:
		return 8, func(b []byte) float64 { return float64(int64(little.Uint64(b))) }
	}
	return 1, nil
}

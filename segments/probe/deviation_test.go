package probe

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
)

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func TestDeviation(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		got, want []byte
		expect    Deviation
	}{
		"equal":             {floats(1, -8), floats(1, -8), Deviation{Outputs: 1, Elements: 2, Largest: 8}},
		"apart":             {floats(1.5, -8), floats(1, -8), Deviation{Outputs: 1, Elements: 2, Largest: 8, MaxAbs: .5, MaxRel: .5, RelToMax: .0625}},
		"next to nothing":   {floats(.5, 1000), floats(0, 1000), Deviation{Outputs: 1, Elements: 2, Largest: 1000, MaxAbs: .5, MaxRel: .5, RelToMax: .0005}},
		"no number on both": {floats(nan, 2), floats(nan, 2), Deviation{Outputs: 1, Elements: 2, Largest: 2}},
		"no number on one":  {floats(nan, 2), floats(1, 2), Deviation{Outputs: 1, Elements: 2, Largest: 2, NotFinite: 1}},
		"infinite on one":   {floats(1, 2), floats(1, inf), Deviation{Outputs: 1, Elements: 2, Largest: 1, NotFinite: 1}},
		"nothing":           {nil, nil, Deviation{Outputs: 1}},
	} {
		var d Deviation
		if err := d.add(c.got, c.want, models.Float32); err != nil || d != c.expect {
			t.Errorf("%s: got %+v, %v, want %+v", name, d, err, c.expect)
		}
	}
}

func TestDeviationRefuses(t *testing.T) {
	var d Deviation
	if err := d.add(floats(1), floats(1, 2), models.Float32); err == nil || !strings.Contains(err.Error(), "4 bytes on the device, 8 on the CPU") {
		t.Errorf("got %v", err)
	}
	if err := d.add(nil, nil, models.String); err == nil || !strings.Contains(err.Error(), "cannot be compared") {
		t.Errorf("got %v", err)
	}
}

func TestDecoderReadsIntegers(t *testing.T) {
	for elem, b := range map[models.DataType][]byte{
		models.Int32:   {0xfe, 0xff, 0xff, 0xff},
		models.Int64:   {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		models.Float64: binary.LittleEndian.AppendUint64(nil, math.Float64bits(-2)),
		models.Float16: {0x00, 0xc0},
	} {
		size, number := decoder(elem)
		if size != len(b) || number(b) != -2 {
			t.Errorf("%s of %d bytes is %v", elem, size, number(b))
		}
	}
}

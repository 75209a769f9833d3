package zoo

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/overlapd/overlapd/models"
)

func TestTensorEncode(t *testing.T) {
	floats := tensor{elem: models.Float32, dims: []int64{2, 3}, fill: fill{center: 1.5}}
	halves := tensor{elem: models.Float16, dims: []int64{6}, fill: fill{center: 1.5}}
	indices := tensor{elem: models.Int64, dims: []int64{3}, fill: fill{integers: []int64{-1, 0, 1 << 40}}}
	for _, x := range []struct {
		tensor
		bytes int64
	}{{floats, 24}, {halves, 12}, {indices, 24}} {
		if got := x.tensor.bytes(); got != x.bytes {
			t.Fatalf("%s: %d bytes, want %d", x.elem, got, x.bytes)
		}
	}
	b := make([]byte, 24)
	floats.encode(b, 0, newStream(0, ""))
	if got := math.Float32frombits(binary.LittleEndian.Uint32(b[20:])); got != 1.5 {
		t.Errorf("the last float is %v", got)
	}
	halves.encode(b[:12], 0, newStream(0, ""))
	if got := binary.LittleEndian.Uint16(b[10:]); got != 0x3e00 {
		t.Errorf("the last half is %#x", got)
	}
	indices.encode(b[:16], 1, newStream(0, ""))
	if a, z := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:])); a != 0 || z != 1<<40 {
		t.Errorf("the last integers are %d and %d", a, z)
	}
}

// Weights in half precision must stay clear of what a half cannot hold.
func TestHalvesAreFinite(t *testing.T) {
	for _, name := range Names() {
		g := lookup(t, name).graph()
		for _, x := range g.tensors {
			if x.elem != models.Float16 {
				continue
			}
			f := x.fill
			for _, v := range []float32{f.center - f.spread, f.center + f.spread} {
				if models.EncodeFloat16(v)&0x7c00 == 0x7c00 {
					t.Errorf("%s: %s holds %v", name, x.name, v)
				}
			}
		}
	}
}

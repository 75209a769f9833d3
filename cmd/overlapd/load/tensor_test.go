package load

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestFillReplacesOpenDimensions(t *testing.T) {
	o := DefaultOptions()
	o.Batch, o.SeqLen = 4, 16
	for _, tc := range []struct {
		name        string
		shape, want []int64
	}{
		{"ids", []int64{-1, -1}, []int64{4, 16}},
		{"x", []int64{1, -1, 3}, []int64{1, 16, 3}},
		{"scalar", nil, []int64{}},
	} {
		if got := o.fill(tc.shape); !slices.Equal(got, tc.want) {
			t.Errorf("%s %v became %v, want %v", tc.name, tc.shape, got, tc.want)
		}
	}
}

func TestDrawnValuesSuitTheInput(t *testing.T) {
	for _, tc := range []struct {
		name, datatype string
		lo, hi         float64
	}{
		{"attention_mask", "INT64", 1, 1},
		{"mask", "FP32", 1, 1},
		{"token_type_ids", "INT64", 0, 0},
		{"input_ids", "INT64", 0, 999},
		{"flags", "BOOL", 0, 1},
		{"bytes", "INT8", 0, 127},
		{"pixels", "UINT8", 0, 255},
		{"x", "FP32", -7, 7},
	} {
		in, err := newTensor(tc.name, tc.datatype, []int64{1000})
		if err != nil {
			t.Fatal(err)
		}
		value := in.draw(rand.New(rand.NewPCG(1, 1)), 1000)
		for range in.count {
			if v := value(); v < tc.lo || v > tc.hi {
				t.Fatalf("%s %s: %g is outside %g to %g", tc.name, tc.datatype, v, tc.lo, tc.hi)
			}
		}
	}
}

func TestBinaryEncoding(t *testing.T) {
	for datatype, want := range map[string][]byte{
		"INT8":   {5, 5},
		"UINT16": {5, 0, 5, 0},
		"INT32":  {5, 0, 0, 0, 5, 0, 0, 0},
		"INT64":  {5, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0},
		"FP16":   {0x00, 0x45, 0x00, 0x45},
		"BF16":   {0xa0, 0x40, 0xa0, 0x40},
		"FP32":   {0, 0, 0xa0, 0x40, 0, 0, 0xa0, 0x40},
		"FP64":   {0, 0, 0, 0, 0, 0, 0x14, 0x40, 0, 0, 0, 0, 0, 0, 0x14, 0x40},
		"BYTES":  {1, 0, 0, 0, '5', 1, 0, 0, 0, '5'},
	} {
		in, err := newTensor("x", datatype, []int64{2})
		if err != nil {
			t.Fatal(err)
		}
		if got := in.appendBinary(nil, func() float64 { return 5 }); !slices.Equal(got, want) {
			t.Errorf("%s: % x, want % x", datatype, got, want)
		}
	}
}

func TestJSONEncodingIsJSON(t *testing.T) {
	for datatype, want := range map[string]string{
		"FP32": `[1,1]`, "FP64": `[1,1]`, "INT64": `[1,1]`, "UINT8": `[1,1]`,
		"BOOL": `[true,true]`, "BYTES": `["1","1"]`,
	} {
		in, err := newTensor("x", datatype, []int64{2})
		if err != nil {
			t.Fatal(err)
		}
		got, err := in.appendJSON(nil, func() float64 { return 1 })
		if err != nil || string(got) != want || !json.Valid(got) {
			t.Errorf("%s: %s and error %v, want %s", datatype, got, err, want)
		}
	}
	half, _ := newTensor("x", "FP16", []int64{1})
	if _, err := half.appendJSON(nil, nil); !errors.Is(err, errInput) {
		t.Errorf("FP16 as JSON: error %v, want errInput", err)
	}
}

func TestTensorRefuses(t *testing.T) {
	for _, tc := range []struct {
		datatype string
		shape    []int64
		want     error
	}{
		{"FP8", []int64{1}, errInput},
		{"FP32", []int64{-1}, errInput},
		{"FP32", []int64{1 << 40, 1 << 40}, errInput},
		{"FP64", []int64{maxTensorBytes / 4}, errInput},
	} {
		if _, err := newTensor("x", tc.datatype, tc.shape); !errors.Is(err, tc.want) {
			t.Errorf("%s %v: error %v, want %v", tc.datatype, tc.shape, err, tc.want)
		}
	}
}

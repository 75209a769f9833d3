package rpc

import (
	"bytes"
	"testing"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

func TestPackContents(t *testing.T) {
	for name, c := range map[string]struct {
		typ  models.DataType
		c    *inference.InferTensorContents
		want string
		err  string
	}{
		"bool":          {models.Bool, &inference.InferTensorContents{BoolContents: []bool{true, false}}, "\x01\x00", ""},
		"int8":          {models.Int8, &inference.InferTensorContents{IntContents: []int32{-1, 127, -128}}, "\xff\x7f\x80", ""},
		"int8 over":     {models.Int8, &inference.InferTensorContents{IntContents: []int32{128}}, "", "range of INT8"},
		"int8 under":    {models.Int8, &inference.InferTensorContents{IntContents: []int32{-129}}, "", "range of INT8"},
		"int16":         {models.Int16, &inference.InferTensorContents{IntContents: []int32{-2}}, "\xfe\xff", ""},
		"int16 over":    {models.Int16, &inference.InferTensorContents{IntContents: []int32{1 << 15}}, "", "range of INT16"},
		"int32":         {models.Int32, &inference.InferTensorContents{IntContents: []int32{-1 << 31}}, "\x00\x00\x00\x80", ""},
		"uint8 over":    {models.Uint8, &inference.InferTensorContents{UintContents: []uint32{256}}, "", "range of UINT8"},
		"uint16":        {models.Uint16, &inference.InferTensorContents{UintContents: []uint32{0xffff}}, "\xff\xff", ""},
		"uint32":        {models.Uint32, &inference.InferTensorContents{UintContents: []uint32{0xfffffffe}}, "\xfe\xff\xff\xff", ""},
		"int64":         {models.Int64, &inference.InferTensorContents{Int64Contents: []int64{-2}}, "\xfe\xff\xff\xff\xff\xff\xff\xff", ""},
		"uint64":        {models.Uint64, &inference.InferTensorContents{Uint64Contents: []uint64{3}}, "\x03\x00\x00\x00\x00\x00\x00\x00", ""},
		"fp32":          {models.Float32, &inference.InferTensorContents{Fp32Contents: []float32{1}}, "\x00\x00\x80\x3f", ""},
		"fp64":          {models.Float64, &inference.InferTensorContents{Fp64Contents: []float64{1}}, "\x00\x00\x00\x00\x00\x00\xf0\x3f", ""},
		"bytes":         {models.String, &inference.InferTensorContents{BytesContents: [][]byte{[]byte("ab"), nil}}, "\x02\x00\x00\x00ab\x00\x00\x00\x00", ""},
		"none":          {models.Float32, nil, "", ""},
		"another type":  {models.Int32, &inference.InferTensorContents{Int64Contents: []int64{1}}, "", "another type"},
		"two types":     {models.Int32, &inference.InferTensorContents{IntContents: []int32{1}, Fp32Contents: []float32{1}}, "", "another type"},
		"fp16":          {models.Float16, &inference.InferTensorContents{Fp32Contents: []float32{1}}, "", "raw_input_contents"},
		"bf16 and none": {models.BFloat16, nil, "", "raw_input_contents"},
	} {
		got, fault := packContents("X", c.typ, c.c)
		if c.err == "" && (fault != nil || string(got) != c.want) {
			t.Errorf("%s: got % x, %v; want % x", name, got, fault, c.want)
		}
		if c.err != "" {
			says(t, name, fault, c.err)
		}
	}
}

// says fails the test unless a fault is one of the client's and has this text.
func says(t *testing.T, name string, fault *query.Error, text string) {
	t.Helper()
	if fault == nil || fault.Status != 400 || !bytes.Contains([]byte(fault.Message), []byte(text)) {
		t.Errorf("%s: got %v, want a fault that says %q", name, fault, text)
	}
}

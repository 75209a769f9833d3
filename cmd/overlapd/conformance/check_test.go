package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
)

func newChecker(t *testing.T) *checker {
	t.Helper()
	path, err := ort.Find()
	if err != nil {
		t.Skip(err)
	}
	lib, err := ort.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	env, err := lib.NewEnv(ort.EnvOptions{IntraThreads: 1, SharedArena: true, LogLevel: ort.LogFatal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	})
	return &checker{env: env, cache: t.TempDir(), plain: func() {}}
}

// tensor is a TensorProto of raw data.
func tensor(name string, elem models.DataType, dims []int64, data []byte) []byte {
	var b []byte
	for _, d := range dims {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(d))
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(elem))
	b = protowire.AppendString(protowire.AppendTag(b, 8, protowire.BytesType), name)
	return protowire.AppendBytes(protowire.AppendTag(b, 9, protowire.BytesType), data)
}

func int32s(value int32) []byte {
	var b []byte
	for range 16 {
		b = binary.LittleEndian.AppendUint32(b, uint32(value))
	}
	return b
}

// addSet makes a model that adds and subtracts, with a set of data in which
// the sum of 2 and 1 is the given number.
func addSet(t *testing.T, sum int32, swapped bool) model {
	t.Helper()
	dir := t.TempDir()
	path, err := zoo.Build("tiny_add", dir, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	set := filepath.Join(dir, "test_data_set_0")
	if err := os.Mkdir(set, 0o700); err != nil {
		t.Fatal(err)
	}
	inputs := []string{"INPUT0", "INPUT1"}
	if swapped { // and one more, so that names must decide
		inputs = []string{"INPUT1", "another", "INPUT0"}
	}
	values := map[string]int32{"INPUT0": 2, "INPUT1": 1}
	write := func(file, name string, value int32) {
		if err := os.WriteFile(filepath.Join(set, file), tensor(name, models.Int32, []int64{1, 16}, int32s(value)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range inputs {
		write(fmt.Sprintf("input_%d.pb", i), name, values[name])
	}
	write("output_0.pb", "OUTPUT0", sum)
	write("output_1.pb", "OUTPUT1", 1)
	m, err := describe(dir, path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestCheck(t *testing.T) {
	c := newChecker(t)
	for name, test := range map[string]struct {
		sum     int32
		swapped bool
		want    Outcome
	}{
		"right":             {3, false, Equal},
		"right, by name":    {3, true, Equal},
		"not what it gives": {4, false, Skipped},
	} {
		r := c.check(addSet(t, test.sum, test.swapped))
		if r.Outcome != test.want || r.Outcome == Equal && (!r.Checked || r.Operators != 2 || r.Close) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestCheckFindsDifference gives the cut model other inputs than the whole one
// had.
func TestCheckFindsDifference(t *testing.T) {
	c := newChecker(t)
	m := addSet(t, 3, false)
	row := func(v int32) value {
		return value{kind: ort.KindTensor, elem: ort.Int32, dims: []int64{1, 16}, data: int32s(v)}
	}
	s := set{inputs: []value{row(2), row(1)}}
	for outputs, want := range map[*[]value]string{
		{row(3), row(1)}: "",
		{row(3), row(2)}: "output 1",
		{row(3)}:         "expected 1",
	} {
		_, err := c.compareCut(m, 0, []set{s}, [][]value{*outputs}, false)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

func TestRamp(t *testing.T) {
	v, err := ramp(ort.Info{Type: ort.TypeInfo{Kind: ort.KindTensor, Elem: ort.Float32, Dims: []int64{-1, 2, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if f, _ := v.float(i); f != float64(i)/4 {
			t.Errorf("element %d is %v", i, f)
		}
	}
	if _, err := ramp(ort.Info{Type: ort.TypeInfo{Kind: ort.KindTensor, Elem: ort.Int64}}); err == nil {
		t.Error("a ramp of integers")
	}
}

func TestMadeUp(t *testing.T) {
	var inputs []ort.Info
	for elem := ort.Float32; elem <= ort.Uint64; elem++ {
		inputs = append(inputs, ort.Info{Type: ort.TypeInfo{Kind: ort.KindTensor, Elem: elem, Dims: []int64{-1, 5}}})
	}
	sets, err := madeUp(inputs)
	if err != nil || len(sets) != 2 {
		t.Fatalf("%d sets: %v", len(sets), err)
	}
	for i, v := range sets[1].inputs {
		if v.elem == ort.String && len(v.strings) != 15 || v.elem != ort.String && len(v.data) != 15*elementBytes(v.elem) {
			t.Errorf("input %d: %s of %d bytes and %d strings", i, v.elem, len(v.data), len(v.strings))
		}
		for n := range 15 {
			if f, ok := v.float(n); ok && (math.IsNaN(f) || f < 0 || f > 2) {
				t.Errorf("%s: %v", v.elem, f)
			}
		}
	}
	again, _ := madeUp(inputs)
	if err := sameAll(again[1].inputs, sets[1].inputs, exact); err != nil {
		t.Errorf("another time they are others: %v", err)
	}
	if _, err := madeUp([]ort.Info{{Type: ort.TypeInfo{Kind: ort.KindSequence}}}); err == nil {
		t.Error("a sequence was made up")
	}
}

// TestValuesThroughRuntime hands values over and back.
func TestValuesThroughRuntime(t *testing.T) {
	c := newChecker(t)
	number := value{kind: ort.KindTensor, elem: ort.Float32, dims: []int64{}, data: []byte{0, 0, 0x80, 0x3f}}
	text := value{kind: ort.KindTensor, elem: ort.String, dims: []int64{2}, strings: [][]byte{[]byte("a\x00b"), {}}}
	none := value{kind: ort.KindTensor, elem: ort.Int64, dims: []int64{0, 3}, data: []byte{}}
	for _, v := range []value{number, text, none, {kind: ort.KindSequence, items: []value{number, number}}} {
		made, err := v.toRuntime(c.env)
		if err != nil {
			t.Fatal(err)
		}
		back, err := fromRuntime(made)
		if err == nil {
			err = same(back, v, exact)
		}
		if err != nil {
			t.Error(err)
		}
		made.Close()
	}
	for name, v := range map[string]value{
		"an empty sequence": {kind: ort.KindSequence},
		"nothing":           {},
		"too few bytes":     {kind: ort.KindTensor, elem: ort.Int64, dims: []int64{3}},
		"a bad item":        {kind: ort.KindSequence, items: []value{number, {}}},
	} {
		if _, err := v.toRuntime(c.env); err == nil {
			t.Errorf("%s was handed over", name)
		}
	}
}

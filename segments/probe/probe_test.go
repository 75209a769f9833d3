package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
)

// TestFill holds the values to what a model can take: numbers that stay
// finite, and integers that may be indices.
func TestFill(t *testing.T) {
	const n = 1000
	within := func(low, high float64) func(float64) bool {
		return func(v float64) bool { return low <= v && v <= high }
	}
	for _, c := range []struct {
		elem models.DataType
		read func(b []byte) float64
		good func(float64) bool
	}{
		{models.Float32, func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }, within(-10, 10)},
		{models.Float64, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }, within(-10, 10)},
		{models.Float16, halfOfOne, func(v float64) bool { return 1 <= v && v < 2 }},
		{models.Bool, func(b []byte) float64 { return float64(b[0]) }, within(0, 1)},
		{models.Int8, func(b []byte) float64 { return float64(int8(b[0])) }, within(0, integers-1)},
		{models.Int32, func(b []byte) float64 { return float64(int32(binary.LittleEndian.Uint32(b))) }, within(0, integers-1)},
		{models.Int64, func(b []byte) float64 { return float64(int64(binary.LittleEndian.Uint64(b))) }, within(0, integers-1)},
	} {
		data := make([]byte, n*c.elem.Bytes())
		fill(data, c.elem, rand.New(rand.NewPCG(7, 0)))
		seen := map[float64]bool{}
		for b := range slices.Chunk(data, c.elem.Bytes()) {
			v := c.read(b)
			seen[v] = true
			if !c.good(v) {
				t.Fatalf("%v: %v is out of bounds", c.elem, v)
			}
		}
		if len(seen) < 2 {
			t.Errorf("%v: all %d values are the same", c.elem, n)
		}
		again := make([]byte, len(data))
		fill(again, c.elem, rand.New(rand.NewPCG(7, 0)))
		if !slices.Equal(data, again) {
			t.Errorf("%v: the same seed gave other values", c.elem)
		}
	}
}

// halfOfOne reads a half-precision number whose exponent is that of 1.
func halfOfOne(b []byte) float64 {
	bits := binary.LittleEndian.Uint16(b)
	if bits>>10 != 15 {
		return math.NaN()
	}
	return 1 + float64(bits&1023)/1024
}

// TestMakeInputRefuses sees what cannot be made up, before any memory is
// asked for.
func TestMakeInputRefuses(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for want, c := range map[string]struct {
		elem  models.DataType
		shape []int64
	}{
		"no values can be made up": {models.String, []int64{2}},
		"no values":                {models.Float32, []int64{2, 0}},
		"over 1073741824 elements": {models.Float32, []int64{1 << 20, 1 << 20, 1 << 40}},
	} {
		p := &probe{}
		err := p.makeInput(models.TensorSpec{Name: "x", Type: models.Type{Elem: c.elem}}, c.shape, random)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%v of %v: got %v, want %q", c.elem, c.shape, err, want)
		}
	}
}

// measuring makes the test binary a process that [Run] starts.
const measuring = "OVERLAPD_PROBE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(measuring) == "" {
		os.Exit(m.Run())
	}
	if err := Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func self(t *testing.T) []string {
	t.Helper()
	t.Setenv(measuring, "1")
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

// TestProbeApart compares a model with itself, cut: on one device nothing
// differs, and what was compared is all of the outputs.
func TestProbeApart(t *testing.T) {
	if path, err := ort.Find(); err != nil {
		t.Skip(err)
	} else {
		t.Setenv(ort.PathVariable, path)
	}
	for name, elements := range map[string]int64{"tiny_mlp": 20, "tiny_add": 64} {
		path, err := zoo.Build(name, t.TempDir(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), self(t), Spec{
			Path: path, CacheDir: t.TempDir(), Batch: 2, SeqLen: 1, Threads: 1, Mode: ModeApart,
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := r.Deviation; d == nil || d.Elements != elements || d.MaxAbs != 0 || d.Largest == 0 || d.NotFinite != 0 {
			t.Errorf("%s: %+v", name, r.Deviation)
		}
	}
}

func TestProbeRefuses(t *testing.T) {
	if path, err := ort.Find(); err != nil {
		t.Skip(err)
	} else {
		t.Setenv(ort.PathVariable, path)
	}
	path, err := zoo.Build("tiny_add", t.TempDir(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, spec := range map[string]Spec{
		`unknown mode "both"`:  {Path: path, Mode: "both"},
		"nothing.onnx":         {Path: "nothing.onnx", Mode: ModeTime},
		`unknown device "tpu"`: {Path: path, Mode: ModeTime, Device: "tpu"},
	} {
		spec.Batch, spec.SeqLen, spec.Threads, spec.CacheDir = 1, 1, 1, t.TempDir()
		if r, err := Run(context.Background(), self(t), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %+v, %v, want %q", r, err, want)
		}
	}
}

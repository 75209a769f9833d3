package predictor

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

func jsonOf(t testing.TB, f *File) string {
	t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Whatever is wrong with the text of a file is told, and which kind of wrong.
func TestReadRefusesText(t *testing.T) {
	good := jsonOf(t, testFile(2, 4))
	edit := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the file does not hold %s", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, c := range map[string]struct {
		text string
		want error
		part string
	}{
		"empty":         {"", errFormat, "it is empty"},
		"ONNX":          {"\x08\x08\x12\x07pytorch", errFormat, "not a JSON object"},
		"list":          {"[1]", errFormat, "not a JSON object"},
		"foreign":       {`{"model": 1}`, errFormat, `""`},
		"version":       {edit(Format, "overlapd-predictor/2") + "x", errDamaged, "byte"},
		"other version": {edit(Format, "overlapd-predictor/2"), errFormat, `"overlapd-predictor/2"`},
		"format number": {`{"format": 1}`, errFormat, "format"},
		"truncated":     {good[:len(good)/2], errDamaged, "truncated"},
		"last byte":     {good[:len(good)-1], errDamaged, "truncated"},
		"syntax":        {edit(`"rows":1000`, `"rows":;1000`), errDamaged, "';'"},
		"NaN":           {edit(`"rows":1000`, `"rows":NaN`), errDamaged, "'N'"},
		"unknown":       {edit(`"rows":1000`, `"rows":1000,"columns":3`), errDamaged, "columns"},
		"null":          {edit(`"bias":[`, `"bias":[null,`), errDamaged, "null"},
		"null layer":    {edit(`"layers":[`, `"layers":[null,`), errDamaged, "null"},
		"huge":          {edit(`"bias":[`, `"bias":[1e999,`), errDamaged, "1e999"},
		"float32":       {edit(`"bias":[`, `"bias":[1e39,`), errDamaged, "1e39"},
		"a fraction":    {edit(`"rows":1000`, `"rows":1.5`), errDamaged, "rows"},
		"text":          {edit(`"rows":1000`, `"rows":"many"`), errDamaged, "rows"},
		"two":           {good + good, errDamaged, ""},
		"too large":     {good + strings.Repeat(" ", maxFileBytes), errDamaged, "larger"},
		"created":       {edit(`"created":"0001-01-01T00:00:00Z"`, `"created":"yesterday"`), errDamaged, "yesterday"},
	} {
		_, err := Read(strings.NewReader(c.text))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: %v; want %q with %q", name, err, c.want, c.part)
		}
	}
	if _, err := Read(strings.NewReader(good)); err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(path, []byte(good[:100]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v; want the path in it", err)
	}
}

func TestValidateFile(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(f *File)
		parts  []string
	}{
		"output":      {func(f *File) { f.Output = "log" }, []string{"unknown output", `"log"`}},
		"rows":        {func(f *File) { f.Rows = 0 }, []string{"0 rows"}},
		"device":      {func(f *File) { f.Device = strings.Repeat("x", maxName+1) }, []string{"device"}},
		"features":    {func(f *File) { f.Features.Set = "mine" }, []string{`"mine"`}},
		"width":       {func(f *File) { f.Features.Models[0].MaxSeqLen = 5 }, []string{"the first layer has 21 inputs, its features 22"}},
		"no layers":   {func(f *File) { f.Layers = nil }, []string{"0 layers"}},
		"many layers": {func(f *File) { f.Layers = make([]Layer, maxLayers+1) }, []string{"17 layers"}},
		"chain":       {func(f *File) { f.Layers = append(f.Layers[:1], f.Layers[2]) }, []string{"layer 1 has 3 inputs, the one before 4 outputs"}},
		"outputs":     {func(f *File) { f.Layers = f.Layers[:2] }, []string{"last layer has 3 outputs"}},
		"weights":     {func(f *File) { f.Layers[1].Weights = f.Layers[1].Weights[1:] }, []string{"layer 1: 11 weights"}},
		"bias":        {func(f *File) { f.Layers[1].Bias = nil }, []string{"layer 1: a bias of 0"}},
		"negative":    {func(f *File) { f.Layers[1].Inputs = -4 }, []string{"layer 1: -4 inputs"}},
		"absurd":      {func(f *File) { f.Layers[0].Outputs = 1 << 40 }, []string{"layer 0", "1099511627776 outputs"}},
		"NaN":         {func(f *File) { f.Layers[0].Weights[7] = float32(math.NaN()) }, []string{"layer 0: weight 7 is NaN"}},
		"infinite":    {func(f *File) { f.Layers[2].Bias[0] = float32(math.Inf(-1)) }, []string{"layer 2: bias 0 is -Inf"}},
		"MAPE":        {func(f *File) { f.Test.MAPE = math.NaN() }, []string{"percentage error of NaN"}},
		"test rows":   {func(f *File) { f.Test.Rows = -1 }, []string{"tested on -1 rows"}},
		"order":       {func(f *File) { f.Test.Quantiles.P90 = 2 }, []string{"in order", "P90:2"}},
		"zero":        {func(f *File) { f.Test.Quantiles.P01 = 0 }, []string{"P01:0"}},
		"quantile":    {func(f *File) { f.Test.Quantiles.P99 = math.Inf(1) }, []string{"P99:+Inf"}},
		"all at once": {func(f *File) { f.Rows, f.Output, f.Test.MAPE = -1, "x", -1; f.Layers[0].Bias[0] = float32(math.NaN()) },
			[]string{"-1 rows", "unknown output", "bias 0", "error of -1"}},
	} {
		f := testFile(2, 4, 3)
		c.damage(f)
		err := f.Validate()
		if !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range c.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not hold %q", name, err, part)
			}
		}
		if m, err := newModel(f); err == nil {
			t.Errorf("%s: made %v of it", name, m)
		}
	}
	if err := testFile(2, 4, 3).Validate(); err != nil {
		t.Error(err)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	f := testFile(2, 4)
	f.Layers = make([]Layer, maxLayers)
	if lines := strings.Count(f.Validate().Error(), "\n"); lines > 20 {
		t.Errorf("%d lines", lines)
	}
}

// paperFile returns a small predictor with the features of the paper.
func paperFile() *File {
	f := testFile(2)
	f.Features.Set, f.Output = FeaturesPaper, OutputMicros
	for i := range f.Features.Models {
		f.Features.Models[i].Costs = nil
	}
	return constant(f, 3)
}

// Whatever bytes are read, they are refused or make a model that serves.
func FuzzRead(f *testing.F) {
	f.Add([]byte(jsonOf(f, testFile(2, 4))))
	f.Add([]byte(jsonOf(f, paperFile())))
	f.Add([]byte(jsonOf(f, constant(testFile(3), 0.7))))
	f.Add([]byte(`{"format":"overlapd-predictor/1","layers":[{"inputs":1}]}`))
	f.Add([]byte(`{"format":null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Read(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, errFormat) && !errors.Is(err, errDamaged) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		m, err := newModel(file)
		if err != nil {
			t.Fatalf("read, but no model: %v", err)
		}
		g := groupOf(span(0, 0, file.Features.Models[0].Operators, 1, 0))
		micros := []float64{0}
		m.predict([]models.Group{g}, micros)
		if !(micros[0] > 0 && micros[0] <= mostMicros) {
			t.Fatalf("takes %v µs", micros[0])
		}
		if again, err := Read(strings.NewReader(jsonOf(t, file))); err != nil {
			t.Fatalf("written and not read again: %v", err)
		} else if diff := cmp.Diff(file, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
